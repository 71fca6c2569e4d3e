"""A machine is what matters for time, and a verdict says how much of it could be judged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.judge.findings.judgement import Judgement, judge_folders

COUNT = 40
ONE, TWO = {"cpu": "CPU one"}, {"cpu": "CPU two"}


def slowed(
    root: Path, fields: list[dict[str, str]], machines: list[str] | None = None
) -> trees.Tree:
    """Forty commits of one benchmark, 50 % slower from commit 20 on."""
    random = np.random.default_rng(3)
    tree = trees.make_repository(root, COUNT)
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    for commit in range(COUNT):
        level = (1.0 if commit < 20 else 1.5) * float(np.exp(random.normal(0.0, 0.01)))
        name = machines[commit] if machines else "rig"
        tree.write_result(
            commit, {"bench.time_it": [level]}, machine=name, machine_fields=fields[commit]
        )
    return tree


def judged(tree: trees.Tree) -> Judgement:
    return judge_folders([tree.results], tree.repo)


def build(tree: trees.Tree, out: Path, *more: str) -> tuple[int, str, dict[str, object]]:
    given = ("--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out))
    code = main(["report", *given, *more])
    document = json.loads((out / "regressions.json").read_text())
    return code, (out / "index.html").read_text(), document


def test_processors_that_take_turns_under_one_name_are_machines_of_their_own(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(4)
    fields = [ONE if random.random() < 0.5 else TWO for _ in range(COUNT)]
    tree = slowed(tmp_path, fields)
    judgement = judged(tree)
    assert {table.machine for table in judgement.history.tables} == {
        "rig (CPU one)",
        "rig (CPU two)",
    }
    (one,) = judgement.findings
    assert one.verdict == "regressed"
    assert tree.commits[20] in one.commits
    assert judgement.coverage.judged == judgement.coverage.series == 2


def test_a_processor_that_changes_for_good_is_a_border(tmp_path: Path) -> None:
    judgement = judged(slowed(tmp_path, [ONE] * 20 + [TWO] * 20))
    (table,) = judgement.history.tables
    assert (table.machine, table.borders(0)) == ("rig", (20,))
    assert judgement.findings == ()
    assert judgement.coverage.judged == 1


def test_a_machine_of_another_name_at_each_commit_is_no_clean_bill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = slowed(tmp_path / "t", [ONE] * COUNT, [f"runner-{i}" for i in range(COUNT)])
    code, page, document = build(tree, tmp_path / "html")
    assert code == 3
    assert "Nothing could be compared in 40 measured commits" in page
    assert "No open regression" not in page
    assert document["coverage"] == {
        "series": COUNT,
        "judged": 0,
        "not_judged": {"have too few values": COUNT},
        "enough": False,
    }
    assert "`--machines model` joins" in capsys.readouterr().err
    # And again from what was kept of the first build.
    assert build(tree, tmp_path / "html")[0] == 3
    code, page, document = build(tree, tmp_path / "joined", "--machines", "model")
    assert code == 0
    assert "1 finding to look at" in page


def test_a_platform_of_another_text_at_each_commit_is_no_clean_bill(tmp_path: Path) -> None:
    fields = [{"cpu": "CPU one", "driver": f"build {i}"} for i in range(COUNT)]
    code, page, _ = build(slowed(tmp_path / "t", fields), tmp_path / "html")
    assert code == 3
    assert "on another platform at most commits" in page


def test_a_young_history_says_what_it_could_not_judge_and_is_no_failure(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path / "t", 3)
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    for commit in range(3):
        tree.write_result(commit, {"bench.time_it": [1.0 + 0.01 * commit]})
    code, page, _ = build(tree, tmp_path / "html")
    assert code == 0
    assert "0 of 1 series could be judged: 1 have too few values" in page


def write_pytest_benchmark(tree: trees.Tree, commit: int, median: float, **info: object) -> None:
    folder = tree.results / "Linux-CPython-3.11-64bit"
    folder.mkdir(parents=True, exist_ok=True)
    stats = {"median": median, "q1": 0.99 * median, "q3": 1.01 * median, "rounds": 500}
    document = {
        "machine_info": {"machine": "x86_64", "python_version": "3.11.9", **info},
        "commit_info": {"id": tree.commits[commit]},
        "benchmarks": [{"fullname": "test_x.py::test_a", "stats": stats}],
        "datetime": f"2026-01-{commit + 1:02d}T10:00:00",
    }
    (folder / f"{commit:04d}.json").write_text(json.dumps(document))


def test_the_name_of_a_hosted_runner_is_no_platform_and_its_processor_is_one(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(5)
    hosted = trees.make_repository(tmp_path / "hosted", 24)
    other = trees.make_repository(tmp_path / "other", 24)
    for commit in range(24):
        level = 1e-3 * float(np.exp(random.normal(0.0, 0.01)))
        slow, newer = (1.5, "CPU two") if commit >= 12 else (1.0, "CPU one")
        same = {"brand_raw": "CPU one", "hz_actual_friendly": f"{3 + random.random():.4f} GHz"}
        name = f"runner-{commit}"
        write_pytest_benchmark(hosted, commit, level * slow, node=name, release="6", cpu=same)
        write_pytest_benchmark(other, commit, level * slow, node="a", cpu={"brand_raw": newer})
    (one,) = judged(hosted).findings
    assert hosted.commits[12] in one.commits
    assert judged(other).findings == ()
