"""Clusters, products of two CTAs and block-scaled products: right answers, and faults found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.tools.mxfp import MXFP4Tensor

from tests.gluon import cluster_kernels as kernels
from warpwatch.simulator.machine.clusters import Split
from warpwatch.simulator.session.check import check
from warpwatch.simulator.session.host import Card

RACE, DEADLOCK, UNWRITTEN = "race in shared memory", "deadlock", "value nobody wrote"
INIT = "missing wait for a cluster"
HOPPER, BLACKWELL = Card((9, 0)), Card((10, 0))
FAULTS: tuple[tuple[Callable[[str], None], Card, str, tuple[str, ...]], ...] = (
    (kernels.run_shared_operand, HOPPER, "no sync behind the init", (INIT,)),
    (kernels.run_shared_operand, HOPPER, "the other CTA is not waited for", (RACE,)),
    (kernels.run_shared_operand, HOPPER, "the other CTA arrives only", ("misuse", RACE)),
    (kernels.run_product_of_two, BLACKWELL, "no sync behind the init", (INIT,)),
    (kernels.run_product_of_two, BLACKWELL, "two arrivals are waited for", (DEADLOCK,)),
    (kernels.run_product_of_two, BLACKWELL, "the copies are not waited for", (UNWRITTEN, RACE)),
    (kernels.run_product_of_two, BLACKWELL, "the product is not waited for", (RACE,)),
)


@pytest.mark.parametrize(("run", "card"), sorted({one[:2] for one in FAULTS}, key=str))
def test_a_cluster_is_right_without_a_report(run: Callable[[str], None], card: Card) -> None:
    found = check(partial(run, ""), range(4), card)
    assert not found.reports, [one.lines() for one in found.reports]


@pytest.mark.parametrize(("run", "card", "fault", "kinds"), FAULTS)
def test_a_fault_between_ctas_is_found_in_every_order(
    run: Callable[[str], None], card: Card, fault: str, kinds: tuple[str, ...]
) -> None:
    for seed in range(3):
        (report,) = check(partial(run, fault), [seed], card).reports
        assert report.kind in kinds, report.lines()
        assert any("cluster_kernels.py" in site.file for _, site in report.sites)


def test_who_has_which_part_of_a_tensor() -> None:
    """Two bits of a CTA's number: one for rows, one of which nothing hangs."""
    layout = gl.NVMMASharedLayout.get_default_for(
        [64, 64], gl.bfloat16, cga_layout=[[0, 0], [1, 0]]
    )
    split = Split(4, layout, 2)
    assert split.pieces == 2 and split.group(3) == [2, 3] and split.lead(3) == 2
    assert split.owned(1, (2, 8, 4))[:, :4].all() and not split.owned(1, (2, 8, 4))[:, 4:].any()
    assert (split.owned(2, (8, 4)) == split.owned(3, (8, 4))).all()


# Block-scaled products.


def operand(rows: int, form: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Values as memory has them, what they are, and the format's name in the kernel."""
    if form == "fp4":
        packed = MXFP4Tensor(size=(rows, 128), device="cuda").random()
        return packed.to_packed_tensor(dim=1), packed.to(torch.float32), "e2m1"
    kind = torch.float8_e4m3fn if form == "e4m3" else torch.float8_e5m2
    narrow = torch.randn(rows, 128, device="cuda").to(kind)
    return narrow, narrow.float(), form


def scales(rows: int, vector: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales as memory has them, and as numbers: powers of two, of nvfp4 in e4m3."""
    if vector == 16:
        narrow = (torch.rand(rows, 8, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        return narrow, narrow.float()
    exponents = torch.randint(120, 130, (rows, 4), device="cuda", dtype=torch.uint8)
    return exponents, torch.exp2(exponents.float() - 127)


def run_scaled(a_form: str, b_form: str, vector: int, case: str = "") -> None:
    (a, a_is, a_name), (b, b_is, b_name) = operand(128, a_form), operand(64, b_form)
    (a_scale, a_factor), (b_scale, b_factor) = scales(128, vector), scales(64, vector)
    c = torch.empty(128, 64, device="cuda")
    given: list[Any] = []
    for one in (a, b):
        kind = gl.uint8 if one.dtype == torch.uint8 else gl.float8e4nv
        layout = gl.NVMMASharedLayout.get_default_for(list(one.shape), kind)
        given.append(TensorDescriptor.from_tensor(one, list(one.shape), layout))
    kernels.scaled_product[(1,)](
        *given, c, a_scale, b_scale, A=a_name, B=b_name, VEC=vector, CASE=case
    )
    want = (a_is * a_factor.repeat_interleave(vector, 1)) @ (
        b_is * b_factor.repeat_interleave(vector, 1)
    ).T
    torch.testing.assert_close(c, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("a_form", "b_form", "vector"),
    [("e4m3", "e4m3", 32), ("fp4", "fp4", 32), ("e5m2", "fp4", 32), ("fp4", "fp4", 16)],
)
def test_a_scaled_product_is_that_of_scaled_values(a_form: str, b_form: str, vector: int) -> None:
    found = check(partial(run_scaled, a_form, b_form, vector), range(2), BLACKWELL)
    assert not found.reports, [one.lines() for one in found.reports]


@pytest.mark.parametrize(
    ("case", "kind"),
    [("scales that nobody wrote", UNWRITTEN), ("scales written over too early", RACE)],
)
def test_scales_are_operands(case: str, kind: str) -> None:
    (report,) = check(partial(run_scaled, "e4m3", "e4m3", 32, case), [0], BLACKWELL).reports
    assert report.kind == kind, report.lines()


def test_a_slot_handed_back_too_early_ends_in_a_deadlock_in_some_order() -> None:
    """As in Triton's tutorial 08: whoever fills the slots may find one that is a phase ahead."""
    wrong = check(partial(kernels.run_early_hand_back, 1), range(16))
    assert {one.kind for one in wrong.reports} == {DEADLOCK} and wrong.runs == 16
    assert not check(partial(kernels.run_early_hand_back, 0), range(16)).reports
