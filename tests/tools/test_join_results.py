"""Results of a run on a card, joined with what was published of the same commits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tools.evidence import join_results
from warpwatch.session.commit import INSTRUMENTS

COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_number", "samples"]
TIME, CYCLES = "matmul.Matmul.track_latency_cold", "matmul.Matmul.track_sm_cycles"
GONE, KEPT = "other.Other.track_sm_cycles", "other.Other.track_latency_cold"
COMMIT = "a" * 40


def write(
    folder: Path, rows: dict[str, tuple[str, dict[str, float]]], seen: list[str], tier: str
) -> None:
    """Results of one commit: by benchmark its version and its values by workload."""
    results: dict[str, Any] = {}
    for name, (version, values) in rows.items():
        numbers = [1] * len(values)
        results[name] = [[*values.values()], [list(map(repr, values))], version, 1, 0.5, numbers]
    (folder / "h200").mkdir(parents=True)
    (folder / "evidence").mkdir()
    result = {"commit_hash": COMMIT, "result_columns": COLUMNS, "results": results}
    (folder / "h200" / f"{COMMIT[:8]}-env.json").write_text(json.dumps(result))
    evidence = {
        "counters": {"tier": tier, "why": ""},
        "timed": [{"workload": name, "by": tier} for name in seen],
        "counted": [{"workload": name, "by": tier} for name in seen],
    }
    kept = folder / "evidence" / f"gpu-{COMMIT[:12]}.json.gz"
    kept.write_bytes(gzip.compress(json.dumps(evidence).encode()))
    described = {
        name: {"metric": name.partition("track_")[2], "instrument": "ncu", "version": version}
        for name, (version, _) in rows.items()
    }
    (folder / "benchmarks.json").write_text(json.dumps({**described, "version": 2}))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The small set was measured again by another method of counting; the large one was not."""
    old = {
        TIME: ("time-1", {"small": 10.0, "large": 90.0}),
        CYCLES: ("ncu-1", {"small": 1.0, "large": 9.0}),
        GONE: ("ncu-1", {"large": 9.0}),
        KEPT: (INSTRUMENTS["latency_cold"][1], {"large": 9.0}),
    }
    new = {TIME: ("time-1", {"new": 5.0, "small": 11.0, "large": float("nan")}),
           CYCLES: ("cupti-1", {"new": 0.5, "small": 1.1, "large": float("nan")})}  # fmt: skip
    write(tmp_path / "old", old, ["small", "large"], "ncu")
    write(tmp_path / "new", new, ["new", "small"], "cupti")
    return tmp_path / "new", tmp_path / "old"


def values(folder: Path, name: str) -> tuple[str, dict[str, float]]:
    (path,) = (folder / "h200").iterdir()
    row = dict(zip(COLUMNS, json.loads(path.read_text())["results"][name], strict=False))
    kept = {
        key.strip("'"): value for key, value in zip(row["params"][0], row["result"], strict=True)
    }
    return row["version"], {key: value for key, value in kept.items() if value == value}


def evidence(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "evidence").iterdir()
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def test_what_only_an_earlier_run_measured_stays_unless_the_method_changed(
    folders: tuple[Path, Path],
) -> None:
    new, published = folders
    assert join_results.main([str(new), str(published)]) == 0
    assert values(published, TIME) == ("time-1", {"new": 5.0, "small": 11.0, "large": 90.0})
    assert values(published, CYCLES) == ("cupti-1", {"new": 0.5, "small": 1.1})
    (result,) = (published / "h200").iterdir()
    assert set(json.loads(result.read_text())["results"]) == {TIME, CYCLES, KEPT}
    kept = evidence(published)
    assert {one["workload"]: one["by"] for one in kept["timed"]} == {
        "small": "cupti", "large": "ncu", "new": "cupti"}  # fmt: skip
    assert kept["counters"]["tier"] == "cupti"
    assert kept["counted"][0]["by"] == "cupti" and kept["counted"][1]["by"] == "ncu"
    described = json.loads((published / "benchmarks.json").read_text())
    assert described[CYCLES]["version"] == INSTRUMENTS["sm_cycles"][1]
    assert described[CYCLES]["instrument"] == "cupti"


def test_times_stay_where_peers_were_timed_in_the_same_run(folders: tuple[Path, Path]) -> None:
    new, published = folders
    assert join_results.main([str(new), str(published), "--counters-only", COMMIT[:7]]) == 0
    assert values(published, TIME) == ("time-1", {"small": 10.0, "large": 90.0})
    assert values(published, CYCLES) == ("cupti-1", {"new": 0.5, "small": 1.1})
    assert {one["by"] for one in evidence(published)["timed"]} == {"ncu"}


def test_a_folder_without_results_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert join_results.main([str(tmp_path), str(tmp_path)]) == 2
    assert "expected results of asv, found none" in capsys.readouterr().err
