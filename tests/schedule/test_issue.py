"""One scheduler: what a warp waits for, who goes first, and what an iteration costs."""

from __future__ import annotations

from typing import Any

import pytest

from warpwatch.instruments.compiled.schedule import issue, pipes
from warpwatch.instruments.compiled.schedule.pipes import Step

STALL = 4


def step(**given: Any) -> Step:
    plain: dict[str, Any] = {
        "stall": 1,
        "waits": (),
        "written": None,
        "read": None,
        "pipe": pipes.NONE,
        "busy": 1,
        "latency": 4,
    }
    return Step(**plain | given)


def clocks(*codes: list[Step], times: int = 6, siblings: int = 4) -> list[float]:
    return issue.clocks([issue.Warp(code, times, 0, siblings) for code in codes])


def test_one_instruction_a_clock_goes_to_whichever_warp_is_ready() -> None:
    code = [step(stall=STALL)] * 10
    assert clocks(code) == [10 * STALL]
    # Up to as many warps as an instruction stalls, others fill its clocks; then they share them.
    assert clocks(*[code] * STALL) == [10 * STALL] * STALL
    assert clocks(*[code] * 2 * STALL) == pytest.approx([2 * 10 * STALL] * 2 * STALL, rel=0.05)


def test_a_scoreboard_holds_a_warp_until_the_result_is_there() -> None:
    load = step(written=2, latency=300)
    assert clocks([load, step(waits=(2,))]) == [301]
    assert clocks([load, *[step()] * 400, step(waits=(2,))]) == [402]
    assert clocks([load, step(waits=(1,))]) == [2]


def test_code_that_runs_once_ends_with_the_last_result() -> None:
    assert clocks([step(written=0, latency=500), step()], times=1) == [500]
    assert clocks([], times=1) == [0]


def test_a_pipe_that_is_busy_holds_all_that_want_it_and_nobody_else() -> None:
    special = [step(pipe=pipes.XU, busy=8)] * 5
    assert clocks(special) == [40]
    both = clocks(special, special)
    assert both == [80, 80]
    mixed = clocks(special, [step()] * 40)
    assert mixed[0] == pytest.approx(40, abs=1) and mixed[1] < 50


def test_memory_instructions_queue_before_they_hold_a_warp() -> None:
    copy = step(pipe=pipes.SHARED, busy=16)
    few = [*[copy] * 3, *[step()] * 100]
    assert clocks(few) == [103]
    assert clocks([copy] * 20) == [320]


def test_warps_meet_at_a_barrier() -> None:
    meets = step(action=pipes.SYNC, number=1, threads=256, latency=20)
    slow, fast = [meets, *[step()] * 200], [meets, step()]
    found = clocks(slow, fast)
    assert found[0] == found[1] == pytest.approx(221, abs=3)
    # Only those of one block meet.
    blocks = [(slow, 0), (fast, 0), (fast, 1), (fast, 1)]
    apart = issue.clocks([issue.Warp(code, 6, block, 8) for code, block in blocks])
    assert apart[0] == apart[1] == pytest.approx(221, rel=0.2)
    assert apart[2] == apart[3] < 40


def test_one_warp_says_that_it_has_been_there_and_goes_on() -> None:
    says = [step(action=pipes.ARRIVE, number=3, threads=256), *[step()] * 50]
    waits = [step(action=pipes.SYNC, number=3, threads=256, latency=20), step()]
    found = clocks(says, waits)
    assert found[0] == pytest.approx(51, abs=2)
    assert found[1] == pytest.approx(found[0], abs=2)


def test_a_barrier_that_nobody_else_comes_to_does_not_hang() -> None:
    assert clocks([step(action=pipes.SYNC, number=5, threads=256, latency=20)])[0] >= 0


def test_products_run_beside_the_warp_until_it_waits_for_them() -> None:
    product = step(pipe=pipes.TENSOR, busy=128, latency=30, action=pipes.PRODUCT, number=1)
    waits = step(action=pipes.PRODUCTS_DONE, number=0)
    assert clocks([product, *[step()] * 100, waits]) == [128 + 30]
    # The products before the last may fly on, while the warp goes on.
    flies = step(action=pipes.PRODUCTS_DONE, number=1)
    assert clocks([product, *[step()] * 100, flies]) == [128]


def test_copies_are_waited_for_by_group() -> None:
    copies = [step(action=pipes.COPY, latency=600), step(action=pipes.COMMIT)]
    assert clocks([*copies, step(action=pipes.COPIES_DONE, number=0)])[0] >= 600
    # Three groups fly at once, and all that is waited for comes at once.
    pipelined = clocks([*copies, step(action=pipes.COPIES_DONE, number=2)], times=14)[0]
    assert pipelined == pytest.approx(600 / 3, rel=0.05)


def test_code_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "_MOST", 100)
    with pytest.raises(ValueError, match="does not come to an end"):
        clocks([step()] * 50)
