"""The interpreter of Gluon finds what is wrong with a kernel, in whichever order it runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import triton.language as tl

from tests.gluon.faults import FAULTS, run
from tests.gluon.interpreter import hopper_on_the_cpu
from tests.kernels.interpreted import Worker
from warpwatch.simulator.errors import MisuseError, RaceError
from warpwatch.simulator.machine import engines
from warpwatch.simulator.machine.barriers import Barrier
from warpwatch.simulator.machine.global_memory import Pointer, Storage
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.machine.races import Cells, Partition
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.machine.shared_memory import Shared
from warpwatch.simulator.words import standard


@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name or "none")
def test_a_fault_is_told_in_every_order(worker: Worker, fault: str) -> None:
    for seed in range(8):
        told = worker.run(run, fault, seed)
        assert re.search(FAULTS[fault], told) if fault else not told, (seed, told)


def run_first_call() -> list[str]:
    import kernels

    a, b = torch.randn(512, 32), torch.randn(32, 64)
    with hopper_on_the_cpu() as launches:
        found = kernels.matmul(a, b, allow_tf32=True)
    torch.testing.assert_close(found, a @ b, rtol=0.0, atol=0.1)
    return launches.kernels


def test_a_kernel_may_be_imported_while_it_is_interpreted() -> None:
    worker = Worker()  # which has imported none
    try:
        assert worker.run(run_first_call) == ["matmul_hopper"]
    finally:
        worker.close()


def _two() -> tuple[Program, Partition, Partition, Cells, Region, Barrier]:
    program = Program((0, 0, 0), (1, 1, 1), 4, seed=0)
    other = Partition(1, "the other", 4, program.name_of)
    cells = Cells("some memory", 4)
    whole = cells.region(np.arange(4))
    return program, program.now, other, cells, whole, Barrier(8, 1, "a barrier")


@pytest.mark.parametrize("late", [False, True])
def test_a_fence_counts_for_whom_it_was_let_on_behind(late: bool) -> None:
    program, one, other, cells, whole, barrier = _two()
    cells.writes(whole, one, [])
    if late:
        barrier.arrive(one)
        program.fence()
    else:
        program.fence()
        barrier.arrive(one)
    barrier.learn(other, 0)
    told = cells.objection(whole, other, engine=True)
    assert ("without fence_async_shared" in str(told)) == late


def test_who_waits_for_a_phase_knows_nothing_of_later_ones() -> None:
    """A barrier may be two phases on when a waiter looks: in another order it is not."""
    _, one, other, cells, whole, barrier = _two()
    barrier.arrive(one)
    cells.writes(whole, one, [])
    barrier.arrive(one)
    barrier.arrive(one)
    barrier.learn(other, 0)
    assert "not knowing" in str(cells.objection(whole, other, engine=False))
    barrier.learn(other, 1)
    assert cells.objection(whole, other, engine=False) is None


def test_hardware_does_not_write_over_a_store_without_a_fence() -> None:
    program, one, _, cells, whole, barrier = _two()
    cells.writes(whole, one, [])
    with pytest.raises(RaceError, match="without fence_async_shared"):
        cells.writes(whole, one, [], told=(barrier.somebody, 1))
    program.fence()
    cells.writes(whole, one, [], told=(barrier.somebody, 1))


def test_what_a_thread_asked_for_is_there_when_its_group_was_waited_for() -> None:
    program = Program((0, 0, 0), (1, 1, 1), 4, seed=0)
    values = torch.arange(8, dtype=torch.float32)
    storage = Storage(values)
    pointer = Pointer((storage,), storage.first, tl.float32) + standard.arange(0, 8)
    first, second = (Shared.allocate(program, tl.float32, [8]) for _ in range(2))
    engines.running.append(program)
    try:
        for to in (first, second):
            engines.copy_past_registers(to, pointer, standard.arange(0, 8) < 5)
            engines.commit_group()
        for touch in (first.load, lambda: engines.copy_past_registers(first, pointer)):
            with pytest.raises(RaceError, match="not knowing that the default partition has writ"):
                touch()
        engines.wait_group(1)
        assert first.load().data[:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert np.isnan(first.load().data[5:]).all()  # masked
        with pytest.raises(RaceError):
            second.load()
        with pytest.raises(MisuseError, match="ends while what it asked for"):
            program.leave(program.now)
        engines.wait_group(0)
        second.load()
        program.leave(program.now)
        with pytest.raises(MisuseError, match="expected fp32 of"):
            engines.copy_past_registers(first.slice(0, 4), pointer)
    finally:
        engines.running.pop()
