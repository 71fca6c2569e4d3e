"""Where atomics came or went, or a tuner's space changed, nobody without a GPU can judge."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.reports import keeping, trees
from warpwatch.commands.compiled import tables
from warpwatch.commands.gpu import bisect, compare
from warpwatch.compare import without_gpu
from warpwatch.config import metrics
from warpwatch.instruments.compiled.diff import comparison
from warpwatch.instruments.compiled.measure.jobs import Job, Result
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model import search_space, thresholds
from warpwatch.judge.pairs.commits import compare as compare_commits
from warpwatch.judge.pairs.run_verdict import settle
from warpwatch.judge.series.withheld import withheld_at
from warpwatch.report.rendering import finding_path

PAIR = ("w", "sm_90")
LEVELS: dict[str, list[float | None]] = {
    "bound_us": [10.0, 10.0, 14.0, 14.0],
    "blocks_in_flight": [4.0, 4.0, 2.0, 2.0],
    "launches": [8.0, 8.0, 10.0, 10.0],
}
FIRST, SECOND = "BLOCK: 64, num_warps: 2", "BLOCK: 64, num_warps: 4"


def tree_of(tmp_path: Path, updates: list[float | None]) -> trees.Tree:
    tree = trees.compiled_tree(tmp_path, {**LEVELS, "atomics": updates})
    tree.benchmarks["compiled.Attention.track_blocks_in_flight"]["better"] = "higher"
    tree.benchmarks["compiled.Attention.track_atomics"] |= {"better": "", "role": "evidence"}
    tree.write_benchmarks()
    return tree


@pytest.mark.parametrize(("updates", "metrics_judged"), [(0.0, 3), (512.0, 1)])
def test_no_verdict_on_the_bound_where_atomics_came(
    tmp_path: Path, updates: float, metrics_judged: int
) -> None:
    tree = tree_of(tmp_path, [0.0, 0.0, updates, updates])
    judgement = judge_folders([tree.results], tree.repo)
    (finding,) = judgement.findings
    moved = {judgement.info(one.series).meaning.metric for one in finding.changes}
    assert len(moved) == metrics_judged and "launches" in moved
    said = {
        one.series.meaning.metric: (one.verdict, one.reason)
        for one in compare_commits(judgement.history, tree.commits[0], tree.commits[3])
    }
    assert said["launches"][0] == "regressed"
    if updates:
        why = "atomic updates 0 -> 512, which the bound does not know: no verdict on it"
        assert said["bound_us"] == said["blocks_in_flight"] == ("not applicable", why)
        assert (
            finding.reasons[0]
            == "atomic updates: 0 to 512 elements a call, flash B1-H8-S512-D64 on sm_90"
        )
    else:
        assert said["bound_us"][0] == said["blocks_in_flight"][0] == "regressed"
        assert not any("atomic" in one for one in finding.reasons)


# Of one call: the space changes at the third commit, what is recorded of it at the fourth.
SPACES: dict[str, list[float | None]] = {
    "search_space": [7.0, 7.0, 9.0, 9.0, 9.0],
    "recorded_configuration": [3.0, 3.0, 3.0, 5.0, 5.0],
    "spilled_bytes": [0.0, 0.0, 0.0, 992.0, 992.0],
    "launches": [2.0, 2.0, 2.0, 4.0, 4.0],
}


def tuned_tree(tmp_path: Path, levels: dict[str, list[float | None]]) -> trees.Tree:
    tree = trees.compiled_tree(tmp_path, levels)
    for name in ("search_space", "recorded_configuration"):
        own = {"better": "", "role": "evidence", "unit": "hash"}
        tree.benchmarks[f"compiled.Attention.track_{name}"] |= own
    tree.write_benchmarks()
    for result in tree.results.glob("rig/*.json"):
        text = result.read_text()
        result.write_text(text.replace('"requirements": {', '"requirements": {"triton": "3.7.1"'))
    place = ("flash B1-H8-S512-D64", "sm_90")
    for number, commit in enumerate(tree.commits):
        tuned = space(FIRST, FIRST, SECOND) if number < 2 else space(SECOND, SECOND)
        keeping.write_compiled(
            tree.results, commit, "3.7.1", {place: []}, recorded={"tuned": tuned}
        )
    return tree


def test_another_space_is_a_finding_and_no_regression(tmp_path: Path) -> None:
    tree = tuned_tree(tmp_path, SPACES)
    judgement = judge_folders([tree.results], tree.repo)
    found = {one.kind: one for one in judgement.findings}
    moved = {
        name: {judgement.info(one.series).meaning.metric for one in finding.changes}
        for name, finding in found.items()
    }
    assert moved == {"other space": {"search_space"}, "slower": {"launches"}}
    finding = found["other space"]
    assert (finding.verdict, judgement.status(finding)) == ("inconclusive", "open")
    assert (finding.since, finding.cost) == (tree.commits[2], 0.0)
    said = f"k: another search space, 2 -> 1 configurations: without {FIRST}"
    assert finding.reasons == (said,)
    verdicts = {
        one.series.meaning.metric: (one.verdict, one.reason)
        for one in compare_commits(judgement.history, tree.commits[0], tree.commits[4])
    }
    assert verdicts["launches"][0] == "regressed"
    assert verdicts["search_space"] == ("inconclusive", search_space.OTHER)
    verdict, why = verdicts["spilled_bytes"]
    assert verdict == "inconclusive" and "recorded in another configuration" in why
    (table,) = judgement.history.tables
    withheld = {
        info.meaning.metric: withheld_at(table, row) for row, info in enumerate(table.series)
    }
    assert withheld.pop("spilled_bytes") == [tree.commits[3]] and not any(withheld.values())
    with pytest.raises(ValueError, match=r"nothing got worse; `warpwatch inspect --diff"):
        bisect.of_finding(judgement, finding.identity, [])

    site = trees.build_site(tree, tmp_path / "html")
    index = html.unescape((site / "index.html").read_text())
    assert "1 change of search spaces, for a GPU to judge" in index
    assert "<h2>Other search spaces</h2>" in index and said in index
    page = (site / finding_path(finding.identity)).read_text()
    assert "00000007" in page and "Which configuration is faster a GPU must say" in page
    assert "is another" in page and "warpwatch bisect" not in page
    assert "warpwatch bisect" not in page


def test_a_space_that_is_as_it_was_has_recovered(tmp_path: Path) -> None:
    levels: list[float | None] = [7.0, 9.0, 8.0, 7.0]
    tree = tuned_tree(tmp_path, SPACES | {"search_space": [*levels, 7.0]})
    judgement = judge_folders([tree.results], tree.repo)
    spaces = [one for one in judgement.findings if one.kind == "other space"]
    assert [judgement.status(one) for one in spaces].count("recovered") == 1
    kept = trees.compiled_tree(tmp_path / "same", {"spilled_bytes": [0.0, 992.0, 992.0]})
    (finding,) = judge_folders([kept.results], kept.repo).findings
    assert finding.verdict == "regressed", "without a configuration on record nothing is withheld"


def row(tuned: list[dict[str, Any]] | None = None, **values: float) -> dict[str, Any]:
    known = {one.name: math.nan for one in metrics.COMPILED} | {"launches": 1.0} | values
    evidence = {"launches": [], "tuned": tuned or []}
    return {"status": "ok", "detail": "", "values": known, "evidence": evidence}


def space(recorded: str, *configurations: str) -> list[dict[str, Any]]:
    found = {"kernel": "k", "configurations": list(configurations), "recorded": recorded}
    return [found | {"why": "the first that fits"}]


def judged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = without_gpu.judge({PAIR: before}, {PAIR: after}, thresholds.load())
    return {one.metric: (one.judgement.verdict, one.judgement.reason) for one in found}


def test_a_comparison_of_now_says_so_too() -> None:
    said = judged(row(bound_us=10.0, atomics=0.0), row(bound_us=14.0, atomics=64.0))
    assert (
        said["bound_us"][0] == "not applicable" and "atomic updates 0 -> 64" in said["bound_us"][1]
    )
    slower = without_gpu.judge(
        {PAIR: row(launches=8.0, atomics=0.0)},
        {PAIR: row(launches=10.0, atomics=64.0)},
        thresholds.load(),
    )
    (why,) = [
        line for line in compare.lines("a", "b", settle(slower, 0.05), show_all=False)
        if line.startswith("why w: ")
    ]  # fmt: skip
    assert why.startswith(
        "why w: 64 atomic updates a call instead of 0: programs wait for the same addresses; 10 "
    )
    for more in (64.0, 96.0):  # more of them are no other kind of reduction
        said = judged(row(bound_us=10.0, atomics=64.0), row(bound_us=14.0, atomics=more))
        assert said["bound_us"][0] == "regressed"


def test_another_configuration_of_another_space_is_no_loss_of_the_code() -> None:
    """A configuration added in front is recorded in the place of the first."""
    sides = (space(FIRST, FIRST), space(SECOND, SECOND, FIRST))
    said = judged(row(sides[0], spilled_bytes=0.0), row(sides[1], spilled_bytes=992.0))
    assert said["spilled_bytes"][0] == "inconclusive"
    assert said["spilled_bytes"][1].startswith("k is recorded in another configuration")
    said = judged(row(sides[0], launches=2.0), row(sides[1], launches=40.0))
    assert said["launches"][0] == "regressed", "it is the call's, whatever is recorded"
    locked = (space(FIRST, FIRST, SECOND), space(SECOND, FIRST, SECOND))
    said = judged(row(locked[0], spilled_bytes=0.0), row(locked[1], spilled_bytes=992.0))
    assert said["spilled_bytes"][0] == "inconclusive", "a card chose another one"
    same = space(FIRST, FIRST, SECOND)
    said = judged(row(same, spilled_bytes=0.0), row(same, spilled_bytes=992.0))
    assert said["spilled_bytes"][0] == "regressed"


def compared(before: dict[str, Any], after: dict[str, Any]) -> comparison.Compared:
    sides = [
        Result(
            Job(*PAIR),
            "ok",
            values={k: v for k, v in one["values"].items() if not math.isnan(v)},
            evidence=one["evidence"],
        )
        for one in (before, after)
    ]
    (found,) = comparison.compare([sides[0]], [sides[1]])
    return found


def test_a_diff_names_the_space_and_what_it_cannot_judge() -> None:
    found = compared(row(bound_us=10.0, atomics=0.0), row(bound_us=14.0, atomics=64.0))
    assert found.word == "same" and found.verdicts == ()
    assert found.causes[0].startswith("bound_us 10 -> 14: atomic updates 0 -> 64")
    found = compared(row(space(FIRST, FIRST, SECOND)), row(space(FIRST, FIRST)))
    assert found.word == "other space"
    assert found.causes == (f"k: another search space, 2 -> 1 configurations: without {SECOND}",)
    sides = (space(FIRST, FIRST), space(SECOND, SECOND, FIRST))
    found = compared(row(sides[0], spilled_bytes=0.0), row(sides[1], spilled_bytes=992.0))
    assert (found.word, found.verdicts) == ("other space", ())
    assert found.causes[0] == "spilled_bytes 0 -> 992"


def test_a_space_in_another_order_is_named() -> None:
    (said,) = search_space.changes(space(FIRST, FIRST, SECOND), space(SECOND, SECOND, FIRST))
    assert said == "k: another search space, 2 -> 2 configurations: in another order"
    assert search_space.changes([], space(FIRST, FIRST)) == ["k: chooses among 1 configurations"]
    assert search_space.changes(space(FIRST, FIRST), space(FIRST, FIRST)) == []


def test_a_backward_says_its_forwards_causes_once() -> None:
    causes = ("k: registers 32 -> 40", "k: grid 1 -> 2")
    own = "k_backward: registers 8 -> 9"
    lines = tables.lines(
        [
            comparison.Compared("norm", "sm_90", "regressed", causes=causes),
            comparison.Compared("norm-backward", "sm_90", "regressed", causes=(*causes, own)),
            comparison.Compared("norm", "gfx942", "regressed", causes=causes[:1]),
        ]
    )
    assert [line.strip() for line in lines] == [
        "regressed    sm_90   norm",
        *causes,
        "regressed    sm_90   norm-backward",
        own,
        "2 causes as of norm",
        "regressed    gfx942  norm",
        causes[0],
    ]


@pytest.mark.parametrize(
    ("added", "spilled", "borders"),
    [
        ([None, None, 4.0, 4.0], [128.0] * 4, 1),  # the new term changes the value
        ([None, None, 0.0, 0.0], [0.0] * 4, 0),  # it takes no part: the step is one
        ([None, None, 0.0, 0.0], [128.0, 128.0, 0.0, 0.0], 1),  # the old value lacks it
        ([0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 128.0, 128.0], 0),  # the kernel began to spill
        ([None, None, None, 4.0], [128.0] * 4, 0),  # the value is as it was
        ([None, 4.0, None, 4.0], [128.0] * 4, 1),
    ],
)
def test_where_spills_joined_the_bound_its_series_has_a_border(
    tmp_path: Path, added: list[float | None], spilled: list[float | None], borders: int
) -> None:
    """The version of the method is the same, and stays true of all other series."""
    bound: list[float | None] = [10.0, 10.0, 14.0, 14.0]
    levels = {"bound_us": bound, "bound_added_us": added, "spilled_bytes": spilled}
    tree = trees.compiled_tree(tmp_path, levels)
    name = "compiled.Attention.track_bound_added_us"
    tree.benchmarks[name] |= {"better": "", "role": "evidence"}
    tree.write_benchmarks()
    for commit, value in zip(tree.commits, added, strict=True):
        if value is None:  # measured before there was such a metric
            (path,) = (tree.results / "rig").glob(f"{commit[:8]}-*.json")
            document = json.loads(path.read_text())
            del document["results"][name]
            path.write_text(json.dumps(document))
    judgement = judge_folders([tree.results], tree.repo)
    (table,) = judgement.history.tables
    rows = {info.meaning.metric: row for row, info in enumerate(table.series)}
    assert len(table.borders(rows["bound_us"])) == borders
    assert table.borders(rows["spilled_bytes"]) == ()
    moved = {
        judgement.info(one.series).meaning.metric
        for finding in judgement.findings
        for one in finding.changes
    }
    assert ("bound_us" in moved) == (not borders)
