"""Where atomics came or went, or a tuner's space changed, nobody without a GPU can judge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.reports import trees
from warpwatch.commands.compiled import inspect
from warpwatch.commands.gpu import compare
from warpwatch.config import metrics
from warpwatch.instruments.compiled.diff import comparison
from warpwatch.instruments.compiled.measure.jobs import Job, Result
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model import search_space, thresholds
from warpwatch.judge.pairs.commits import compare as compare_commits

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
    else:
        assert said["bound_us"][0] == said["blocks_in_flight"][0] == "regressed"


def row(tuned: list[dict[str, Any]] | None = None, **values: float) -> dict[str, Any]:
    known = {one.name: math.nan for one in metrics.COMPILED} | {"launches": 1.0} | values
    evidence = {"launches": [], "tuned": tuned or []}
    return {"status": "ok", "detail": "", "values": known, "evidence": evidence}


def space(recorded: str, *configurations: str) -> list[dict[str, Any]]:
    found = {"kernel": "k", "configurations": list(configurations), "recorded": recorded}
    return [found | {"why": "the first that fits"}]


def judged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = compare.judge_compiled({PAIR: before}, {PAIR: after}, thresholds.load())
    return {one.metric: (one.judgement.verdict, one.judgement.reason) for one in found}


def test_a_comparison_of_now_says_so_too() -> None:
    said = judged(row(bound_us=10.0, atomics=0.0), row(bound_us=14.0, atomics=64.0))
    assert (
        said["bound_us"][0] == "not applicable" and "atomic updates 0 -> 64" in said["bound_us"][1]
    )
    said = judged(row(bound_us=10.0, atomics=64.0), row(bound_us=14.0, atomics=64.0))
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
    assert search_space.changes(space(FIRST, FIRST), space(FIRST, FIRST)) == []


def test_a_backward_says_its_forwards_causes_once() -> None:
    causes = ("k: registers 32 -> 40", "k: grid 1 -> 2")
    own = "k_backward: registers 8 -> 9"
    lines = inspect.lines(
        [
            comparison.Compared("norm", "sm_90", "HURT", causes=causes),
            comparison.Compared("norm-backward", "sm_90", "HURT", causes=(*causes, own)),
            comparison.Compared("norm", "gfx942", "HURT", causes=causes[:1]),
        ]
    )
    assert [line.strip() for line in lines] == [
        "HURT       sm_90   norm",
        *causes,
        "HURT       sm_90   norm-backward",
        own,
        "2 causes as of norm",
        "HURT       gfx942  norm",
        causes[0],
    ]
