"""Results of projects that never heard of us: pytest-benchmark's files, and comments on any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.pairs.stored_runs import judge_stored
from warpwatch.judge.results.asv_results import read_result
from warpwatch.judge.results.strict_json import RejectedError
from warpwatch.judge.statistics.stored import Stored

TEST = "def test_sum(benchmark):\n    benchmark(lambda: sum(range({count})))\n"


def test_what_pytest_benchmark_writes_becomes_a_report(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True, timeout=120)
    for number, count in enumerate((200, 20_000)):
        (repo / "test_it.py").write_text(TEST.format(count=count))
        subprocess.run(["git", "-C", str(repo), "add", "."], check=True, timeout=120)
        subprocess.run(
            ["git", "-C", str(repo), *identity, "commit", "-qm", f"commit {number}"],
            check=True,
            timeout=120,
        )
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"),
                *("--benchmark-autosave", "--benchmark-max-time=0.05", "--rootdir=."),
                # Of five rounds, the least there are, a busy machine can stretch two as it likes.
                "--benchmark-min-rounds=100",
            ],
            cwd=repo,
            check=True,
            capture_output=True,
            env={
                # pytest-benchmark measures nothing where it believes to be one of many processes.
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            timeout=600,
        )
    arguments = ["--results", str(repo / ".benchmarks"), "--repo", str(repo)]
    assert main(["report", *arguments, "--out", str(tmp_path / "html")]) == 0
    pages = [path.read_text() for path in (tmp_path / "html/s").iterdir()]
    assert len(pages) == 1
    assert "test_it.py::test_sum" in pages[0]
    assert "µs" in pages[0]
    assert main(["compare", "--recorded", *arguments, "HEAD~", "HEAD"]) == 1


def test_the_file_that_make_overhead_writes_is_read_whole(tmp_path: Path) -> None:
    """One of its files, but for the names of the host and of most features of its processor."""
    kept = Path(__file__).parent / "data/overhead.json"
    written = json.loads(kept.read_text())
    found = read_result(kept)
    assert (found.commit, found.problems) == (written["commit_info"]["id"], ())
    medians = {one["fullname"]: one["stats"]["median"] for one in written["benchmarks"]}
    assert len(medians) == 6 and all("tests/overhead/" in name for name in medians)
    values = {row.benchmark: float(found.values[row.offset]) for row in found.rows}
    assert values == medians
    assert (found.low < found.values).all() and (found.values < found.high).all()
    machine = tmp_path / "kept" / "Linux-CPython-3.11-64bit"
    machine.mkdir(parents=True)
    (machine / "0001.json").write_bytes(kept.read_bytes())
    tree = trees.make_repository(tmp_path, 1)
    folders = ["--results", str(tmp_path / "kept"), "--repo", str(tree.repo)]
    assert main(["report", *folders, "--out", str(tmp_path / "html")]) == 0
    pages = [path.read_text() for path in (tmp_path / "html/s").iterdir()]
    assert len(pages) == 6 and all("µs" in page for page in pages)


@pytest.mark.parametrize("slower", [1.0, 220.0])
def test_few_rounds_far_apart_are_judged_by_what_they_say(tmp_path: Path, slower: float) -> None:
    """On a busy machine a quarter of five rounds took six times as long as another quarter."""
    found = []
    for number, scale in enumerate((1e-6, slower * 1e-6)):
        stats = {"median": scale, "q1": 0.8 * scale, "q3": 5.0 * scale, "rounds": 5}
        written = {
            "machine_info": {},
            "commit_info": {"id": str(number) * 40},
            "benchmarks": [{"fullname": "test_it.py::test_sum", "stats": stats}],
            "datetime": "2025-01-01T00:00:00+00:00",
        }
        path = tmp_path / f"000{number}.json"
        path.write_text(json.dumps(written))
        one = read_result(path)
        assert 0.0 < one.low[0] < one.values[0] < one.high[0] < np.inf
        found.append(Stored(float(one.values[0]), float(one.low[0]), float(one.high[0])))
    judged = judge_stored(found[0], found[1], "lower", Threshold(0.03, 0.0, 0.03))
    assert judged.verdict == ("regressed" if slower > 1.0 else "inconclusive")


@pytest.mark.parametrize(
    "stats", [{}, {"q1": 0.0, "q3": 1.0, "rounds": 9}, {"q1": 1.0, "q3": 1.0, "rounds": 1}]
)
def test_a_median_without_rounds_has_no_interval(tmp_path: Path, stats: dict[str, float]) -> None:
    path = tmp_path / "0001.json"
    test = {"fullname": "test_it.py::test_sum", "stats": {"median": 1.0, **stats}}
    about = {"machine_info": {}, "commit_info": {"id": "a" * 40}, "benchmarks": [test]}
    path.write_text(json.dumps(about | {"datetime": "2025-01-01T00:00:00+00:00"}))
    one = read_result(path)
    assert one.values[0] == 1.0 and np.isnan([one.low[0], one.high[0]]).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"commit_info": {"id": "dirty"}}, "commit_info.id"),
        ({"commit_info": None}, "commit_info"),
        ({"datetime": 7}, "datetime"),
        ({"machine_info": []}, "machine_info"),
    ],
    ids=["commit", "no-commit", "date", "machine"],
)
def test_a_wrong_pytest_benchmark_file_is_named(
    tmp_path: Path, change: dict[str, object], named: str
) -> None:
    good = {
        "machine_info": {},
        "commit_info": {"id": "a" * 40},
        "benchmarks": [],
        "datetime": "2025-01-01T00:00:00+00:00",
    }
    path = tmp_path / "0001.json"
    path.write_text(json.dumps({**good, **change}))
    with pytest.raises(RejectedError, match=named):
        read_result(path)


@pytest.mark.parametrize(
    ("levels", "code", "line"),
    [([1, 3], 1, "regressed: 1 regressed"), ([3, 1], 0, "no regression: 1 improved")],
    ids=["worse", "better"],
)
def test_the_comment_opens_with_the_verdict(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    levels: list[float | None],
    code: int,
    line: str,
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": levels})
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), *tree.commits]
    assert main(["ci", "comment", *arguments]) == code
    comment = capsys.readouterr().out
    assert line in comment.splitlines()[1]
    assert len(comment.encode()) <= 60_000
    assert main(["ci", "comment", *arguments, "--as", "check"]) == code
    check = json.loads(capsys.readouterr().out)
    assert check["conclusion"] == ("failure" if code else "success")
    assert check["title"] in comment
    assert main(["ci", "comment", *arguments, "--as", "summary"]) == code
    summary = capsys.readouterr().out
    assert summary.splitlines()[0] == f"## {check['title']}"
    assert "| `launches` | `flash B1-H8-S512-D64 @ sm_90` |" in summary
