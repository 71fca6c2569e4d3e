"""grouped_matmul and its gradients against fp64, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from benchmarks.workloads.matmul_grouped import GroupedMatmulWorkload
from tests.kernels.interpreted import Errors, Worker, measure, strided


@dataclass(frozen=True, kw_only=True)
class Case:
    offsets: tuple[int, ...] = (0, 30, 30, 75, 80)
    total: int = 80
    N: int = 50
    K: int = 40
    dtype: str = "float16"
    a_view: str = "contiguous"
    b_view: str = "contiguous"

    def __str__(self) -> str:
        ends = ",".join(map(str, self.offsets))
        views = [] if self.a_view == self.b_view == "contiguous" else [self.a_view, self.b_view]
        return "-".join([self.dtype, f"{self.total}x{self.N}x{self.K}", ends, *views])

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        kind = getattr(torch, self.dtype)
        a = strided((self.total, self.K), self.a_view, kind, 1)
        b = strided((len(self.offsets) - 1, self.K, self.N), self.b_view, kind, 2)
        return a, b, torch.tensor(self.offsets, dtype=torch.int32)

    def plain(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Rows after the last group are 0."""
        parts = [a[first:end] @ b[g] for g, (first, end) in enumerate(pairwise(self.offsets))]
        rest = a.new_zeros((self.total - self.offsets[-1], self.N))
        return torch.cat([*parts, rest])


BASE = Case()
CASES = [
    *(replace(BASE, dtype=dtype) for dtype in ("float16", "bfloat16", "float32")),
    replace(BASE, offsets=(0, 80)),
    replace(BASE, offsets=(0, 0, 0, 80, 80)),
    replace(BASE, offsets=(0, 5, 33, 70)),
    replace(BASE, offsets=tuple(range(0, 41, 5)), total=40),
    replace(BASE, offsets=(0, 1, 2, 3), total=3, N=1, K=1),
    replace(BASE, a_view="transposed", b_view="transposed", N=33, K=65),
    replace(BASE, a_view="padded", b_view="skipping"),
]


def run(case: Case) -> list[Errors]:
    """Of the output and both gradients, for a gradient of the output in memory order of its own."""
    import kernels

    given = case.tensors()
    offsets = given[2]
    dout = strided((case.total, case.N), case.a_view, given[0].dtype, 3)

    def results(kind: torch.dtype | None) -> list[torch.Tensor]:
        leaves = [one.detach().to(kind or one.dtype).requires_grad_() for one in given[:2]]
        out = kernels.grouped_matmul(*leaves, offsets) if kind is None else case.plain(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, dout.to(out.dtype))]

    triple = zip(results(None), results(given[0].dtype), results(torch.float64), strict=True)
    return [measure(*each) for each in triple]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_groups_and_their_gradients_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, names=("out", "da", "db"))


def run_rows_of_no_group() -> tuple[torch.Tensor, ...]:
    import kernels

    case = replace(BASE, offsets=(0, 5, 33, 70))
    a, b, offsets = case.tensors()
    a.requires_grad_()
    b[1] = float("nan")  # a group's matrix reaches its own rows alone
    out = kernels.grouped_matmul(a, b, offsets)
    (da,) = torch.autograd.grad(out, a, torch.ones_like(out))
    none = kernels.grouped_matmul(a.detach(), b[:0], offsets[:1])
    empty = kernels.grouped_matmul(a.detach()[:0], b, torch.zeros_like(offsets))
    return out.detach(), da, none, empty


def test_rows_of_no_group_are_zero_and_groups_are_apart(interpreter: Worker) -> None:
    out, da, none, empty = interpreter.run(run_rows_of_no_group)
    for found in (out, da):
        assert torch.equal(found[70:], torch.zeros_like(found[70:]))
        assert found[5:33].isnan().all()
        assert found[:5].isfinite().all() and found[33:].isfinite().all()
    assert torch.equal(none, torch.zeros(80, 50, dtype=none.dtype)) and empty.shape == (0, 50)


def run_autocast() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import kernels

    a, b, offsets = replace(BASE, dtype="float32").tensors()
    b.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = kernels.grouped_matmul(a, b, offsets)
    (db,) = torch.autograd.grad(out.float().sum(), b)
    return out.detach(), kernels.grouped_matmul(a.bfloat16(), b.detach().bfloat16(), offsets), db


def test_autocast_lowers_rows_and_matrices(interpreter: Worker) -> None:
    out, want, db = interpreter.run(run_autocast)
    assert out.dtype == torch.bfloat16 and db.dtype == torch.float32
    assert torch.equal(out, want)


