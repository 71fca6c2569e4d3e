"""The benchmark of judges on public histories: its tables, its places and its counting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.reports.trees import make_repository
from tools.histories import costs
from tools.histories.places import Place, expected, places, repository, unpacked
from tools.histories.scoring import Commits, by_other, by_ours, counts, outcomes
from tools.histories.tables import Known, confirmed, listed
from warpwatch.judge.findings.judgement import Judgement, judge_folders
from warpwatch.judge.scorecard.error_rates import Floats


def test_there_are_enough_histories_and_confirmed_regressions() -> None:
    known, labelled, where = confirmed(), listed(), places()
    assert len(where) >= 8
    assert len(known) >= 25 and len({one.source for one in known}) >= 10
    assert len({one.history for one in labelled}) == 3
    assert {one.history for one in (*known, *labelled)} <= set(where)
    assert len({(one.history, one.name, one.guilty) for one in known}) == len(known)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('numpy,b,"[1]",{c},https://github.com/a/b/pull/1', "a list of texts"),
        ("numpy,b,[],abc,https://github.com/a/b/pull/1", "a whole commit hash"),
        ("numpy,b,[],{c},https://example.invalid/1", "the address of an issue"),
    ],
)
def test_a_malformed_row_is_refused(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "confirmed.csv"
    path.write_text("history,benchmark,params,guilty,source\n" + row.format(c="a" * 40) + "\n")
    with pytest.raises(ValueError, match=said):
        confirmed(path)


def test_a_label_against_asv_needs_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "listed.csv"
    head = "history,benchmark,params,last_before,first_after,before,after,label,reason\n"
    path.write_text(head + f"numpy,b,[],{'a' * 40},{'b' * 40},1,2,no,\n")
    with pytest.raises(ValueError, match="with a reason"):
        listed(path)


def test_results_are_unpacked_and_nothing_else(tmp_path: Path) -> None:
    work, bare = tmp_path / "work", tmp_path / "mirror" / "who+results"
    for name in ("r/m/1.json", "r/benchmarks.json", "r/m/deep/2.json", "r/m/run.sh", "other.json"):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (work / "r" / "m" / "link.json").symlink_to("/etc/hostname")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (
        ("init", "-q", str(work)),
        ("-C", str(work), "add", "-A"),
        (*author, "-C", str(work), "commit", "-qm", "results"),
        ("clone", "-q", "--bare", str(work), str(bare)),
    ):
        subprocess.run(("git", *command), check=True, timeout=60)
    place = Place("who", "who/results", "HEAD", "r", "who/sources", "HEAD")
    out = unpacked(tmp_path / "mirror", place, tmp_path / "into")
    found = sorted(str(p.relative_to(out)) for p in out.rglob("*") if not p.is_dir())
    assert found == ["benchmarks.json", "m/1.json"]
    assert repository(tmp_path / "mirror", "who/results") == bare
    (missing,) = expected(tmp_path / "mirror", place)
    assert "https://github.com/who/sources" in missing and "who+sources" in missing


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judgement, Commits, list[str]]:
    """A benchmark that got slower at commit 20 of 40, and one that did not."""
    tree = make_repository(tmp_path_factory.mktemp("history"), 40)
    random = np.random.default_rng(1)
    for name in ("bench.time_slower", "bench.time_steady"):
        tree.add_benchmark(name)
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(40):
        level = 1.0 if commit < 20 else 1.5
        noise = np.exp(random.normal(0.0, 0.01, 2))
        values = {"bench.time_slower": [level * noise[0]], "bench.time_steady": [noise[1]]}
        tree.write_result(commit, values)
    return judge_folders([tree.results], tree.repo), Commits(tree.repo), tree.commits


def test_a_judge_is_right_where_its_range_holds_the_guilty_commit(
    judged: tuple[Judgement, Commits, list[str]],
) -> None:
    judgement, commits, names = judged
    slower = Known("who", "bench.time_slower", (), guilty=names[20])
    other = replace(slower, guilty=names[30])
    between = replace(slower, guilty="", before=names[19], after=names[20])
    steady = Known("who", "bench.time_steady", (), guilty=names[20])
    known = [slower, other, between, steady]
    right = ["named", "elsewhere", "named", "missed"]
    assert outcomes(known, by_ours(judgement), commits) == right

    def detect(pool: Sequence[Floats]) -> list[list[int]]:
        return [[20] if values[-1] > 1.2 else [] for values in pool]

    named = by_other(judgement, known, detect, commits)
    assert outcomes(known, named, commits) == right


def test_what_a_reader_meets_is_counted(judged: tuple[Judgement, Commits, list[str]]) -> None:
    counted = counts(judged[0])
    assert (counted.commits, counted.series, counted.judged) == (40, 2, 2)
    assert (counted.findings, counted.attention, counted.twice) == (1, 1, 0)
    assert (counted.ranges, counted.true_ranges) == (1, 1)


def test_a_cost_is_that_of_the_command_alone(tmp_path: Path) -> None:
    held = bytearray(b"x") * 300_000_000  # of this process, as the history that was judged
    (tmp_path / "page.html").write_bytes(b"y" * 2_000_000)
    made = "made = bytearray(b'x') * 100_000_000; sum(range(3_000_000))"
    cost = costs._spent((sys.executable, "-c", made), tmp_path)
    assert 100 < cost.peak_mb < 200 < len(held) / 1e6
    assert cost.site_mb == 2.0 and 0 < cost.cpu_s < 30
    costs._spent((sys.executable, "-c", "raise SystemExit(3)"), tmp_path)  # nothing was judged
    with pytest.raises(SystemExit, match="failed with 2:\nno results"):
        failing = "import sys; print('no results', file=sys.stderr); sys.exit(2)"
        costs._spent((sys.executable, "-c", failing), tmp_path)
