"""A/A and agreement with ncu, as arithmetic over what processes reported."""

from __future__ import annotations

import math

import pytest

from benchmarks.__main__ import main
from benchmarks.commands import calibrate
from benchmarks.instruments import presence
from benchmarks.instruments.outcome import Outcome


def timed(us: float, unstable: bool = False) -> dict[str, Outcome]:
    evidence = {"latency_cold": {"unstable": unstable}}
    return {"w": Outcome("w", "ok", "", {"latency_cold": (us, us + 1, us - 1)}, evidence)}


def counted(ns: float, hz: float, pipe: float, cycles: float) -> dict[str, Outcome]:
    calls = [[{"duration_ns": ns, "sm_hz": hz}]]
    samples = {"tensor_pipe": (pipe,), "sm_cycles": (cycles,)}
    return {"w": Outcome("w", "ok", "", samples, {"calls": calls})}


def test_processes_are_held_against_each_other_and_against_ncu():
    row = calibrate.row(
        "w",
        [timed(100), timed(101, unstable=True), timed(102)],
        [counted(100_000, 1.65e9, 56.6, 1000), counted(100_000, 1.65e9, 56.7, 1002)],
    )
    assert row.us == 101
    assert row.us_range_percent == pytest.approx(100 * 2 / 101)
    assert row.unstable == pytest.approx(1 / 3)
    assert row.us_cv_percent == pytest.approx(100 / 101)
    assert (row.ncu_us, row.ncu_mhz) == (100, 1650)
    assert row.difference_percent == pytest.approx(1.0)
    assert row.tensor_pipe_range == pytest.approx(0.1)
    assert row.sm_cycles_range_percent == pytest.approx(100 * 2 / 1001)


def test_without_counters_the_latency_still_counts():
    row = calibrate.row("w", [timed(100), timed(100)], [{}, {}])
    assert row.us == 100 and math.isnan(row.ncu_us) and math.isnan(row.tensor_pipe)
    assert "nan" in calibrate.lines([row])[1]


def test_a_workload_that_never_ran_is_a_row_of_nothing():
    failed = {"w": Outcome("w", "failed", "it broke")}
    row = calibrate.row("w", [failed, failed], [{}, {}])
    assert row.processes == 0 and math.isnan(row.us)


def test_one_process_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert main(["calibrate", "--processes", "1"]) == 2
    assert "expected 2 or more" in capsys.readouterr().err
    monkeypatch.setattr(presence, "has_gpu", lambda: False)
    assert main(["calibrate"]) == 3
