"""How often loops run, which only the launch decides: exactly, or said to be unknown."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from warpwatch.config import targets
from warpwatch.instruments.compiled.bound import source, trip_counts
from warpwatch.instruments.compiled.record.call import record


def evaluated(call: Any, target: str = "sm_90") -> tuple[list[float], list[str]]:
    """Runs of each loop of the last launch, and what the evaluation notes."""
    launch = record(call, targets.get(target)).launches[-1]
    found = source.of_launch(launch)
    body, visited = found.function.body, found.visited
    loops = [op.regions[-1] for op in body.walk() if op.name in ("scf.for", "scf.while")]
    return [visited.total[region] for region in loops], visited.notes


def loop_runs(call: Any, target: str = "sm_90") -> list[float]:
    runs, notes = evaluated(call, target)
    assert notes == []
    return runs


@triton.jit
def sum_rows(x, lengths, out, stride, N: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(lengths + row)
    if length == 0:
        return
    total = tl.zeros([N], tl.float32)
    for i in range(0, length, N):
        o = i + tl.arange(0, N)
        total += tl.load(x + row * stride + o, mask=o < length, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


def test_loop_bounds_are_read_from_small_tables_in_memory() -> None:
    lengths = torch.tensor([0, 1, 128, 129, 1000], dtype=torch.int32)

    def call() -> None:
        x = torch.empty(5, 1024)
        sum_rows[(5,)](x, lengths, torch.empty(5), 1024, N=128)

    assert sum(loop_runs(call)) == 0 + 1 + 1 + 2 + 8


class Table(NamedTuple):
    """A tensor, perhaps, with its strides and the sequences that it is for."""

    scales: torch.Tensor | None
    lengths: torch.Tensor
    strides: tuple[int, int]
    sequences: int


@triton.jit
def sum_rows_of_tuple(x, table, out, N: tl.constexpr):
    total = tl.zeros([N], tl.float32)
    for row in range(tl.program_id(0), table.sequences, tl.num_programs(0)):
        for i in range(0, tl.load(table.lengths + row * table.strides[0]), N):
            total += tl.load(x + i * table.strides[1] + tl.arange(0, N))
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def test_members_of_a_tuple_are_read_as_other_arguments_are() -> None:
    lengths = torch.tensor([0, 1, 128, 129, 1000, 7], dtype=torch.int32)

    def call() -> None:
        x = torch.empty(5, 1024)
        table = Table(None, lengths[::2], (2, 1), 3)  # None and 1 are constants to Triton
        sum_rows_of_tuple[(3,)](x, table, torch.empty(5), N=128)

    assert loop_runs(call) == [3, 0 + 1 + 8]


@triton.jit
def persistent(x, tiles, width, N: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        for i in range(0, (tile % 3) * width, N):
            o = tile * width + i + tl.arange(0, N)
            tl.store(x + o, tl.load(x + o) + 1)


def test_inner_bounds_may_depend_on_outer_loops() -> None:
    def call() -> None:
        persistent[(4,)](torch.empty(10 * 1024), 10, 1024, N=256)

    runs = loop_runs(call, "gfx942")
    assert runs[0] == 10
    assert runs[-1] == sum((tile % 3) * 4 for tile in range(10))


@triton.jit
def one_loop_of_all_steps(x, tiles, N: tl.constexpr):
    steps = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        steps += tile % 3
    for i in range(steps):
        o = i * N + tl.arange(0, N)
        tl.store(x + o, tl.load(x + o) + 1)


def test_a_bound_may_be_a_sum_over_a_loop() -> None:
    def call() -> None:
        one_loop_of_all_steps[(4,)](torch.empty(10 * 1024), 10, N=256)

    assert loop_runs(call) == [10, sum(tile % 3 for tile in range(10))]


@triton.jit
def halving(x, n, N: tl.constexpr):
    width = n
    while width > 1:
        o = tl.arange(0, N)
        tl.store(x + width + o, tl.load(x + o) * 2)
        width = width // 2


def test_while_loops_are_followed() -> None:
    assert loop_runs(lambda: halving[(3,)](torch.empty(4096), 1000, N=64))[-1] == 3 * 9


@triton.jit
def count_down(x, n, N: tl.constexpr):
    while n > 0:
        tl.store(x + tl.arange(0, N), n)
        n -= 1


def test_a_loop_that_is_too_long_to_follow_says_so() -> None:
    runs, notes = evaluated(lambda: count_down[(1,)](torch.empty(64), 5000, N=64))
    assert runs == [trip_counts.ITERATIONS]
    assert notes == ["a loop had not ended after 4096 iterations: what follows is not counted"]


@triton.jit
def long_rows(x, rows, width, N: tl.constexpr):
    for row in range(rows):
        for i in range(0, width, N):
            tl.store(x + row * width + i + tl.arange(0, N), 1.0)


def test_of_a_counted_loop_the_rest_goes_on_like_its_start() -> None:
    runs, notes = evaluated(lambda: long_rows[(2,)](torch.empty(64), 10000, 256, N=64))
    assert runs == [2 * 10000, 2 * 10000 * 4]
    assert notes == ["a loop of 10000 iterations was followed for 4096"]


# Tables in memory ---------------------------------------------------------------------------------


@triton.jit
def rows_of(x, table, out, stride, count, N: tl.constexpr):
    """Programs beyond the table find 1 there."""
    row = tl.program_id(0)
    length = tl.load(table + row * stride, mask=row < count, other=1)
    for i in range(0, length):
        tl.store(out + tl.arange(0, N), tl.load(x + i + tl.arange(0, N)))


def launch_rows_of(table: torch.Tensor, stride: int = 1, count: int = 0, programs: int = 0) -> None:
    count = count or table.shape[0]
    x = torch.empty(1 << 12)
    rows_of[(programs or count,)](x, table, torch.empty_like(x), stride, count, N=64)


def test_a_table_is_read_by_the_strides_of_the_kernel() -> None:
    table = torch.arange(12, dtype=torch.int32).reshape(4, 3)
    assert loop_runs(lambda: launch_rows_of(table[:, 1], stride=3)) == [1 + 4 + 7 + 10]
    # The same numbers, but each row lies beside the next.
    assert loop_runs(lambda: launch_rows_of(table.t()[1:2].t(), stride=3)) == [1 + 4 + 7 + 10]
    assert loop_runs(lambda: launch_rows_of(table[2:], stride=1, count=3)) == [6 + 7 + 8]


def test_a_masked_load_finds_what_it_is_told_to() -> None:
    table = torch.tensor([5, 6], dtype=torch.int64)
    assert loop_runs(lambda: launch_rows_of(table, programs=5)) == [5 + 6 + 3 * 1]


def test_beyond_its_end_a_table_is_unknown() -> None:
    table = torch.tensor([5, 6], dtype=torch.int32)
    runs, notes = evaluated(lambda: launch_rows_of(table, count=4))
    assert runs == [5 + 6 + 2 * 1]
    assert notes == ["a loop bound depends on data: one iteration is assumed"]


UNKNOWN = (1.0 * 3, ["a loop bound depends on data: one iteration is assumed"])


def test_a_table_that_torch_makes_of_known_lengths_is_computed() -> None:
    lengths = torch.tensor([3, 0, 4], dtype=torch.int32)

    def call() -> None:
        ends = torch.empty(4, dtype=torch.int32, device="cuda")
        ends[:1] = 0
        torch.cumsum(lengths, 0, out=ends[1:])
        launch_rows_of(ends)

    assert loop_runs(call) == [0 + 3 + 3 + 7]


def scores_to_lengths(scores: torch.Tensor) -> torch.Tensor:
    """As a router does: how many rows each of three experts is given."""
    return torch.bincount(scores.argmax(1), minlength=3)[:3].to(torch.int32)


@triton.jit
def fill(table, N: tl.constexpr):
    tl.store(table + tl.arange(0, N), 7)


def unknown_tables() -> dict[str, Any]:
    def never_written() -> torch.Tensor:
        return torch.empty(3, dtype=torch.int32, device="cuda")

    def partly_written() -> torch.Tensor:
        table = never_written()
        table[1:].fill_(2)
        return table[:1].expand(3)

    def by_a_kernel() -> torch.Tensor:
        table = torch.zeros(4, dtype=torch.int32, device="cuda")
        fill[(1,)](table, N=4)
        return table[:3]

    def by_a_kernel_and_then_torch() -> torch.Tensor:
        return by_a_kernel() + 1

    def of_scores() -> torch.Tensor:
        return scores_to_lengths(torch.empty(8192, 3, device="cuda"))

    return {
        one.__name__: one
        for one in (
            never_written,
            partly_written,
            by_a_kernel,
            by_a_kernel_and_then_torch,
            of_scores,
        )
    }


@pytest.mark.parametrize("made", unknown_tables())
def test_a_table_of_values_nobody_computed_is_unknown(made: str) -> None:
    table = unknown_tables()[made]
    runs, notes = evaluated(lambda: launch_rows_of(table(), stride=0, count=3))
    assert (sum(runs), notes) == UNKNOWN


@triton.jit
def writes_its_own_table(table, out, N: tl.constexpr):
    tl.store(table, 100)
    for i in range(0, tl.load(table)):
        tl.store(out + i + tl.arange(0, N), 1.0)


def test_a_table_the_kernel_writes_itself_is_unknown() -> None:
    table = torch.zeros(3, dtype=torch.int32)
    runs, notes = evaluated(lambda: writes_its_own_table[(3,)](table, torch.empty(64), N=64))
    assert (sum(runs), notes) == UNKNOWN


@triton.jit
def skip_by_table(table, out, N: tl.constexpr):
    if tl.load(table + tl.program_id(0)):
        for i in range(0, 5):
            tl.store(out + i + tl.arange(0, N), tl.load(out + N * i + tl.arange(0, N)))


def test_a_branch_on_a_table_is_known_program_by_program() -> None:
    wanted = torch.tensor([True, False, True, False])
    assert loop_runs(lambda: skip_by_table[(4,)](wanted, torch.empty(4096), N=64)) == [2 * 5]
