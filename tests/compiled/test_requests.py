"""Memory that is asked more often for the same work is said to be worse."""

from __future__ import annotations

from typing import Any

import pytest

from warpwatch.instruments.compiled.diff import requests


def launch(hot_loops: int = 1, num_warps: int = 4, **instructions: int) -> dict[str, Any]:
    usual = {"fma": 16, "global": 4, "shared": 8}
    return {
        "kernel": "k",
        "grid": [8, 1, 1],
        "num_warps": num_warps,
        "hot_loops": [{}] * hot_loops,
        "instructions": usual | instructions,
    }


def said(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [str(one) for one in requests.changes([old], [new])]


def test_loads_that_became_narrow_are_worse() -> None:
    assert said(launch(), launch(**{"global": 32})) == ["global_instructions 4 -> 32"]
    (change,) = requests.changes([launch()], [launch(shared=40)])
    assert (change.metric, change.better) == ("shared_instructions", False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (launch(), launch(**{"global": 6})),  # fewer than twice as many
        (launch(**{"global": 1}), launch(**{"global": 3})),  # too few to say
        (launch(), launch(**{"global": 32}, fma=32)),  # an unrolled loop does more of everything
        (launch(), launch(**{"global": 32}, num_warps=8)),
        (launch(), launch(**{"global": 32}, hot_loops=2)),
        (launch(**{"global": 32}), launch()),
    ],
    ids=["few", "fewer", "unrolled", "warps", "loops", "better"],
)
def test_other_work_is_no_loss(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert said(old, new) == []


def test_another_number_of_launches_says_nothing() -> None:
    assert requests.changes([launch()], [launch(), launch(**{"global": 32})]) == []
