"""A lie about the base, or two answers to one question, turns no worse head green."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workflows import stand_in
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, WORSE_HEAD, judge
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    ENVIRONMENT,
    HEAD,
    MACHINE,
    POINTS,
    SPILLS,
    StandIn,
    honest,
    result,
    result_name,
    zipped,
)

FORGED_BASE = result(BASE, [0, 96, 8], [3, 1, 2])
NAMES = [repr(point) for point in POINTS]


def with_rows(document: dict[str, Any], change: Callable[[list[Any]], None]) -> dict[str, Any]:
    """The result with each of its rows changed; the document given stays."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    for row in changed["results"].values():
        change(row)
    return changed


def one_value_more(row: list[Any]) -> None:
    row[0] = [*row[0], 1]
    row[1] = [[*row[1][0], "'matmul-z'"]]


def other_order(row: list[Any]) -> None:
    row[0] = row[0][::-1]
    row[1] = [row[1][0][::-1]]


def other_quotes(row: list[Any]) -> None:
    row[1] = [[f'"{point}"' for point in POINTS]]


def another_method(row: list[Any]) -> None:
    row[2] = "9"


def check_of(github: StandIn, folder: Path, files: dict[str, str]) -> dict[str, Any]:
    github.artifacts[ONE_OF_ONE] = zipped(files)
    judge(folder)
    (check,) = github.checks
    return check


@pytest.mark.parametrize("disguise", [one_value_more, other_order, other_quotes])
def test_a_forged_base_is_refused_in_any_disguise(
    github: StandIn, tmp_path: Path, disguise: Callable[[list[Any]], None]
) -> None:
    both = [with_rows(one, disguise) for one in (WORSE_HEAD, FORGED_BASE)]
    check = check_of(github, tmp_path, honest(*both))
    assert check["conclusion"] == "failure"
    assert "the base is on record with other values" in github.comments[0]["body"]


def test_a_forged_base_of_another_environment_and_the_same_compiler_is_refused(
    github: StandIn, tmp_path: Path
) -> None:
    """Compiled values are one series in every environment of one Triton."""
    triton = {"requirements": {"triton": "3.7.1"}}
    files = honest(WORSE_HEAD | triton, FORGED_BASE | triton)
    files = {k.replace(ENVIRONMENT, "a"): v.replace(ENVIRONMENT, "a") for k, v in files.items()}
    stand_in.write_trusted(tmp_path / "trusted", GOOD_BASE | triton)
    assert check_of(github, tmp_path, files)["conclusion"] == "failure"
    assert "the base is on record with other values" in github.comments[0]["body"]


@pytest.mark.parametrize("base", [None, GOOD_BASE], ids=["base not on record", "base on record"])
def test_a_method_that_the_default_branch_does_not_know_is_refused(
    github: StandIn, tmp_path: Path, base: dict[str, Any] | None
) -> None:
    stand_in.write_trusted(tmp_path / "trusted", base)
    both = [with_rows(one, another_method) for one in (WORSE_HEAD, FORGED_BASE)]
    check = check_of(github, tmp_path, honest(*both))
    assert check["conclusion"] == "failure"
    why = "refused: measured by a method that the default branch does not know"
    assert check["output"]["title"] == why
    body = github.comments[0]["body"]
    assert f"refused: `{SPILLS}: of a method that the default branch does not know`" in body
    assert "merged by hand" in body and "accept it" not in body and "| verdict |" not in body


def test_a_base_that_is_on_record_by_an_older_method_is_judged(
    github: StandIn, tmp_path: Path
) -> None:
    """Once the default branch has a new method, an older branch is measured by it, too."""
    results = stand_in.write_trusted(tmp_path / "trusted", GOOD_BASE)
    newer = {n: one | {"version": "9"} for n, one in BENCHMARKS.items() if n != "version"}
    (results / "benchmarks.json").write_text(json.dumps(newer | {"version": 2}))
    both = [with_rows(one, another_method) for one in (SAME_HEAD, GOOD_BASE)]
    assert check_of(github, tmp_path, honest(*both))["conclusion"] == "success"


def test_a_new_workload_is_judged_and_said_to_be_new(github: StandIn, tmp_path: Path) -> None:
    both = [with_rows(one, one_value_more) for one in (SAME_HEAD, GOOD_BASE)]
    assert check_of(github, tmp_path, honest(*both))["conclusion"] == "success"
    assert "2 values of base are not on record" in github.comments[0]["body"]


def test_two_files_of_one_commit_are_refused(github: StandIn, tmp_path: Path) -> None:
    """The later name would win: a good head after the true one."""
    files = honest(WORSE_HEAD, GOOD_BASE)
    files[f"results/{MACHINE}/{HEAD[:8]}-zzz.json"] = json.dumps(SAME_HEAD)
    assert check_of(github, tmp_path, files)["conclusion"] == "failure"
    assert "expected to be called" in github.comments[0]["body"]


def test_two_values_of_one_point_are_refused(github: StandIn, tmp_path: Path) -> None:
    def twice(row: list[Any]) -> None:
        row[0] = [*row[0], 0 if row[0] == [0, 96, 8] else 3]
        row[1] = [[*NAMES, POINTS[1]]]

    files = honest(WORSE_HEAD, GOOD_BASE)
    files[result_name(HEAD)] = json.dumps(with_rows(WORSE_HEAD, twice))
    assert check_of(github, tmp_path, files)["conclusion"] == "failure"
    assert "one point is there twice" in github.comments[0]["body"]


def test_a_count_below_zero_is_no_improvement(github: StandIn, tmp_path: Path) -> None:
    head = result(HEAD, [0, -96, 8], [3, 3, 2])
    assert check_of(github, tmp_path, honest(head, GOOD_BASE))["conclusion"] == "failure"
    assert f"{SPILLS}: a value below zero" in github.comments[0]["body"]
