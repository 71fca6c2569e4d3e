"""flash_attention and scaled_dot_product_attention against fp64, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Errors, Worker, measure, strided


@dataclass(frozen=True, kw_only=True)
class Case:
    B: int = 2
    S: int = 100
    KV: int = 100
    H: int = 2
    G: int = 2
    D: int = 64
    DV: int = 0
    dtype: str = "float16"
    causal: bool = False
    view: str = "contiguous"
    scale: float | None = None
    tma: bool = False
    window: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        mask = "causal" if self.causal else "full"
        heads = f"H{self.H}" if self.G == self.H else f"H{self.H}-G{self.G}"
        text = f"{self.dtype}-B{self.B}-S{self.S}-KV{self.KV}-{heads}-D{self.D}"
        text += f"-DV{self.DV}-{mask}" if self.DV else f"-{mask}"
        text += "" if self.view == "contiguous" else f"-{self.view}"
        text += "" if self.scale is None else f"-scale{self.scale}"
        text += "" if self.window == (-1, -1) else f"-window{self.window[0]},{self.window[1]}"
        return text + "-tma" * self.tma

    @property
    def options(self) -> dict[str, Any]:
        """As ``flash_attention`` takes them."""
        return {"causal": self.causal, "window_size": self.window, "softmax_scale": self.scale}

    @property
    def formula(self) -> dict[str, Any]:
        """As ``plain_attention`` takes them."""
        left, right = self.window
        right = 0 if self.causal else right
        offset = self.KV - self.S
        return {
            "causal_offset": None if right < 0 else offset + right,
            "left_offset": None if left < 0 else offset - left,
            "scale": self.scale,
        }

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = getattr(torch, self.dtype)
        q = strided((self.B, self.S, self.H, self.D), self.view, dtype, 1)
        k = strided((self.B, self.KV, self.G, self.D), self.view, dtype, 2)
        v = strided((self.B, self.KV, self.G, self.DV or self.D), self.view, dtype, 3)
        return q, k, v


BASE = Case()
LONG = replace(BASE, B=1, H=1, G=1, S=200, KV=200)
VALUES = [
    *(replace(BASE, B=1, D=D, DV=DV, causal=True) for D, DV in ((64, 128), (192, 128), (40, 16))),
    replace(BASE, S=70, KV=70, D=48, DV=80, dtype="float32", causal=True),
    replace(BASE, D=64, DV=32, H=4, dtype="bfloat16", tma=True, view="transposed"),
]
WINDOWS = [
    *(replace(LONG, window=(left, -1), causal=True) for left in (0, 5, 64, 130)),
    *(replace(LONG, window=window) for window in ((-1, 3), (70, 0), (10, 10), (500, 500))),
    replace(LONG, window=(30, -1), dtype="float32"),
    replace(LONG, window=(30, 70), dtype="bfloat16", tma=True),
    replace(LONG, window=(20, 5), S=100),
    # Of 200 queries the last 60 see keys.
    replace(LONG, window=(20, 5), KV=60),
    replace(LONG, window=(20, 5), KV=60, dtype="float32"),
]
CASES = [
    *(replace(BASE, dtype=d, causal=c) for d in ("float16", "bfloat16") for c in (False, True)),
    replace(BASE, dtype="float32", causal=True, S=70, KV=70),
    *(replace(BASE, B=1, D=D, causal=True) for D in (16, 32, 128, 256)),
    *(replace(BASE, B=1, D=D, H=1, G=1) for D in (1, 40, 72, 80, 96, 160)),
    replace(BASE, H=4, G=2, causal=True),
    replace(BASE, H=6, G=1, B=1, dtype="bfloat16"),
    *(replace(BASE, B=1, S=S, KV=KV, causal=True) for S, KV in ((1, 130), (63, 65), (130, 70))),
    *(replace(BASE, B=1, S=S, KV=KV) for S, KV in ((1, 1), (64, 64), (65, 191), (200, 3))),
    *(replace(BASE, S=200, KV=KV) for KV in (1, 2, 3)),
    # Below 128 columns PyTorch's product with two or three rows errs less than any tile's.
    *(replace(BASE, S=200, KV=KV, dtype="float32", D=128) for KV in (1, 2, 3)),
    *(replace(BASE, dtype="float32", D=D) for D in (40, 128)),
    *(replace(BASE, view=view, causal=True) for view in ("transposed", "padded", "skipping")),
    replace(BASE, scale=0.5),
    replace(BASE, B=1, scale=-0.125),
    *(replace(BASE, tma=True, H=4, causal=c, dtype="bfloat16") for c in (False, True)),
    replace(BASE, tma=True, B=1, S=130, KV=70, D=72, causal=True),
    *(replace(BASE, tma=True, causal=True, view=view) for view in ("transposed", "padded")),
    *WINDOWS,
    *VALUES,
]


def run_flash(case: Case) -> tuple[Errors, Errors]:
    import kernels
    from kernels.attention.portable.tuning import choose as configs

    # The interpreter has no architecture whose table would choose between the two ways to load.
    configs.INTERPRETED = replace(configs.INTERPRETED, tma=case.tma)
    q, k, v = case.tensors()
    out, lse = kernels.flash_attention(q, k, v, **case.options, return_lse=True)
    assert lse.dtype == torch.float32
    plain = plain_attention(q, k, v, **case.formula)
    truth = plain_attention(q, k, v, **case.formula, dtype="float64")
    return measure(out, plain[0], truth[0]), measure(lse, plain[1], truth[1])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_and_log_sum_exp_match_fp64(interpreter: Worker, case: Case) -> None:
    draws = 2 if case.dtype == "float32" else 1
    interpreter.check(run_flash, case, names=("out", "lse"), draws=draws)


def run_masked_rows() -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    q, k, v = Case(B=1, S=100, KV=30).tensors()
    return kernels.flash_attention(q, k, v, causal=True, return_lse=True)


def test_rows_that_see_no_key_give_zero_and_minus_infinity(interpreter: Worker) -> None:
    out, lse = interpreter.run(run_masked_rows)
    assert torch.equal(out[:, :70], torch.zeros_like(out[:, :70]))
    assert torch.all(lse[:, :, :70] == float("-inf"))
    assert torch.all(torch.isfinite(lse[:, :, 70:]))
    assert torch.all(out[:, 70:].abs().sum(-1) > 0)


def run_no_keys() -> list[torch.Tensor]:
    """Outputs without keys, without queries and without sequences, each with its gradients."""
    import kernels

    found = []
    for B, S, KV in ((2, 100, 0), (2, 0, 100), (0, 100, 100)):
        leaves = [one.requires_grad_() for one in Case(B=B, S=S, KV=KV).tensors()]
        out, lse = kernels.flash_attention(*leaves, causal=True, return_lse=True)
        found += [lse.detach(), out.detach(), *torch.autograd.grad(out.sum(), leaves)]
    return found


def test_empty_sequences(interpreter: Worker) -> None:
    found = interpreter.run(run_no_keys)
    for lse, *others in (found[at : at + 5] for at in range(0, len(found), 5)):
        assert torch.all(lse == float("-inf"))
        # What was not written is NaN here.
        assert all(torch.equal(one, torch.zeros_like(one)) for one in others)
    assert [tuple(one.shape) for one in (found[1], found[6], found[11])] == [
        (2, 100, 2, 64),
        (2, 0, 2, 64),
        (0, 100, 2, 64),
    ]


def run_nan_row() -> torch.Tensor:
    import kernels

    q, k, v = BASE.tensors()
    q[0, 5, 0, 3] = float("nan")
    return kernels.flash_attention(q, k, v)


def test_a_nan_query_spoils_its_own_row_alone(interpreter: Worker) -> None:
    out = interpreter.run(run_nan_row)
    assert torch.all(torch.isnan(out[0, 5, 0]))
    assert int(torch.isnan(out).sum()) == out.shape[-1]


def run_far_windows(size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of every attention beside the same without a window, gradients among them."""
    import kernels

    q, k, v = Case(B=1, S=50, KV=40, D=16).tensors()
    ends_q, ends_k = (torch.tensor([0, 20, n], dtype=torch.int32) for n in (50, 40))

    def results(window: tuple[int, int]) -> list[torch.Tensor]:
        leaves = [one.detach().requires_grad_() for one in (q, k, v)]
        out = kernels.flash_attention(*leaves, window_size=window)
        packed = kernels.flash_attention_varlen(
            q[0], k[0], v[0], ends_q, ends_k, 30, 20, window_size=window
        )
        decoded = kernels.flash_attention_kvcache(q[:, :3], k, v, window_size=window)
        grads = torch.autograd.grad(out.square().sum(), leaves)
        return [out.detach(), packed, decoded, *grads]

    found = []
    for window in ((size, size), (size, -1), (-1, size), (size, 0)):
        found += zip(results(window), results((-1, 0 if window[1] == 0 else -1)), strict=True)
    return found


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**63 - 1, 2**80])
def test_a_window_wider_than_32_bits_hides_nothing(interpreter: Worker, size: int) -> None:
    for got, unlimited in interpreter.run(run_far_windows, size):
        assert torch.allclose(got, unlimited, rtol=1e-2, atol=1e-3)


def run_sdpa(case: Case) -> Errors:
    import kernels

    q, k, v = (one.transpose(1, 2) for one in case.tensors())
    grouped = case.G != case.H
    got = kernels.scaled_dot_product_attention(
        q, k, v, is_causal=case.causal, scale=case.scale, enable_gqa=grouped
    )

    # torch's own function is the reference here: the drop-in must mean what torch means.
    def torch_sdpa(dtype: torch.dtype) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q.to(dtype),
            k.to(dtype),
            v.to(dtype),
            is_causal=case.causal,
            scale=case.scale,
            enable_gqa=grouped,
        )

    return measure(got, torch_sdpa(q.dtype), torch_sdpa(torch.float64))


@pytest.mark.parametrize(
    "case",
    [
        BASE,
        replace(BASE, causal=True, dtype="bfloat16"),
        replace(BASE, causal=True, S=40, KV=100),
        replace(BASE, causal=True, S=100, KV=40),
        replace(BASE, H=4, G=2, scale=0.3),
    ],
    ids=str,
)
def test_drop_in_means_what_torch_means(interpreter: Worker, case: Case) -> None:
    interpreter.check(run_sdpa, case, names=("out",))
