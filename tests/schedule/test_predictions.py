"""Predicted clocks of real kernels: near what a card counted, and moved by what moves a card."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tools.root import ROOT
from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled.bound import source
from warpwatch.instruments.compiled.formats.recording import DescriptorArgument, TensorArgument
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.instruments.compiled.record.call import record
from warpwatch.instruments.compiled.schedule import controls, parts, pipes, prediction

HOPPER = targets.get("sm_90")
# Of a call that this repository's kernels make: how far a prediction was from the counter.
NEAR = 0.2


@cache
def counted(workload: str) -> float:
    """Clocks that an SM was at work, by the newest published reading."""
    found: list[tuple[int, float]] = []
    for file in (ROOT / "reports" / "published" / "h200").glob("*-kernels-*.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        for name, row in document["results"].items():
            cells = dict(zip(document["result_columns"], row, strict=False))
            if name.endswith("track_sm_cycles") and cells["result"]:
                values = zip(cells["params"][0], cells["result"], strict=True)
                found += [(document["date"], one) for key, one in values if key == repr(workload)]
    return max(one for one in found if one[1] == one[1])[1]


@pytest.mark.parametrize(
    "workload",
    [
        "matmul-fp16-4096x4096x4096",
        "matmul-fp16-1000x1000x1000",
        "attention-bf16-B2-S4096-H32-D128",
        "attention-backward-bf16-B4-S4096-H8-D256-causal",
        "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal",
    ],
)
def test_is_near_what_a_card_counted(workload: str) -> None:
    """Of kernels that are as they were when they were counted."""
    found = measure(configuration.workloads().get(workload), HOPPER)
    assert found.status == "ok", found.detail
    evidence: Any = found.evidence
    predicted = evidence["predicted"]
    assert len(predicted) == len(evidence["launches"])
    clocks = sum(one["clocks"] for one in predicted)
    assert clocks == pytest.approx(counted(workload), rel=NEAR)
    assert all(one["sure"] for one in predicted)


def test_only_machines_that_the_model_knows_have_one() -> None:
    found = measure(
        configuration.workloads().get("matmul-fp16-1000x1000x1000"), targets.get("sm_80")
    )
    assert found.status == "ok" and found.evidence["predicted"] == []


@triton.jit
def softmax_like(x, out, N: tl.constexpr, TIMES: tl.constexpr, SLOW: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + at)
    for _ in range(TIMES):
        value = tl.exp2(value * 0.5)
        if SLOW:
            value = tl.sqrt(value * 0.5)
    tl.store(out + at, value)


def read(times: int, *, slow: bool = False, programs: int = 132) -> reading.Reading:
    def call() -> None:
        x = torch.empty(programs * 1024, device="cuda")
        softmax_like[(programs,)](x, torch.empty_like(x), 1024, times, slow)

    recording = record(call, HOPPER)
    assert recording.failures == ()
    (found,) = reading.read(recording.launches)
    return found


def clocks(times: int, **given: Any) -> float:
    found = read(times, **given).prediction
    assert found is not None
    return found.clocks


def test_grows_with_what_a_loop_does_and_how_often() -> None:
    once, twice = clocks(500), clocks(1000)
    assert twice - once == pytest.approx(once, rel=0.1)
    assert clocks(500, slow=True) > 1.5 * once


def test_special_functions_take_at_least_what_their_unit_needs() -> None:
    found = read(1000)
    assert found.prediction is not None
    least = 1000 * 1024 / devices.load("h200").special_per_clock
    assert least <= found.prediction.clocks < 3 * least
    whole = found.prediction.clocks + found.prediction.idle
    assert found.prediction.us == pytest.approx(whole / 1.83e3)
    assert sum(found.prediction.parts.values()) == pytest.approx(found.prediction.clocks)


def test_more_programs_than_fit_take_longer_and_few_leave_sms_idle() -> None:
    full = clocks(500)
    assert clocks(500, programs=132 * 64) > 3 * full
    assert clocks(500, programs=66) == pytest.approx(full / 2, rel=0.1)


def test_the_last_blocks_leave_other_multiprocessors_without_work() -> None:
    half, full, one_more = (read(500, programs=count).prediction for count in (66, 132, 133))
    assert half is not None and full is not None and one_more is not None
    assert half.us == pytest.approx(full.us, rel=0.1) and full.idle < 0.05 * full.clocks
    assert half.idle == pytest.approx(half.clocks, rel=0.1)
    # One SM has two blocks, which run at the same time.
    assert one_more.us > one_more.clocks / 1.83e3


@triton.jit
def chase(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's
    value = tl.arange(0, N)
    for _ in tl.static_range(8):
        value = tl.load(x + value)
    tl.store(out + tl.program_id(0) * N + tl.arange(0, N), value)


def chased(programs: int) -> prediction.Prediction:
    def call() -> None:
        x = torch.empty(1024, dtype=torch.int32, device="cuda")
        chase[(programs,)](x, torch.empty(programs * 1024, dtype=torch.int32, device="cuda"), 1024)

    (found,) = reading.read(record(call, HOPPER).launches)
    assert found.occupancy.blocks == 16 and found.prediction is not None
    return found.prediction


def test_a_second_wave_takes_time_also_where_memory_limits_the_launch() -> None:
    one, two = chased(16 * 132), chased(17 * 132)
    assert one.limited_by == two.limited_by == "memory"
    assert one.idle == 0
    # Each wave is as long as its blocks, which wait for one load after the other.
    assert two.clocks + two.idle == pytest.approx(2 * two.parts["ends"], rel=0.05)
    assert two.us > 1.1 * one.us


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_longest_block_ends_as_fast_as_it_runs_by_itself(share: float) -> None:
    # Four blocks at once on each of 100 SMs; the longest runs twice as often as the mean.
    run = prediction._Run({"issue": 4000.0}, 8000.0, 8000.0 * share)
    assert prediction._last_block(400, 100, 4, run, 0.0) == pytest.approx(max(8000.0 * share, 4e3))
    # Of blocks that are alike one is left over: it has an SM to itself.
    run = prediction._Run({"issue": 4010.0}, 4000.0, 4000.0 * share)
    whole = prediction._last_block(401, 100, 4, run, 0.0)
    assert whole == pytest.approx(4000.0 * (1.0 + share), rel=0.01)


def played(found: reading.Reading) -> tuple[list[parts.Part], tuple[int, ...]]:
    return parts.of_launch(found.launch, found.code.program, source.of_launch(found.launch))


def test_a_plain_kernel_plays_one_part() -> None:
    (part,), before = played(read(500))
    assert before == () and part.warps == 4
    (loop,) = part.loops
    assert loop.is_inner and loop.runs.most * len(loop.way) > 500


def test_specialised_warps_are_told_apart() -> None:
    workload = configuration.workloads().get("matmul-fp16-4096x4096x4096")
    recording = record(workload.call, HOPPER, inputs=lambda: workload.inputs("cpu", values="none"))
    (found,) = reading.read(recording.launches)
    parts_played, before = played(found)
    assert before
    multiply = [part for part in parts_played if any(loop.products for loop in part.loops)]
    feed = [part for part in parts_played if part not in multiply]
    assert [part.warps for part in multiply] == [4, 4]
    assert [part.warps for part in feed] == [1]
    # Each goes to its own code, and back to the table: nobody runs that of another.
    ways = [set(before), *(set(part.once) for part in parts_played)]
    assert sum(map(len, ways)) == len(set().union(*ways))
    for part in multiply:
        inner = [loop for loop in part.loops if loop.is_inner and loop.products]
        # 4096 cubed in tiles of 128 x 256 and steps of 64; each part has half the rows of a tile.
        assert sum(loop.runs.total for loop in inner) == 4096**3 / (128 * 256 * 64)


@triton.jit
def over_tiles(x, out, tiles, rounds, N: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's
    for i in range(rounds):
        tile = tl.program_id(0) + i * tl.num_programs(0)
        if tile < tiles:
            at = tile * N + tl.arange(0, N)
            value = tl.load(x + at)
            for _ in tl.static_range(16):
                value = tl.exp2(value * 0.5)
            for _ in range(rounds):
                value = tl.sqrt(value)
            tl.store(out + at, value)


def test_a_round_without_a_tile_takes_no_time() -> None:
    def clocks_of(tiles: int) -> float:
        def call() -> None:
            x = torch.empty(8 * 132 * 1024, device="cuda")
            over_tiles[(132,)](x, torch.empty_like(x), tiles, 8, 1024)

        (found,) = reading.read(record(call, HOPPER).launches)
        assert found.prediction is not None
        (part,), _ = played(found)
        outer = max(part.loops, key=lambda loop: len(loop.way))
        assert (outer.runs.total, outer.whole_runs) == (8 * 132, tiles)
        return sum(found.prediction.parts.values()) - found.prediction.parts["ends"]

    assert clocks_of(528) == pytest.approx(clocks_of(1056) / 2, rel=0.1)


def test_controls_are_read_from_every_instruction() -> None:
    found = read(10)
    listed = controls.of_cubin(found.launch.kernel.binary)
    assert len(listed) == len(found.code.program.instructions)
    loads = [
        control
        for one, control in zip(found.code.program.instructions, listed, strict=True)
        if one.opcode.startswith("LDG")
    ]
    # What is loaded is written at a time that nobody knows: it has a scoreboard, which the
    # conversion or product that uses it waits for.
    assert loads and all(one.written is not None for one in loads)
    waited = {board for one in listed for board in one.waits}
    assert {one.written for one in loads} <= waited
    assert all(0 <= one.stall < 16 for one in listed)
    with pytest.raises(ValueError, match="ELF"):
        controls.of_cubin(b"no cubin")


def test_rows_that_begin_anywhere_touch_more_lines() -> None:
    def lines(stride: int, rows: int = 64) -> float:
        base = TensorArgument("float16", (1000, stride), (stride, 1), 2 * 1000 * stride, 0)
        tile = DescriptorArgument(base, (1000, stride), (stride, 1), (rows, 64))
        return prediction._lines({"a": 1}, {"a": tile})

    assert lines(1024) == 1
    assert lines(1000) == 15 / 8  # one row of eight begins a line
    assert lines(1000, rows=1) == 1
    assert prediction._lines({}, {}) == 1


def test_every_pipe_has_a_name() -> None:
    assert len(pipes.NAMES) == pipes.PIPES == len(set(pipes.NAMES))
