"""What the microbenchmarks time, read in their machine code; needs no card."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tools.docs.figures.prediction.constants import FILE
from tools.microbenchmarks import __main__ as program
from tools.microbenchmarks import session
from tools.microbenchmarks.assembled import Region, build
from tools.microbenchmarks.card import chain
from tools.microbenchmarks.programs.benchmark import LATENCY, Benchmark
from tools.microbenchmarks.programs.latencies import integers
from tools.microbenchmarks.programs.suite import benchmarks
from warpwatch import devices
from warpwatch.instruments.compiled.formats.code import Instruction

SUITE = benchmarks()
BY_NAME = {one.name: one for one in SUITE}
# Instructions that a step has in addition to what is timed, by the name of the benchmark.
FURTHER = {
    "F2I, then I2FP": {"I2FP": 1},
    "F2I, rate": {"I2FP": 1},
    "S2R": {"ISETP": 1, "SHF": 1, "SGXT": 1},
    "store's operand read": {"IMAD": 1},
    "STS, then LDS": {"STS": 1},
    "LDS.128, rate": {"IMAD": 0.5, "IADD3": 0.5},
    "LDS.64, rate": {"IMAD": 0.5, "IADD3": 0.5},
    "LDS.32, rate": {"IMAD": 0.5, "IADD3": 0.5},
    "LDG.128, first cache, rate": {"LOP3": 2, "IADD3": 1, "IMAD": 1},
    "LDG.64, first cache, rate": {"LOP3": 1, "IADD3": 1, "IMAD": 1},
}
# What is waited for through memory or a barrier, which registers do not show.
NOT_BY_REGISTERS = re.compile("store's operand|STS|BAR|mbarrier|bulk|wgmma|queue")
REGISTER = re.compile(r"\b(?:UR|UP|R|P)\d+\b")
# Such as the sum of all chains after the last step.
MOST_AROUND = 40
# Of a measured value; most are nearer.
NEAR = 0.07
# A fill of the assembler's, or what the first step needs.
FILL = {"NOP", "S2UR", "UMOV", "ULEA", "S2R"}


def timed(one: Benchmark, found: Counter[str]) -> int:
    return sum(count for opcode, count in found.items() if one.pattern.match(opcode))


def surroundings(one: Benchmark, regions: Mapping[int, Region]) -> list[float]:
    """How many more of what is timed there are than the steps have, for each number of steps."""
    return [timed(one, regions[count].opcodes()) - count * one.each for count in one.counts]


@pytest.mark.sampled(of=5)
@pytest.mark.parametrize("name", BY_NAME)
def test_steps_are_what_stands_between_the_reads_of_the_clock(name: str) -> None:
    one = BY_NAME[name]
    regions = build(one, 90).regions
    *_, before, last = one.counts
    assert surroundings(one, regions) == [surroundings(one, regions)[0]] * len(one.counts)
    assert 0 <= surroundings(one, regions)[0] <= MOST_AROUND
    grown = regions[last].opcodes() - regions[before].opcodes()
    expected = Counter(FURTHER.get(name, {}))
    rest: Counter[str] = Counter()
    for opcode, count in grown.items():
        base = opcode.split(".")[0]
        if not one.pattern.match(opcode) and base not in FILL - set(expected):
            rest[base] += count
    if not name.startswith("bulk copy"):  # each waits in a loop of its own
        assert rest == {key: value * (last - before) for key, value in expected.items()}


def written_and_read(one: Instruction) -> tuple[set[str], set[str]]:
    """Its first operand is what it writes; after a predicate, the second one too."""
    operands = [part.strip() for part in one.operands.split(",")]
    ends = 2 if operands[0].startswith("P") else 1
    written = set(REGISTER.findall(" ".join(operands[:ends])))
    return written, set(REGISTER.findall(" ".join([one.guard, *operands[ends:]])))


CHAINS = [
    one.name for one in SUITE if one.unit == LATENCY and not NOT_BY_REGISTERS.search(one.name)
]


@pytest.mark.sampled(of=5)
@pytest.mark.parametrize("name", CHAINS)
def test_each_instruction_of_a_chain_reads_the_result_before(name: str) -> None:
    one = BY_NAME[name]
    region = build(one, 90).regions[one.count]
    every = [
        each
        for each in region.instructions
        if one.pattern.match(each.opcode) or each.opcode.split(".")[0] in FURTHER.get(name, {})
    ]
    steps = round(one.count * (one.each + sum(FURTHER.get(name, {}).values())))
    assert len(every) >= steps
    broken = [
        f"{a.opcode} {a.operands} | {b.opcode} {b.operands}"
        for a, b in pairwise(every[-steps:])
        if not written_and_read(a)[0] & written_and_read(b)[1]
    ]
    assert broken == []


def test_the_check_sees_steps_that_the_assembler_removed() -> None:
    """Two exchanges of bits are none."""
    removed = integers("xor.b32 r1, r1, r2;", "xor.b32 r1, r1, r2;")
    one = Benchmark("none", "", None, LATENCY, "", "", removed, "LOP3", 2)
    short, long = surroundings(one, build(one, 90).regions)
    assert short != long


def test_values_come_out_of_two_timings() -> None:
    one = BY_NAME["FADD"]
    assert one.value({128: 40 + 128 * 4, 256: 40 + 256 * 4}) == 4
    rate = BY_NAME["FFMA, rate"]  # 16 warps of 32 lanes
    assert rate.value({128: 50 + 128 * 4, 256: 50 + 256 * 4}) == 128
    around = BY_NAME["wgmma m64n256k16 bf16, around it"]
    assert around.value({16: 60 + 16 * 128, 32: 60 + 32 * 128}) == 60
    straight = BY_NAME["straight code of 16 KB"]
    assert straight.value({512: 600, 1024: 2048}) == 2
    queued = BY_NAME["queue of LDS.128"]  # five loads are issued at once, then one in 16 clocks
    clocks = {n: 30.0 + max(0, n - 5) * 16 for n in queued.counts}
    assert queued.value(clocks) == 4 * 16
    with pytest.raises(ValueError, match="128 steps took 9 clocks, 256 took 9"):
        one.value({128: 9, 256: 9})


def test_a_chain_of_pointers_comes_back_after_all_of_it() -> None:
    links = dict(chain("first cache", 4096))
    at, seen = 4096, []
    while at not in seen:
        seen.append(at)
        at = links[at]
    assert at == 4096
    assert sorted(seen) == list(range(4096, 4096 + (16 << 10), 128))
    assert seen != sorted(seen)


HANGS_ONCE = """
import json, pathlib, sys, time
mark = pathlib.Path(sys.argv[1], "began")
print(json.dumps({"card": "none", "architecture": 90}), flush=True)
for line in sys.stdin:
    if line.strip() == "FADD" and not mark.exists():
        mark.touch()
        time.sleep(600)
    print(json.dumps({"clocks": []}), flush=True)
