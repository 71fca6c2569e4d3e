"""What can be taken away of a kernel is found, and told by a case that reaches it."""

from __future__ import annotations

from tests.gluon.matmul_cases import Case
from tests.kernels.interpreted import Worker
from tools.gluon import mutants, taken_away


def run_without_its_parts() -> dict[str, str]:
    """What tells each change of the last block of an odd number, beside those of pairs."""
    from kernels.matmul.hopper.fp8.block_scales import _add_one
    from kernels.matmul.hopper.fp8.launch import Fp8HopperConfig

    products = [one for one in mutants.calls() if isinstance(one.case, Case) and one.case.K == 600]
    every = [one for one in products if isinstance(one.case.config, Fp8HopperConfig)]
    assert {one.case.out for one in every} == {"float16", "float32"}
    wrong = mutants.reach(every, [_add_one.fn])
    assert not wrong, wrong
    return {one.what: mutants.judged(one, every, 1) for one in taken_away.mutants_of(_add_one.fn)}


def test_what_is_taken_away_of_a_function_is_told(worker: Worker) -> None:
    wait = "mbarrier.wait(ring.full.index(at.stage), at.phase"
    found = worker.run(run_without_its_parts)
    assert list(found) == [
        f"no {wait})",
        "no at = at.next()",
        f"no {wait}, pred=more)",
        f"{wait}, pred=more) in any case",
        "warpgroup_mma_wait(0, deps=[pending]) of 1",
        "no mbarrier.arrive(ring.empty.index(used))",
    ]
    assert all("Error: " in told for told in found.values()), found


def run_unreached() -> set[str]:
    from kernels.matmul.hopper.persistent import _fill

    return {mutants.judged(one, [], 1) for one in taken_away.mutants_of(_fill.fn)}


def test_what_no_case_reaches_is_told_apart(worker: Worker) -> None:
    assert worker.run(run_unreached) == {mutants.NOT_REACHED}
