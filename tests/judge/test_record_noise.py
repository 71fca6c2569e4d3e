"""Recording the noise of one commit: what is written is what the scorecard reads."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from tools.harness import record_noise, short_calls
from warpwatch.judge.statistics.recorded import FOLDER, recordings

HERE = Path(__file__).parent


def test_what_is_recorded_can_be_read_back(tmp_path: Path) -> None:
    names = ["quiet", "broken"]
    scripts = {"quiet": {"us": 100.0}, "broken": {"us": 50.0, "fails_at": 0}}
    request = {"mode": "latency", "scripts": scripts}
    rows, card = record_noise.record(names, 1, 60.0, request)
    value = statistics.median(rows[0]["quiet"]["latency_cold"])
    assert abs(value - 100.0) < 2.0
    assert rows[0]["broken"] == {}
    many = [
        {"started_s": float(i), "quiet": {"latency_cold": [value + i], "mhz": [1980.0]}}
        for i in range(12)
    ]
    document = record_noise.document("abc", ["quiet"], many, card)
    (tmp_path / "runs.json").write_text(json.dumps(document))
    (found,) = recordings(tmp_path)
    assert len(found.latency_us) == 12
    assert "commit abc" in found.source
    assert "12 runs" in record_noise.lines(["quiet"], many)[1]


def test_a_short_call_is_scored_by_its_cycles(tmp_path: Path) -> None:
    def samples(us: float, cycles: float) -> record_noise.Reading:
        found = {"latency_cold": [us], "mhz": [1980.0], "off_kernel_us": [1.0]}
        return {**found, "kernel_cycles": [cycles, cycles + 2, cycles + 1]}

    rows = [
        {"started_s": float(i), "short": samples(8 + i, 9e3 + i), "long": samples(80.0, 9e4)}
        for i in range(12)
    ]
    written = record_noise.document("abc", ["short", "long"], rows, {})
    (tmp_path / "runs.json").write_text(json.dumps(written))
    short, long = recordings(tmp_path)
    assert (short.metric, long.metric) == ("kernel_cycles", "latency_cold")
    assert list(short.values) == [9001 + i for i in range(12)]
    assert list(short.by_time.values) == [8 + i for i in range(12)]
    assert list(long.values) == 12 * [80.0]


def test_machines_that_read_the_same_code_alike_are_told_from_others(tmp_path: Path) -> None:
    def machine(cycles: float, us: float) -> dict[str, dict[str, list[float | None]]]:
        return {"latency_us": {"w": [us, us, None]}, "kernel_cycles": {"w": [cycles, cycles, None]}}

    table, apart = short_calls.compared([machine(1000, 8), machine(1015, 10), machine(1005, 9)])
    assert apart == pytest.approx(0.015)
    assert table[1].split() == ["w", "kernel_cycles", "1000", "1015", "1005", "1.50%", "25.00%"]
    assert table[-1] == "3 machines: the series that decide lie 1.50% apart at most"
    _, apart = short_calls.compared([machine(1000, 8), machine(1030, 8)])
    assert apart > short_calls.MOST
    table, apart = short_calls.compared([machine(1000, 25), machine(2000, 25)])
    assert "no short call" in table[1] and apart == 0


def test_three_h200_read_each_short_call_alike() -> None:
    """Recorded on cards that were lent one after the other."""
    others = [HERE / f"data/short_calls/{one}_h200.json" for one in ("second", "third")]
    files = (FOLDER / "h200_short_calls.json", *others)
    table, apart = short_calls.compared([json.loads(one.read_text()) for one in files])
    assert len(table) == 1 + 9 + 1
    assert apart < short_calls.MOST
    assert all(" kernel_cycles " in line for line in table[1:-1])