def run_wrong_offsets(offsets: list[int]) -> list[torch.Tensor]:
    import kernels

    room = torch.full((60, 16), float("nan"))
    room[20:40] = 1.0
    table = torch.tensor(offsets, dtype=torch.int32)
    a, b = room[20:40].requires_grad_(), torch.ones(3, 16, 8, requires_grad=True)
    out = kernels.grouped_matmul(a, b, table)
    return [out.detach(), *torch.autograd.grad(out, (a, b), torch.ones_like(out))]


@pytest.mark.parametrize("offsets", [[0, 50, 10, 99], [0, -7, 25, 2**31 - 1]])
def test_wrong_offsets_reach_no_row_outside(interpreter: Worker, offsets: list[int]) -> None:
    out, _, db = interpreter.run(run_wrong_offsets, offsets)
    # Rows are read from a alone; which of them are written is not promised.
    assert set(out[out.isfinite()].tolist()) <= {0.0, 16.0}
    assert db.isfinite().all() and db.max() <= 20.0


def run_operators() -> tuple[dict[str, str], dict[str, str], bool]:
    import kernels.public

    case = Case(offsets=(0, 3, 3, 9), total=10, N=8, K=16, dtype="float32")
    a, b, offsets = case.tensors()
    dout = strided((10, 8), "contiguous", torch.float32, 3)

    def model(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return kernels.grouped_matmul(a, b, offsets) * 2.0

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(a, b, offsets)
    alike = torch.equal(compiled, model(a, b, offsets))
    a, b, dout = (one.requires_grad_() for one in (a, b, dout))
    operators = torch.ops.warpwatch
    first = torch.library.opcheck(operators.grouped_matmul, (a, b, offsets))
    second = torch.library.opcheck(operators.grouped_matmul_weights, (a, dout, offsets))
    return first, second, alike


def run_twice() -> list[Errors]:
    """Second gradients of sums weighted at random: thousands of values whose roundings have
    nothing in common, so their RMS does not scatter."""
    import kernels

    case = replace(BASE, offsets=(0, 30, 30, 75), dtype="float32")
    a, b, offsets = case.tensors()
    dout = strided((case.total, case.N), "contiguous", torch.float32, 3)
    weights = [strided(tuple(one.shape), "contiguous", torch.float32, 4) for one in (a, b)]

    def twice(kind: torch.dtype | None) -> tuple[torch.Tensor, ...]:
        leaves = [one.detach().to(kind or one.dtype).requires_grad_() for one in (a, b, dout)]
        factors = leaves[:2]
        out = kernels.grouped_matmul(*factors, offsets) if kind is None else case.plain(*factors)
        da, db = torch.autograd.grad(out, factors, leaves[2], create_graph=True)
        wa, wb = (one.to(da.dtype) for one in weights)
        return torch.autograd.grad((da * wa).sum() + (db * wb).sum(), leaves)

    triple = zip(twice(None), twice(torch.float32), twice(torch.float64), strict=True)
    return [measure(*each) for each in triple]


def test_operators_pass_opcheck_and_compile(interpreter: Worker) -> None:
    first, second, alike = interpreter.run(run_operators)
    assert set(first.values()) == set(second.values()) == {"SUCCESS"}
    assert alike


def test_second_gradients_match_fp64(interpreter: Worker) -> None:
    interpreter.check(run_twice, names=("a", "b", "dout"))


def test_workload_counts_the_groups_it_reads() -> None:
    shape: dict[str, Any] = {"dtype": "fp32", "total": 60, "groups": 4, "N": 5, "K": 7}
    case = GroupedMatmulWorkload(group="test", **shape)
    assert case.offsets == (0, 30, 50, 60, 60)
    assert case.flops == 2 * 60 * 5 * 7
    assert case.bytes_moved == 4 * (60 * 12 + 3 * 35) + 4 * 5
    made = case.inputs("cpu", seed=3)
    want = torch.cat([made["a"][:30] @ made["b"][0], made["a"][30:50] @ made["b"][1]])
    assert torch.allclose(case.reference(made)[:50], want)
    gradient = GroupedMatmulWorkload(group="test", weights=True, **shape)
    given = gradient.inputs("cpu", seed=3)
    db = gradient.reference(given, "float64")
    assert db.shape == (4, 7, 5) and not db[3].any()
    assert torch.allclose(db[2], given["a"][50:].double().t() @ given["dout"][50:].double())
