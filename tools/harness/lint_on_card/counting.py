"""Counts how many configurations that fell are slower on a card than the best that did not.

A card is asked once. Times of every configuration are kept, so that a later lint, whose model or
rule is another, is held against the same times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SLOWER, SHARE = 1.1, 0.9
# The median time of a configuration and the ends of its interval; infinite where it does not run.
Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Counted:
    """``ratios`` are those of the configurations that fell to the best of the others."""

    lines: tuple[str, ...]
    ratios: tuple[float, ...]

    @property
    def slower(self) -> int:
        return sum(one >= SLOWER for one in self.ratios)

    @property
    def is_enough(self) -> bool:
        """Whether nine of ten that fell are at least a tenth slower."""
        return self.slower >= SHARE * len(self.ratios)

    @property
    def summary(self) -> str:
        total = len(self.ratios)
        share = f" ({100 * self.slower / total:.0f} %)" if total else ""
        return (
            f"{self.slower} of {total} configurations that fell are at least "
            f"{100 * (SLOWER - 1):.0f} % slower than the best of the others{share}"
        )


def counted(job: Mapping[str, Any], timed: Mapping[str, Any]) -> Counted:
    """Hold a job against times.

    Args:
        job: As ``prepare`` wrote it.
        timed: As ``time`` wrote it, of the same tables and shapes.

    Returns:
        A table of each case, and the ratios.

    Raises:
        ValueError: No case of the job was timed.
    """
    known = {_case(one): _times(one) for one in timed["cases"]}
    cases = [(one, known[_case(one)]) for one in job["cases"] if _case(one) in known]
    if not cases:
        raise ValueError("TIMES: expected the cases of the job, got times of none of them")
    found = [of_case(case, times) for case, times in cases]
    untimed = len(job["cases"]) - len(cases)
    return Counted(
        (*(line for one in found for line in one.lines), *_missing(untimed, "cases")),
        tuple(ratio for one in found for ratio in one.ratios),
    )


def of_case(case: Mapping[str, Any], times: Times) -> Counted:
    """Hold one case against times.

    Args:
        case: As ``prepare`` wrote it.
        times: By the configuration as JSON.

    Returns:
        The case with every configuration of it that was timed.
    """
    every = [(one, times[_key(one)]) for one in _rows(case) if _key(one) in times]
    fell = [_key(one) for one in case["fell"]]
    best = min((row[0] for one, row in every if _key(one) not in fell), default=math.inf)
    shape = " ".join(f"{name}={value}" for name, value in case["shape"].items())
    lines = [f"{case['kernel']} {case['table']} ({case['tuned_for']}) {shape}: best {best:.1f} us"]
    for one, (us, low, high) in every:
        lines.append(
            f"  {'fell ' if _key(one) in fell else 'other'} {one['name']:>6} {us:9.1f} us "
            f"{us / best:6.2f} ({low / best:.2f} to {high / best:.2f})  "
            f"predicted {one['predicted_us']:9.1f} us  {'; '.join(one.get('reasons', ()))[:110]}"
        )
    lines += _missing(len(_rows(case)) - len(every), "configurations")
    if math.isinf(best):
        return Counted((*lines, "  none of the others has a time: not counted"), ())
    return Counted(tuple(lines), tuple(row[0] / best for one, row in every if _key(one) in fell))


def with_times(case: Mapping[str, Any], times: Times) -> dict[str, Any]:
    """Write times into a case.

    Args:
        case: As ``prepare`` wrote it.
        times: By the configuration as JSON.

    Returns:
        The case as JSON has it: ``null`` for what does not run.
    """

    def row(one: Mapping[str, Any]) -> dict[str, Any]:
        us = [round(value, 3) if math.isfinite(value) else None for value in times[_key(one)]]
        return {**one, "us": us}

    return {**case, **{kind: [row(one) for one in case[kind]] for kind in ("fell", "others")}}


def _times(case: Mapping[str, Any]) -> Times:
    return {
        _key(one): [math.inf if value is None else value for value in one["us"]]
        for one in _rows(case)
    }


def _rows(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*case["fell"], *case["others"]]


def _case(case: Mapping[str, Any]) -> str:
    return json.dumps([case[one] for one in ("kernel", "table", "shape")], sort_keys=True)


def _key(one: Mapping[str, Any]) -> str:
    return json.dumps(one["config"], sort_keys=True)


def _missing(number: int, what: str) -> Iterator[str]:
    if number:
        yield f"  {number} {what} have no time"
