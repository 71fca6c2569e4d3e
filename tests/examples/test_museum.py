"""The museum: its exhibits are whole, a part is replayed, and the page is of today's cases."""

from __future__ import annotations

import json
import re

import pytest

from examples.museum import __main__ as museum
from examples.museum import replay
from examples.museum.case import Case, edited
from examples.museum.cases import CASES
from examples.museum.harmless import HARMLESS
from tests.root import ROOT
from warpwatch.config import targets

PAGE = ROOT / "docs" / "results" / "data" / "museum.json"
# One compilation each, or two: the rest is for `make museum`.
REPLAYED = (
    "zeros-for-empty",
    "rows-out-of-step",
    "configuration-does-not-compile",
    "causal-not-skipped",
)
QUIET = ("gate-1", "gate-4", "gate-6")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_exhibit_is_whole(case: Case) -> None:
    before, after = edited(case.file, case.before), edited(case.file, case.after)
    for text in (before, after):
        compile(text, case.file, "exec")
    assert (before != after) == (case.tritons is None)
    assert set(case.worse) <= set(case.targets) <= {one.name for one in targets.KNOWN}
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", case.source)


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 24 and len(HARMLESS) == 48
    names = [one.name for one in (*CASES, *HARMLESS)]
    assert len(set(names)) == len(names)
    for one in HARMLESS:
        assert edited(one.file, one.edits) != edited(one.file, ())


def test_a_part_of_it_is_replayed() -> None:
    rows = replay.replay(
        [one for one in CASES if one.name in REPLAYED],
        [one for one in HARMLESS if one.name in QUIET],
    )
    assert [row.name for row in rows if not row.right] == []
    assert len(rows) == len(REPLAYED) + len(QUIET)


def test_an_edit_that_costs_something_is_flagged() -> None:
    """What the harmless edits are held against can fail."""
    (copied,) = (one for one in CASES if one.name == "staged-output")
    edit = replay.Harmless("copied", "an output is copied", copied.file, copied.after, ("gfx942",))
    (row,) = replay.replay([], [edit])
    assert row.flagged == ("gfx942",) and "copied_bytes 0 -> 33,554,432" in row.said
    assert museum.differences([row])


def test_the_page_is_of_these_exhibits() -> None:
    rows = json.loads(PAGE.read_text(encoding="utf-8"))["rows"]
    today = {one.name: (one.source, list(one.worse), one.missed) for one in CASES}
    today |= {one.name: ("", [], "") for one in HARMLESS}
    for row in rows:
        assert (row["source"], row["expected"], row["missed"]) == today[row["name"]]
        right = row["found"] and row["cause"] and row["target"]
        assert right != bool(row["missed"]), row["name"]
