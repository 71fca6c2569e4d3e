"""Gradients of flash_attention against fp64, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Errors, Worker, measure, numbers
from tests.kernels.test_attention_forward import VALUES, WINDOWS, Case

BASE = Case(S=70, KV=70)
CASES = [
    *(replace(BASE, dtype=d, causal=c) for d in ("float16", "bfloat16") for c in (False, True)),
    *(replace(BASE, dtype="float32", causal=True, D=D) for D in (40, 64, 80)),
    replace(BASE, dtype="float32", H=4, G=2, B=1, S=130, KV=70),
    replace(BASE, H=4, G=2, causal=True),
    replace(BASE, B=1, H=3, G=1, dtype="bfloat16"),
    *(
        replace(BASE, B=1, S=S, KV=KV, causal=True)
        for S, KV in ((1, 100), (40, 130), (130, 40), (2, 2))
    ),
    *(replace(BASE, B=1, S=S, KV=KV) for S, KV in ((64, 128), (65, 33), (3, 17))),
    # Rows of one key, whose gradient has to vanish, and of few. A row of two keys holds one
    # rounding: it takes many of them for a mean that says something.
    *(
        replace(BASE, S=S, KV=KV, dtype=dtype)
        for S, KV in ((1, 1), (70, 1), (200, 2), (200, 3))
        for dtype in ("float16", "bfloat16", "float32")
    ),
    *(
        replace(BASE, B=4, H=8, G=8, S=3, KV=2, causal=True, dtype=dtype)
        for dtype in ("float16", "float32")
    ),
    # 777 keys that weigh alike: a weight is small, its logarithm is not.
    replace(BASE, B=1, H=2, G=2, S=1, KV=777, D=16, scale=-0.1, dtype="float32"),
    *(replace(BASE, B=1, H=1, G=1, D=D, causal=True) for D in (16, 80, 128)),
    # Of FlashAttention's tests, odd ones among them.
    *(replace(BASE, B=1, H=1, G=1, S=20, KV=24, D=D) for D in (59, 72, 96, 111, 160, 256)),
    *(replace(BASE, view=view) for view in ("transposed", "skipping")),
    replace(BASE, scale=-0.2, B=1),
    replace(BASE, tma=True, H=4, causal=True),
    replace(BASE, tma=True, view="transposed", dtype="bfloat16"),
    *WINDOWS,
    *VALUES,
]


def gradients(case: Case, dtype: str | None, lse_too: bool) -> list[torch.Tensor]:
    """Gradients by the kernel (dtype None), or by PyTorch through the plain formula."""
    import kernels

    leaves = [one.detach().requires_grad_() for one in case.tensors()]
    generator = torch.Generator().manual_seed(4)
    if dtype is None:
        out, lse = kernels.flash_attention(*leaves, **case.options, return_lse=True)
    else:
        if dtype == "float64":
            leaves = [one.detach().double().requires_grad_() for one in leaves]
        out, lse = plain_attention(*leaves, **case.formula, dtype=dtype)
    dout = torch.randn(out.shape, generator=generator)
    dlse = torch.randn(lse.shape, generator=generator)
    loss = (out * dout.to(getattr(torch, case.dtype)).to(out.dtype)).sum()
    if lse_too:
        loss = loss + (lse * dlse).sum()
    return list(torch.autograd.grad(loss, leaves))


def run(case: Case, lse_too: bool) -> list[Errors]:
    from kernels.attention.portable.tuning import choose as configs

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=case.tma)
    configs.INTERPRETED_BACKWARD = replace(configs.INTERPRETED_BACKWARD, tma=case.tma)
    triple = zip(
        gradients(case, None, lse_too),
        gradients(case, case.dtype, lse_too),
        gradients(case, "float64", lse_too),
        strict=True,
    )
    return [measure(*each) for each in triple]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, False, names=("dq", "dk", "dv"))


def run_one_row(draws: int) -> list[float]:
    """The largest error of dq and of dk by its bar, of so many draws, each by itself."""
    case = replace(BASE, B=1, H=4, G=4, S=1, KV=147, D=64, dtype="bfloat16", scale=1.0)
    shares = []
    for draw in range(1, draws + 1):
        with numbers(draw):
            shares.append([one.share for one in run(case, False)[:2]])
    return [max(each) for each in zip(*shares, strict=True)]


def test_a_row_of_one_heavy_key_holds_no_rounding_of_out(interpreter: Worker) -> None:
    shares = interpreter.run(run_one_row, 24)
    # With delta from rowsum(out * dout) the largest of dk was 1.09 of its bar.
    assert max(shares) < 0.6, shares


@pytest.mark.parametrize(
    "case",
    [
        replace(BASE, causal=True, S=50),
        *(replace(BASE, KV=KV, dtype="float32", causal=KV > 1) for KV in (1, 70)),
    ],
    ids=str,
)
def test_log_sum_exp_is_differentiable(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, True, names=("dq", "dk", "dv"))


@contextmanager
def adding_fp64() -> Iterator[None]:
    """Inside, kernels compute as for sm_90, where fp32 products are added up in fp64."""
    from triton.language import target_info

    from kernels.runtime import targets

    class Adding(targets.Target):
        @property
        def adds_fp64(self) -> bool:
            return True

    target, found = targets.INTERPRETER, target_info.current_target
    targets.INTERPRETER = Adding(target.name, target.backend)
    target_info.current_target = lambda: SimpleNamespace(backend="cuda", arch=90)
    try:
        yield
    finally:
        targets.INTERPRETER, target_info.current_target = target, found


def run_adding_fp64(case: Case) -> list[Errors]:
    with adding_fp64():
        return run(case, True)


@pytest.mark.parametrize(
    "case",
    [
        Case(S=40, KV=50, D=32, dtype="float32", causal=True),
        Case(S=30, KV=40, D=80, H=4, dtype="float32", window=(20, 5)),
    ],
    ids=str,
)
def test_what_is_added_in_fp64_is_rounded_once(interpreter: Worker, case: Case) -> None:
    for errors in interpreter.run(run_adding_fp64, case):
        errors.check("a gradient")
        # Where weights and dp - delta were rounded to fp32 on their way it was 0.4 to 0.6.
        assert errors.rms <= 0.3 * errors.plain_rms, errors


def run_sums(draw: int) -> tuple[torch.Tensor, ...]:
    """Sums of weights as the kernel writes them, and as fp64 adds up the same weights; what scores
    are shifted by, and the largest of them."""
    import kernels
    from kernels.attention.common.numerics.constants import LOG2_E
    from kernels.attention.portable.backward import passes as backward

    plain, seen = backward.attention_backward_rows, []

    class Seen:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(**named: Any) -> None:
                plain[grid](**named)
                seen.append((named["shift"], named["total"]))

            return launch

    generator = torch.Generator().manual_seed(draw)
    q, k, v = (torch.zeros(1, rows, 1, 16, requires_grad=True) for rows in (64, 32, 32))
    bias = torch.randn((64, 32), generator=generator)
    backward.attention_backward_rows = Seen()
    try:
        kernels.flash_attention(q, k, v, bias=bias).sum().backward()
    finally:
        backward.attention_backward_rows = plain
    ((shift, total),) = seen
    below = bias - shift.reshape(64, 1)
    whole = (below * LOG2_E).floor()
    log2_e = torch.tensor(LOG2_E)
    exponents = (below.double() * log2_e.double() - whole).float()
    exponents = (below.double() * (LOG2_E - log2_e.double()) + exponents).float()
    weights = exponents.double().exp2().float() * whole.exp2()
    return total.reshape(64), weights.double().sum(1).float(), shift.reshape(64), bias.amax(1)


@pytest.mark.parametrize("draw", range(3))
def test_weights_in_fp32_are_of_exponents_next_to_0_and_their_sums_rounded_once(
    interpreter: Worker, draw: int
) -> None:
    total, expected, shift, largest = interpreter.run(run_sums, draw)
    assert torch.equal(total, expected)
    # Exponents next to 0 hold more places than those below it, and no weight is over 1.
    assert torch.equal(shift, largest)


def run_masked() -> list[torch.Tensor]:
    import kernels

    q, k, v = (one.requires_grad_() for one in Case(B=1, S=100, KV=30).tensors())
    out = kernels.flash_attention(q, k, v, causal=True)
    return list(torch.autograd.grad(out.sum(), (q, k, v)))


def test_rows_that_see_no_key_have_zero_gradient(interpreter: Worker) -> None:
    dq, dk, dv = interpreter.run(run_masked)
    assert torch.equal(dq[:, :70], torch.zeros_like(dq[:, :70]))
    assert all(torch.isfinite(one).all() for one in (dq, dk, dv))


def run_opcheck(left: int | None) -> dict[str, str]:
    import kernels.public  # noqa: F401  (registers the operators)

    q, k, v = (one.float().requires_grad_() for one in Case(B=1, S=20, KV=20, D=16).tensors())
    return torch.library.opcheck(
        torch.ops.warpwatch.flash_attention, (q, k, v, True, 0, left, 0.25)
    )


@pytest.mark.parametrize("left", [None, -3])
def test_operator_passes_opcheck(interpreter: Worker, left: int | None) -> None:
    outcome = interpreter.run(run_opcheck, left)
    assert set(outcome.values()) == {"SUCCESS"}
