"""Hopper's Gluon kernels of products against fp64, interpreted: every form that a launch has."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.matmul.hopper.choose import Fp8OnceConfig
from kernels.matmul.hopper.fp8.launch import FEW as FEW_OF_FP8
from kernels.matmul.hopper.fp8.launch import LARGE, NARROW, OBLONG, SQUARE, refused
from kernels.matmul.hopper.unaligned import LinesConfig
from tests.gluon import matmul_cases
from tests.gluon.matmul_cases import Case
from tests.gluon.product_forms import CASES, FORMS, FP8, FP8_ONCE, in_fp8
from tests.kernels.interpreted import Errors, Worker, judge
from tools.gluon.drawn_matmul import check, draw

_launched: dict[Case, matmul_cases.Forms] = {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_matches_fp64(worker: Worker, case: Case) -> None:
    _launched[case] = check(worker, case)


def test_the_cases_run_every_form_of_every_kernel() -> None:
    # Of a part of them (-k) nothing can be said; one that failed is told by its own test.
    if not all(case in _launched for case in CASES):
        pytest.skip("some cases were not asked for, or failed")
    ran: dict[str, dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for case in CASES:
        for name, given in _launched[case]:
            # The launch that adds parts of K adds a bias, too.
            added = {"bias": case.bias and given.get("SPLITS", 1) == 1}
            added["residual"] = case.residual is not None
            several = name == "matmul_hopper"
            how = "-tf32" if case.tf32 else "-lines" if several and given["CLASSES"] else ""
            for constant, value in (given | added).items():
                ran[name + how][constant].add(value)
    assert ran.keys() == FORMS.keys()
    for name, constants in FORMS.items():
        for constant, values in constants.items():
            assert ran[name][constant] >= values, f"{constant} of {name}: {ran[name][constant]}"


@pytest.mark.parametrize(
    ("dtype", "least"), [(torch.float16, -18.0), (torch.bfloat16, -91.5)], ids=["fp16", "bf16"]
)
def test_short_silu_is_rounded_once_and_leaves_its_neighbours_alone(
    worker: Worker, dtype: torch.dtype, least: float
) -> None:
    ends = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 6e4, -6e4, -120.0, 1e-7])
    # Every other value is one of the ends.
    x = torch.linspace(least, 20.0, 1024)
    x = torch.stack([x, ends.repeat(128)], dim=1).flatten().to(dtype)
    found = worker.run(matmul_cases.run_silu, x)
    truth = torch.nn.functional.silu(x.double())
    assert torch.equal(found.isnan(), truth.isnan())
    assert torch.equal(found.isinf(), truth.isinf())
    info = torch.finfo(dtype)
    unit = torch.exp2(torch.floor(torch.log2(truth.abs().clamp_min(info.tiny)))) * info.eps
    error = ((found.double() - truth).abs() / unit)[truth.isfinite()]
    assert error.max() <= 0.52, error.max()


@pytest.mark.parametrize("kernel", FORMS)
def test_no_order_of_partitions_changes_a_bit(worker: Worker, kernel: str) -> None:
    name, _, how = kernel.partition("-")
    of = ((name,), how == "tf32", how == "lines")
    case = next(
        one for one in CASES if (one.kernels, one.tf32, isinstance(one.config, LinesConfig)) == of
    )
    run = matmul_cases.run_fp8 if case.in_fp8 else matmul_cases.run
    first, *others = (worker.run(run, replace(case, seed=seed))[0] for seed in range(3))
    for other in others:
        assert torch.equal(first[0], other[0]) if case.in_fp8 else first == other


@pytest.mark.parametrize(
    "scales",
    [("blocks", "blocks"), ("blocks", "columns"), ("rows", "blocks"), ("none", "blocks")],
    ids="-".join,
)
@pytest.mark.parametrize(
    ("config", "K"),
    [(FEW_OF_FP8[0], 1296), (SQUARE, 4400), (OBLONG, 528), (LARGE, 4240)],
    ids=["few", "square", "oblong", "large"],
)
def test_scales_of_blocks_give_the_bits_of_the_kernel_of_several_tiles(
    worker: Worker, config: Fp8OnceConfig, K: int, scales: tuple[str, str]
) -> None:
    sizes = {"M": 60, "N": 171, "K": K, "multiprocessors": 1}
    case = in_fp8(config, scales, FP8_ONCE, out="float32", whole=True, **sizes)
    found, _ = worker.run(matmul_cases.run_fp8, case)
    expected, _ = worker.run(matmul_cases.run_fp8, replace(case, config=NARROW, kernels=FP8))
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("seed", range(8))
def test_a_drawn_product_matches_fp64(worker: Worker, seed: int) -> None:
    print(draw(seed))
    check(worker, draw(seed))


@pytest.mark.parametrize(
    ("sizes", "dtype", "activation", "residual", "kernels"),
    [
        ((200, 136, 264), "bfloat16", None, False, 3),
        ((136, 264, 72), "float16", "relu", False, 3),
        ((264, 72, 200), "bfloat16", "silu", True, 4),  # before the activation, once more
    ],
)
def test_gradients_match_fp64(
    worker: Worker,
    sizes: tuple[int, int, int],
    dtype: str,
    activation: str | None,
    residual: bool,
    kernels: int,
) -> None:
    names = ("da", "db", "dbias", "dresidual")[: 3 + residual]

    def drawn(draw: int) -> dict[str, Errors]:
        given = (sizes, dtype, activation, residual, draw)
        errors, launched = worker.run(matmul_cases.run_gradients, *given)
        assert len(launched) == kernels, launched
        return dict(zip(names, errors, strict=True))

    judge(drawn)


def test_no_drawn_product_has_a_configuration_that_its_launch_refuses() -> None:
    for seed in range(600):
        case = draw(seed)
        if case.in_fp8 and case.config is not None:
            assert not refused(case.config, by_blocks="blocks" in case.scales), seed
