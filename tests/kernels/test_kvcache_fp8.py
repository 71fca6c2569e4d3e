"""An fp8 cache: every value of e4m3 both ways, and scales of 0, in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from kernels.attention.common.numerics import e4m3
from tests.kernels.interpreted import Worker


@triton.jit
def both_ways(codes, halves, values, bits, N: tl.constexpr, FNUZ: tl.constexpr):
    o_n = tl.arange(0, N)
    tl.store(halves + o_n, e4m3.widened(tl.load(codes + o_n), FNUZ))
    tl.store(bits + o_n, e4m3.narrowed(tl.load(values + o_n), FNUZ))


def run_e4m3(flavour: str) -> list[torch.Tensor]:
    """All codes as they are read; what lies on them, between them and beside that, written."""
    kind = getattr(torch, flavour)
    codes = torch.arange(256, dtype=torch.uint8)
    numbers = codes.view(kind).float()
    ordered = numbers[numbers.isfinite()].sort().values
    middles = (ordered[1:] + ordered[:-1]) / 2
    beside = [middles.nextafter(torch.tensor(to)) for to in (-math.inf, math.inf)]
    odd = torch.tensor([math.nan, -0.0, 1e-30, -1e-30, 1e30, -1e30, math.inf, -math.inf])
    values = torch.cat((ordered, middles, *beside, odd))
    values = torch.nn.functional.pad(values, (0, 1024 - len(values)))
    halves, bits = torch.empty(1024, dtype=torch.float16), torch.empty(1024, dtype=torch.uint8)
    both_ways[(1,)](codes.repeat(4), halves, values, bits, 1024, flavour.endswith("fnuz"))
    most = torch.finfo(kind).max
    want = values.clamp(-most, most).to(kind)
    return [halves[:256].float(), numbers, bits.view(kind).float(), want.float()]


@pytest.mark.parametrize("flavour", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_e4m3_is_read_and_written_exactly(interpreter: Worker, flavour: str) -> None:
    read, numbers, written, want = interpreter.run(run_e4m3, flavour)
    for got, expected in ((read, numbers), (written, want)):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)
        number = ~expected.isnan()
        assert torch.equal(got.signbit()[number], expected.signbit()[number])


def run_scale_of_zero(flavour: str, rotary: bool) -> list[dict[str, torch.Tensor]]:
    """New keys and values of which head 0 has scales of 0 or -0, and as they are without scales:
    what is stored of them, and the output over these and the zeros before them."""
    import kernels

    kind = getattr(torch, flavour)
    q, (k, v) = torch.randn(2, 1, 2, 16), torch.randn(2, 2, 3, 2, 16)
    k[:, :2, 0] = v[:, :2, 0] = 0.0
    angles = torch.randn(2, 9, 8) if rotary else None
    turned = {} if angles is None else {"rotary_cos": angles[0], "rotary_sin": angles[1]}
    found = []
    for zero in (1.0, 0.0, -0.0):
        k_cache, v_cache = torch.zeros(2, 2, 9, 2, 16).to(kind)
        scale = torch.tensor([zero, 1.0])
        out = kernels.flash_attention_kvcache(
            *(q, k_cache, v_cache, k, v), cache_seqlens=4, k_scale=scale, v_scale=scale, **turned
        )
        found.append({"k": k_cache.float(), "v": v_cache.float(), "out": out})
    return found


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("flavour", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_new_keys_and_values_of_scale_0_are_zeros(
    interpreter: Worker, flavour: str, rotary: bool
) -> None:
    """A scale is the largest value by e4m3's: of zeros it is 0."""
    ones, *zeros = interpreter.run(run_scale_of_zero, flavour, rotary)
    for found in zeros:
        for name in ("k", "v"):
            assert torch.equal(found[name][:, 4:6, 0], torch.zeros(2, 2, 16)), name
            assert torch.equal(found[name][:, :, 1], ones[name][:, :, 1]), name
        assert torch.equal(found["out"][:, :, 0], torch.zeros(2, 1, 16))
        assert torch.equal(found["out"][:, :, 1], ones["out"][:, :, 1])
