"""A/A and agreement with ncu, as arithmetic over what processes reported."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from warpwatch import devices
from warpwatch.__main__ import main
from warpwatch.commands.gpu import calibrate
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import series_versions

CEILINGS = devices.Ceilings("NVIDIA H300", bandwidth_gbps=5000.0)


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


@pytest.mark.parametrize(("seconds", "expected"), [(100, 8), (55, 3), (0, 2)])
def test_no_process_starts_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: int,
    expected: int,
):
    now = [0.0]

    class Ten:
        def __init__(self, request: object) -> None:
            self.card, self.ceilings = {"name": CEILINGS.card}, CEILINGS

        def run(self, names: list[str]) -> dict[str, Outcome]:
            now[0] += 10
            (name,) = names
            return {name: timed(100)["w"]}

        def start_ahead(self) -> None:
            started.append(self)

        def wait_ahead(self) -> bool:
            assert len(started) == 8  # all start before one is waited for
            now[0] += 2.5
            return True

        def discard(self) -> None:
            started.remove(self)

    started: list[Ten] = []
    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(calibrate, "Session", Ten)
    asked_ncu: list[list[str]] = []

    def by_ncu(names: list[str]) -> dict[str, Outcome]:
        asked_ncu.append(names)
        return {}

    monkeypatch.setattr(calibrate.utilization, "by_ncu", by_ncu)
    monkeypatch.setattr(calibrate.time, "monotonic", lambda: now[0])
    name = "matmul-fp16-1024x1024x1024"
    asked = ["calibrate", "--processes", "8", "--seconds", str(seconds), "--workload", name]
    asked += ["--no-counters"] if seconds == 100 else []
    assert main([*asked, "--json", "-"]) == 0
    written = json.loads(capsys.readouterr().out)
    (row,) = written["rows"]
    assert row["processes"] == expected
    assert (written["card"], written["ceilings"]) == ({"name": CEILINGS.card}, CEILINGS.to_json())
    assert written["method"] == series_versions.TIMES
    assert not started
    assert len(asked_ncu) == (0 if seconds == 100 else expected)


def test_what_the_processes_before_said_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A stop in the third process; counters whose log nobody can read cost themselves alone."""
    file = tmp_path / "rows.json"
    name = "matmul-fp16-1024x1024x1024"
    seen: list[int] = []

    class Stopped:
        card = ceilings = None

        def __init__(self, request: object) -> None: ...

        def run(self, names: list[str]) -> dict[str, Outcome]:
            (row,) = json.loads(file.read_text())["rows"]
            seen.append(row["processes"])
            if len(seen) == 3:
                raise KeyboardInterrupt
            return {name: timed(100)["w"]}

        def discard(self) -> None: ...

    def by_ncu(names: list[str]) -> dict[str, Outcome]:
        raise ValueError("ncu's log ends within a row")

    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(calibrate, "Session", Stopped)
    monkeypatch.setattr(calibrate, "make_ready", lambda _: None)
    monkeypatch.setattr(calibrate.utilization, "by_ncu", by_ncu)
    assert main(["calibrate", "--workload", name, "--json", str(file)]) == 130
    assert seen == [0, 1, 2]
    (row,) = json.loads(file.read_text())["rows"]
    assert row["us"] == 100 and row["ncu_us"] is None, "JSON knows no NaN"
    said = capsys.readouterr().err
    assert said.count("no hardware counters: ncu's log ends within a row") == 1, "once for all"
    for seconds in ("-3", "nan"):
        assert main(["calibrate", "--workload", name, "--seconds", seconds]) == 2
    assert main(["calibrate", "--workload", name, "--json", str(tmp_path / "no" / "f")]) == 2
    assert len(seen) == 3