"""


def test_a_benchmark_that_hangs_costs_its_time_only(tmp_path: Path) -> None:
    worker = (sys.executable, "-c", HANGS_ONCE)
    with session.Session(tmp_path, 1.0, worker) as running:
        running.open()
        running.limit = 1.0
        assert running.run(BY_NAME["FADD"]) == {"error": "no answer after 1 s"}
        running.limit = 30.0
        assert running.run(BY_NAME["FFMA"]) == {"clocks": []}


def test_a_process_that_ends_is_a_row_too(tmp_path: Path) -> None:
    ends = 'import sys; print("{}", flush=True); sys.stdin.readline()'
    with session.Session(tmp_path, 30.0, (sys.executable, "-c", ends)) as running:
        answer = running.run(BY_NAME["FADD"])
    assert answer == {"error": "its process ended without an answer"}


KEPT = {row["name"]: row for row in json.loads(FILE.read_text(encoding="utf-8"))["rows"]}
# What the model does not follow, and why.
NOT_FOLLOWED = {
    "store's operand read": "the assembler renames the register, so nothing waits for the read",
    "mma.sync m16n8k16 bf16, 8 warps": "warps that take turns at the tensor core lose a third",
    "mma.sync m16n8k16 fp16, 8 warps": "the same",
    "wgmma m64n256k16 bf16, two warpgroups": "so do warpgroups, by a sixth",
    "wgmma m64n256k32 fp8, two warpgroups": "the same",
    "HFMA2, rate": "launches differ by more than half",
    "VIADD, LOP3, rate": "which pipe takes the sum is not seen",
    "STS.U8, rows of 64, rate": "conflicts of banks need addresses",
    "STS.U8, rows of 128, rate": "the same",
    "queue of LDS.128": "the rate of many warps, of which this has one for each scheduler",
    "queue of LDG.128": "one queue for all memory instructions",
}


def test_kept_rows_have_the_values_in_use() -> None:
    assert set(KEPT) == set(BY_NAME)
    assert {name: row["used"] for name, row in KEPT.items()} == {
        one.name: pytest.approx(one.used) for one in SUITE
    }
    assert all(row["measured"] for row in KEPT.values())


FOLLOWED = [name for name, row in KEPT.items() if row["simulated"] and name not in NOT_FOLLOWED]


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_model_predicts_what_was_measured(name: str) -> None:
    assert KEPT[name]["simulated"] == pytest.approx(KEPT[name]["measured"], rel=NEAR)


@pytest.mark.sampled(of=5)
@pytest.mark.parametrize("name", FOLLOWED)
def test_the_model_still_predicts_what_was_kept(name: str) -> None:
    found = build(BY_NAME[name], 90).simulated(devices.load("h200"))
    assert found == pytest.approx(KEPT[name]["measured"], rel=NEAR)


def test_little_is_not_followed() -> None:
    missed = {
        name
        for name, row in KEPT.items()
        if row["simulated"] and abs(row["simulated"] / row["measured"] - 1) > NEAR
    }
    assert missed == set(NOT_FOLLOWED)


def test_without_a_card_it_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "microbenchmarks.json"
    assert program.main(["--without-card", "--only", "^FADD$", "--out", str(out)]) == 0
    assert "| FADD | _ADDED | clocks |" in capsys.readouterr().out
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert row["simulated"] == pytest.approx(4)
    assert row["measured"] is None
