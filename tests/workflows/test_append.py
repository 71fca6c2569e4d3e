"""A recorded value is never replaced: what a new run adds to it, and what of it is left out."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.containers.foreign import git
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    ENVIRONMENT,
    HEAD,
    LEVEL,
    MACHINE,
    SPILLS,
    result,
)
from tests.workflows.test_data_branch import results
from warpwatch.ci import branch
from warpwatch.ci.append import append

METHODS = {SPILLS: "1", LEVEL: "1"}
STATISTICS = ("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_repeat")


def write(folder: Path, name: str, document: dict[str, Any]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def added(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    methods = METHODS | new.pop("methods", {})
    return append(write(folder, "old", old), write(folder, "new", new), methods)


def row(document: dict[str, Any], name: str = SPILLS) -> dict[str, Any]:
    return dict(zip(document["result_columns"], document["results"][name], strict=False))


def test_a_number_on_record_stays_and_the_other_one_is_named(tmp_path: Path) -> None:
    old, new = result(BASE, [1.0, 2.0, 3.0], [1, 2, 3]), result(BASE, [1.0, 99.0, 3.0], [1, 2, 3])
    merged, report = added(tmp_path, old, new)
    assert row(merged)["result"] == [1.0, 2.0, 3.0]
    assert report.lines("x.json") == [
        f"x.json: {SPILLS} was measured otherwise; what is on record stays"
    ]


def test_gaps_are_filled_and_nothing_else(tmp_path: Path) -> None:
    """Null is a failure or a dead shard's part, NaN was left out: a number fills either."""
    old = result(BASE, [1.0, None, math.nan], [1, 2, 3])
    new = result(BASE, [math.nan, 2.0, 3.0], [None, None, None])
    merged, report = added(tmp_path, old, new)
    assert row(merged)["result"] == [1.0, 2.0, 3.0]
    assert row(merged, LEVEL)["result"] == [1, 2, 3], "a failure does not undo a value"
    assert (report.added, report.kept) == (2, [])


def sampled(samples: list[float]) -> dict[str, Any]:
    """A result as asv writes it with samples: each point three times the same."""
    from asv_runner.statistics import compute_stats

    value, stats = compute_stats(samples, 1)
    document = result(BASE, [value] * 3, [1, 2, 3])
    document["result_columns"] += [f"stats_{name}" for name in stats] + ["samples"]
    document["results"][SPILLS] += [[entry] * 3 for entry in stats.values()] + [[samples] * 3]
    return document


def test_two_runs_with_samples_become_one_value_of_all_of_them(tmp_path: Path) -> None:
    """Held against asv's own statistics of the same samples."""
    draw = random.Random(5)
    one, two = ([100.0 + draw.gauss(0, 1) for _ in range(n)] for n in (15, 20))
    merged, report = added(tmp_path, sampled(one), sampled(two))
    expected = row(sampled([*one, *two]))
    found = row(merged)
    assert report.pooled == 3
    assert found["samples"][0] == [*one, *two]
    for column in ("result", *STATISTICS):
        assert found[column][0] == pytest.approx(expected[column][0], rel=1e-12), column


def test_samples_that_came_along_count_once(tmp_path: Path) -> None:
    """asv's --append-samples delivers what was on record and the new ones behind it."""
    one, both = [1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 7.0, 8.0]
    assert row(added(tmp_path, sampled(one), sampled(both))[0])["samples"][0] == both
    again, report = added(tmp_path, sampled(both), sampled([7.0, 8.0]))
    assert row(again)["samples"][0] == both and report.pooled == 0


