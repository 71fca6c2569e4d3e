"""What ``ncu`` prints by hand is taken for the calls it was run over, and for no others."""

from __future__ import annotations

import pytest

from tests.instruments.test_counters import HEADER, RECORDED, UNITS, marked, row
from tools.harness import ncu_by_hand as by_hand
from warpwatch.instruments.counters import ncu


def test_a_recorded_log_reads_the_same_by_hand_and_by_ours():
    names = ("matmul", "attention", "matmul @ cublas", "attention @ torch-cudnn")
    log = RECORDED.read_text(encoding="utf-8")
    ours = ncu.combine({name: marked(name, 3) for name in names}, log)
    launches = [one for one in by_hand.parsed(log) if "spin_kernel" not in one[0]]
    found = by_hand.by_workload(launches, by_hand.kernels(ours))
    assert found == {name: pytest.approx(one) for name, one in by_hand.medians(ours).items()}
    printed = by_hand.lines([by_hand.medians(ours)] * 3, [found] * 3)
    assert len(printed) == 1 + 4 * len(names)
    assert printed[1].split()[-3:] == ["+0.00", "0.00", "0.00"]
    with pytest.raises(ValueError, match="12 launches by hand, 9 of ours"):
        by_hand.by_workload(launches, by_hand.kernels({name: ours[name] for name in names[:3]}))
    with pytest.raises(ValueError, match="attention: "):
        by_hand.by_workload(launches, by_hand.kernels({"attention": ours["attention"]}))


def test_calls_of_one_process_are_told_apart_by_the_marks():
    ours, hand, mark = row(1, "k", 2000, 60), row(1, "k", 1000, 50), row(0, "spin_kernel")
    rounds = [mark, ours, hand, hand, mark, ours]
    text = "\n".join([HEADER, UNITS, *rounds, *rounds])
    found = by_hand.by_turns(text, ["a", "b"], 2)
    assert found["a"] == found["b"]
    assert found["a"]["ours"]["sm_cycles"] == [2000, 2000]
    assert found["a"]["by hand"]["tensor_pipe"] == [50, 50]
    line = by_hand.lines_by_turns(found)[1]
    assert line.split()[-5:] == ["60.00", "50.00", "+10.00", "0.00", "0.00"]
    with pytest.raises(ValueError, match="4 marks, expected 6"):
        by_hand.by_turns(text, ["a", "b", "c"], 2)
    with pytest.raises(ValueError, match=r"a: \[1, 1\] launches"):
        by_hand.by_turns("\n".join([HEADER, UNITS, *[mark, ours] * 2]), ["a"], 2)


def test_launches_of_a_call_are_put_together():
    rows = [row(0, "a", 3000, 80), row(1, "b", 1000, 0)] * by_hand.CALLS
    launches = by_hand.parsed("\n".join(["==PROF== said", HEADER, UNITS, *rows]))
    found = by_hand.by_workload(launches, {"w": ["a", "b"]})["w"]
    assert (found["tensor_pipe"], found["sm_cycles"]) == (60.0, 4000.0)
    other = {key: value + 0.6 for key, value in found.items()}
    pipe, cycles, *_ = by_hand.lines([{"w": other}], [{"w": found}])[1:]
    assert pipe.split()[-3] == "+0.60"  # points
    assert cycles.split()[-3] == "+0.01"  # %
