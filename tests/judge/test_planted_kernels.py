"""The defects planted on a GPU: each edit fits today's kernels, and one is found by the program."""

from __future__ import annotations

import ast
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import workloads
from examples.demo.story import apply
from tests.root import ROOT
from tools.planted import on_gpu
from tools.planted.branches import BRANCHES
from tools.planted.plants import Branch, Plant

DEFECTS = [plant for branch in BRANCHES for plant in branch.plants if plant.cause]
HARMLESS = [plant for branch in BRANCHES for plant in branch.plants if not plant.cause]


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda branch: branch.name)
def test_every_edit_of_a_branch_fits_todays_kernels(branch: Branch, tmp_path: Path) -> None:
    for plant in branch.plants:
        for edit in plant.edits:
            path = tmp_path / edit.file
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / edit.file, path)
            before = ast.dump(ast.parse(path.read_text(encoding="utf-8")))
            apply(edit, tmp_path)
            # Comments alone would measure nothing.
            assert ast.dump(ast.parse(path.read_text(encoding="utf-8"))) != before


def test_each_workload_meets_one_commit_of_its_branch() -> None:
    assert len(DEFECTS) >= 24
    assert len(HARMLESS) >= 8
    for branch in BRANCHES:
        assert max(Counter(branch.workloads).values()) == 1, branch.name
        assert all(workloads.get(name) for name in branch.workloads)
    assert max(Counter(plant.name for plant in [*DEFECTS, *HARMLESS]).values()) == 1


def series(metric: str, verdict: str, ratio: float | None = 1.5, at: str = "") -> dict[str, object]:
    return {
        "metric": metric,
        "subject": f"w{at}",
        "verdict": verdict,
        "ratio": ratio,
        "base": 2.0,
        "head": 3.0,
        "unit": "us",
        "evidence": False,
        "reason": "head: wrong answer, relative error 1" if verdict == "missing" else "",
        "smallest_seen": 0.01,
    }


def test_a_row_says_what_found_a_defect_and_whether_the_cause_was_named() -> None:
    defect = Plant("d", "", "w", (), "a spill", ("latency_cold", "spilled_bytes"))
    document = {
        "series": [series("spilled_bytes", "regressed", None, " @ sm_90"),
                   series("latency_cold", "regressed")],
        "causes": {"w": ["a spill: 0 -> 8"]},
    }  # fmt: skip
    row = on_gpu.row(defect, document, 10.0)
    assert row.right
    assert row.change == "latency_cold 2 to 3 us, +50%"
    assert row.found == "latency_cold, spilled_bytes"
    assert not on_gpu.row(defect, document | {"causes": {}}, 10.0).right
    spilled = {**series("spilled_bytes", "regressed", None, " @ sm_90"), "evidence": True}
    time = series("predicted_us", "regressed", None, " @ sm_90")
    assert on_gpu.row(defect, document | {"series": [time, spilled]}, 10.0).right
    assert not on_gpu.row(defect, document | {"series": [time]}, 10.0).right
    assert not on_gpu.row(defect, document | {"series": [spilled]}, 10.0).right
    quiet = document | {"series": [series("latency_cold", "unchanged")]}
    assert on_gpu.row(defect, quiet, 10.0).found == "not found"
    lost = document | {"series": [series("latency_cold", "missing", None)]}
    assert "wrong answer" in on_gpu.row(defect, lost, 10.0).cause
    harmless = Plant("h", "", "w", ())
    assert on_gpu.row(harmless, quiet, 10.0).right
    for verdict in ("regressed", "inconclusive", "improved"):
        one = document | {"series": [series("latency_cold", verdict)]}
        assert not on_gpu.row(harmless, one, 10.0).right


def test_the_program_finds_a_lost_tensor_core_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["planted", "--only", "wgmma-lost", "--compiled-only", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    assert on_gpu.main() == 0
    assert "1 of 1 defects found, 1 with the cause expected" in capsys.readouterr().out
    document = json.loads((tmp_path / "time-2.json").read_text(encoding="utf-8"))
    assert any("level 2 -> 0" in text for text in document["causes"].popitem()[1])


def test_every_defect_that_an_h200_measured_is_found_with_its_cause() -> None:
    rows = on_gpu.kept(BRANCHES, Path(__file__).parent / "data" / "planted_h200")
    defects = [row for row in rows if row.plant.cause]
    assert len(defects) == len(DEFECTS)
    assert [row.plant.name for row in defects if not row.right] == []
    assert all(0 < row.seconds < 120 for row in rows)
    harmless = [row for row in rows if not row.plant.cause]
    assert len(harmless) == len(HARMLESS)
    assert [row.line for row in harmless if not row.right] == []


def test_a_plant_run_again_by_itself_replaces_its_row_alone(tmp_path: Path) -> None:
    folder = Path(__file__).parent / "data" / "planted_h200"
    document = json.loads((folder / "time-2.json").read_text(encoding="utf-8"))
    (tmp_path / "time-2.json").write_text(json.dumps(document), encoding="utf-8")
    (branch,) = (one for one in BRANCHES if one.name == "time-2")
    before = on_gpu.kept([branch], tmp_path)
    for one in document["series"]:
        if one["subject"] == "matmul-bf16-16x4096x4096-nt" and one["metric"] == "latency_cold":
            one["head"], one["ratio"] = 555.5, 36.7
    again = json.dumps(document | {"gpu_seconds": 33})
    (tmp_path / "wgmma-lost.json").write_text(again, encoding="utf-8")
    after = on_gpu.kept([branch], tmp_path)
    (mine,) = (row for row in after if row.plant.name == "wgmma-lost")
    assert (mine.seconds, mine.right) == (33, True) and "to 555.5 us" in mine.change
    others = [row for row in after if row is not mine]
    assert others == [row for row in before if row.plant.name != "wgmma-lost"]