def test_a_workload_more_widens_the_row(tmp_path: Path) -> None:
    old, new = result(BASE, [1.0, 2.0, 3.0], [1, 2, 3]), result(BASE, [9.0, 8.0, 7.0], [1, 2, 3])
    for name in (SPILLS, LEVEL):
        new["results"][name][1] = [["'matmul-0'", "'matmul-c'", "'matmul-a'"]]
    merged, report = added(tmp_path, old, new)
    assert row(merged)["params"] == [["'matmul-a'", "'matmul-b'", "'matmul-c'", "'matmul-0'"]]
    assert row(merged)["result"] == [1.0, 2.0, 3.0, 9.0]
    assert set(report.kept) == {SPILLS, LEVEL}


@pytest.mark.parametrize("known", [True, False])
def test_only_today_s_method_begins_a_row_anew(tmp_path: Path, known: bool) -> None:
    old, new = result(BASE, [1.0, 2.0, 3.0], [1, 2, 3]), result(BASE, [4.0, 5.0, 6.0], [1, 2, 3])
    new["results"][SPILLS][2] = "2"
    new["methods"] = {SPILLS: "2" if known else "1"}
    merged, report = added(tmp_path, old, new)
    assert row(merged)["result"] == ([4.0, 5.0, 6.0] if known else [1.0, 2.0, 3.0])
    assert (report.renewed, report.kept) == (([SPILLS], []) if known else ([], [SPILLS]))


def push(remote: str, folder: Path) -> list[str]:
    said: list[str] = []
    branch.record(remote, [folder], message="Results", tell=said.append)
    return said


def value_on(remote: str, tmp_path: Path) -> list[float]:
    out = tmp_path / "look"
    branch.fetch(remote, out)
    path = out / "results" / MACHINE / f"{BASE[:8]}-{ENVIRONMENT}.json"
    values: list[float] = json.loads(path.read_text())["results"][SPILLS][0]
    return values


LIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another value": lambda d: d | result(BASE, [9, 9, 9], [3, 3, 3]),
    "another environment in a file of that name": lambda d: (
        d | result(BASE, [9, 9, 9], [3, 3, 3], python="9")
    ),
    "another commit in a file of that name": lambda d: result("d" * 40, [9, 9, 9], [3, 3, 3]),
    "a method nobody knows": lambda d: json.loads(
        json.dumps(result(BASE, [9, 9, 9], [3, 3, 3])).replace('"1"', '"2"')
    ),
    "no results at all": lambda d: {**d, "results": {}},
}


@pytest.mark.parametrize("lie", list(LIES))
def test_no_run_rewrites_the_data_branch(remote: str, tmp_path: Path, lie: str) -> None:
    push(remote, results(tmp_path / "one", BASE))
    folder = results(tmp_path / "two", BASE)
    path = folder / MACHINE / f"{BASE[:8]}-{ENVIRONMENT}.json"
    path.write_text(json.dumps(LIES[lie](json.loads(path.read_text()))))
    results(folder, HEAD)  # so that there is something to push
    said = push(remote, folder)
    assert value_on(remote, tmp_path) == [0, 0, 0]
    if lie != "no results at all":
        assert any("what is on record stays" in line for line in said)
        message = git(Path(remote), "log", "-1", "--format=%B", branch.BRANCH)
        assert "what is on record stays" in message, "not silently"


def test_no_run_turns_a_direction(remote: str, tmp_path: Path) -> None:
    push(remote, results(tmp_path / "one", BASE))
    folder = results(tmp_path / "two", "c" * 40)
    turned = json.loads(json.dumps(BENCHMARKS))
    turned[SPILLS] |= {"better": "higher", "exact": False, "params": [["'matmul-z'"]]}
    (folder / "benchmarks.json").write_text(json.dumps(turned))
    said = push(remote, folder)
    out = tmp_path / "out"
    branch.fetch(remote, out)
    entry = json.loads((out / "results" / "benchmarks.json").read_text())[SPILLS]
    assert (entry["better"], entry["exact"]) == ("lower", True)
    assert entry["params"] == [["'matmul-z'"]], "more workloads are welcome"
    assert f"{SPILLS}: better stays 'lower'" in said
