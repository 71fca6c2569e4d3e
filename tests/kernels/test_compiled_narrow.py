"""Problems that ptxas 12.8 miscompiles for sm_90 or dies of, in the tiles the kernels choose."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import kernels
from tests.kernels.on_card import portable
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats.recording import Launch
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.record import driver

pytestmark = pytest.mark.sampled

FP16 = torch.float16


def rows(seqlen: int, head_dim: int, pad: int = 0, heads: int = 2) -> torch.Tensor:
    """With ``pad`` rows are not aligned, and tiles go through registers."""
    whole = torch.zeros(1, seqlen, heads, head_dim + pad, dtype=FP16)
    return whole[..., :head_dim].requires_grad_()


def attended(
    seqlen_q: int, seqlen_k: int, head_dim: int, head_dim_v: int, pad: int = 0, heads: int = 2
) -> torch.Tensor:
    q, k, v = (
        rows(seqlen_q, head_dim, pad, heads),
        rows(seqlen_k, head_dim, pad, heads),
        rows(seqlen_k, head_dim_v, pad, heads),
    )
    out = kernels.flash_attention(q, k, v, causal=True)
    assert isinstance(out, torch.Tensor)
    return out


def trained(*shape: int, heads: int = 2) -> None:
    out = attended(*shape, heads=heads)
    out.backward(torch.zeros_like(out))


def masked(dtype: torch.dtype) -> None:
    """fp32 with a bias of ``dtype``, and its gradients."""
    q = torch.zeros(1, 40, 2, 64, requires_grad=True)
    out = kernels.flash_attention(q, q, q, bias=torch.zeros(40, 40, dtype=dtype))
    assert isinstance(out, torch.Tensor)
    out.backward(torch.zeros_like(out))


def decoded(head_dim: int, head_dim_v: int, dtype: torch.dtype = FP16) -> None:
    k, v = (torch.zeros(1, 200, 2, d).to(torch.float8_e4m3fn) for d in (head_dim, head_dim_v))
    q = torch.zeros(1, 1, 2, head_dim, dtype=dtype)
    kernels.flash_attention_kvcache(q, k, v, num_splits=1)


def cached(head_dim: int, head_dim_v: int, seqlen_q: int, pad: int = 0) -> None:
    """Keys in rows of no whole 32 bytes, values in rows of them."""
    q = torch.zeros(1, seqlen_q, 1, head_dim, dtype=FP16)
    k = torch.zeros(1, 200, 1, head_dim + pad, dtype=FP16)[..., :head_dim]
    v = torch.zeros(1, 200, 1, head_dim_v, dtype=FP16)
    kernels.flash_attention_kvcache(q, k, v, num_splits=1)


def compiled(call: Callable[[], object]) -> list[Launch]:
    with portable(), driver.active(targets.get("sm_90")) as recorder:
        call()
    assert recorder.failures == []
    return recorder.launches


@pytest.mark.parametrize(
    ("case", "launches"),
    [
        pytest.param(lambda: attended(233, 300, 64, 32, 3), 1, id="64-32-unaligned"),
        pytest.param(lambda: attended(233, 300, 32, 16, 3), 1, id="32-16-unaligned"),
        pytest.param(lambda: trained(107, 107, 256, 32), 5, id="256-32"),
        pytest.param(lambda: decoded(40, 32), 1, id="40-32-fp8-cache"),
        pytest.param(lambda: cached(72, 128, 1), 1, id="72-128-cache"),
        pytest.param(lambda: cached(72, 32, 16), 1, id="72-32-cache"),
        pytest.param(lambda: cached(128, 128, 1, 8), 1, id="128-cache-padded-keys"),
        # Triton 3.6 and 3.7 do not compile products in fp64 of what is loaded in fewer bits than
        # 32, or of weights that come from it, but for a sum between.
        pytest.param(lambda: decoded(32, 32, torch.float32), 1, id="fp32-on-fp8-cache"),
        pytest.param(lambda: masked(torch.bool), 4, id="fp32-bool-bias"),
        pytest.param(lambda: masked(FP16), 4, id="fp32-fp16-bias"),
    ],
)
def test_no_product_reads_what_nothing_wrote(case: Callable[[], object], launches: int) -> None:
    found = compiled(case)
    assert len(found) == launches
    codes = reading.read_codes([one.kernel for one in found])
    assert [one.advisories for one in codes] == [()] * launches


# (1, 2) has a causal offset of 1. Over few keys and of few rows gradients are exact, whose delta is
# found by a launch of its own.
@pytest.mark.parametrize(
    ("lengths", "heads", "launches"),
    [((1, 1), 2, 4), ((130, 1), 2, 4), ((1, 130), 2, 4), ((1, 130), 65, 4), ((1, 2), 2, 4)],
)
def test_a_length_of_one_compiles(lengths: tuple[int, int], heads: int, launches: int) -> None:
    found = compiled(lambda: trained(*lengths, 64, 64, heads=heads))
    assert len(found) == launches
    # As constants of 1 these are what some ptxas die of.
    if 1 in (lengths[1], lengths[1] - lengths[0]):
        assert found[0].signature["seqlen_k"] == found[0].signature["causal_offset"] == "i32"


def test_fp32_outputs_are_divided_to_the_nearest() -> None:
    """What "/" of fp32 compiles to errs by up to two units in the last place, 1.13 times the
    formula's RMS error where two keys are decoded; interpreted it is exact."""

    def decoded_in_parts() -> None:
        q = torch.zeros(1, 1, 1, 16)
        k = torch.zeros(1, 400, 1, 16)
        kernels.flash_attention_kvcache(q, k, k, num_splits=2)
        kernels.flash_attention_kvcache(q, k, k, num_splits=1)
        kernels.flash_attention(q, k, k)

    found = compiled(decoded_in_parts)
    assert len(found) == 4
    assert not any("div.full" in one.kernel.texts["ptx"] for one in found)


def test_fp32_silu_is_divided_to_the_nearest() -> None:
    """With "/" a product of one K had 1.12 times the formula's RMS error."""

    def product() -> None:
        a = torch.zeros(64, 16)
        kernels.matmul(a, a.t(), activation="silu")

    (found,) = compiled(product)
    ptx = found.kernel.texts["ptx"]
    assert "div.full" not in ptx and "div.rn" in ptx


@pytest.mark.parametrize("packed", [False, True])
def test_what_dropout_scales_is_rounded_before_the_difference(packed: bool) -> None:
    """Of one key the scores' gradient vanishes. Scaled in the FMA that subtracts delta it was the
    rounding that delta has, 1e-6 in a bias's gradient; interpreted nothing is fused."""

    def trained_by_one_key() -> None:
        q, k = rows(2, 80), rows(1, 80)
        if packed:
            ends = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
            out = kernels.flash_attention_varlen(
                q[0], k[0], k[0], *ends, 2, 1, dropout_p=0.3, dropout_seed=7
            )
        else:
            out = kernels.flash_attention(q, k, k, dropout_p=0.3, dropout_seed=7)
        assert isinstance(out, torch.Tensor)
        out.backward(torch.zeros_like(out))

    found = [one for one in compiled(trained_by_one_key) if "backward" in one.kernel.name]
    assert found
    for one in found:
        ptx = one.kernel.texts["ptx"]
        rounded = re.findall(r"fma\.rn\.f32\s+(%\w+), %\w+, %\w+, 0f00000000;", ptx)
        subtracted = re.findall(r"sub\.f32\s+%\w+, (%\w+), ", ptx)
        assert set(rounded) & set(subtracted), one.kernel.name
