"""What a new run may add to recorded results: points that had none, and further samples.

A value on record is never replaced. Where a point was measured again and both runs kept their
samples, the value is that of all samples; where they did not, the first one stays and is named.
Only another method (asv's ``version``) starts a benchmark's row anew, and that is named as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from scipy import special

from warpwatch.judge.results.strict_json import RejectedError, load

from .shards import COLUMNS, NUMBER, PER_POINT, cells, points, rank

_IDENTITY = ("commit_hash", "env_name", "params", "python", "requirements", "version")
_MOST_SAMPLES = 10_000

Row = dict[str, Any]


@dataclass
class Appended:
    """What became of one file: points by their fate, benchmarks that are worth a word."""

    added: int = 0
    pooled: int = 0
    kept: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)

    def lines(self, name: str) -> list[str]:
        """What whoever records it should read; new points are nothing special."""
        found = []
        if self.pooled:
            found.append(f"{name}: {self.pooled} points measured again, their samples are pooled")
        for benchmark in self.kept:
            found.append(f"{name}: {benchmark} was measured otherwise; what is on record stays")
        for benchmark in self.renewed:
            found.append(f"{name}: {benchmark} is measured by another method, its row begins anew")
        return found


def append(there: Path, new: Path, methods: Mapping[str, str]) -> tuple[dict[str, Any], Appended]:
    """The recorded file ``there`` with what ``new`` adds; ``methods`` are today's versions.

    ``RejectedError`` where ``new`` is not of the same commit, environment and machine.
    """
    old, fresh = load(there), load(new)
    for path, document in ((there, old), (new, fresh)):
        if not isinstance(document, dict) or not isinstance(document.get("results"), dict):
            raise RejectedError(path, ["expected an object with results"])
    differing = [key for key in _IDENTITY if old.get(key) != fresh.get(key)]
    if differing:
        raise RejectedError(new, [f"{', '.join(differing)}: not as in the file on record"])
    report = Appended()
    rows = _rows(old)
    for name, row in _rows(fresh).items():
        if name not in rows:
            rows[name] = row
            report.added += sum(rank(value) == NUMBER for value in row.get("result") or ())
        elif rows[name].get("version") != row.get("version"):
            known = methods.get(name) == row.get("version")
            (report.renewed if known else report.kept).append(name)
            rows[name] = row if known else rows[name]
        elif len(rows[name].get("params") or ()) != len(row.get("params") or ()):
            report.kept.append(name)
        else:
            rows[name] = _append_row(name, rows[name], row, report)
    durations = fresh.get("durations", {}) | old.get("durations", {})
    merged = {**old, "durations": durations, "result_columns": list(COLUMNS)}
    return merged | {"results": {name: cells(row) for name, row in rows.items()}}, report


def _append_row(name: str, old: Row, new: Row, report: Appended) -> Row:
    axes = [
        [*mine, *(value for value in theirs if value not in mine)]
        for mine, theirs in zip(old.get("params") or [], new.get("params") or [], strict=True)
    ]
    before, after = (_regridded(row, axes) for row in (old, new))
    size = math.prod(map(len, axes))
    merged = {**before, "params": axes}
    for column in PER_POINT:
        merged[column] = points(before.get(column), size)
    results = [points(row.get("result"), size) for row in (before, after)]
    differs = False
    for index in range(size):
        mine, theirs = (rank(values[index]) for values in results)
        samples = [_at(row.get("samples"), index) for row in (before, after)]
        if theirs > mine:
            for column in PER_POINT:
                merged[column][index] = _at(after.get(column), index)
            report.added += theirs == NUMBER
        elif mine == theirs == NUMBER:
            pooled = _pooled(*samples) if all(samples) else None
            if pooled is not None and len(pooled) > len(samples[0]):
                for column, value in _statistics(pooled).items():
                    merged[column][index] = value
                report.pooled += 1
            elif pooled is None and results[0][index] != results[1][index]:
                differs = True
    if differs:
        report.kept.append(name)
    for column in PER_POINT - {"result"}:
        if all(value is None for value in merged[column]):
            merged[column] = None
    return merged


def _pooled(old: list[float], new: list[float]) -> list[float] | None:
    """All samples, each once: asv's ``--append-samples`` delivers the old ones along."""
    if new[: len(old)] == old:
        return new[:_MOST_SAMPLES]
    if old[-len(new) :] == new:
        return old
    return [*old, *new] if len(old) + len(new) <= _MOST_SAMPLES else None


def _statistics(samples: Sequence[float]) -> dict[str, Any]:
    """As asv gives them: the median, quartiles, and a 99 % interval of the median.

    The interval lies between two of the sorted samples, by the binomial distribution of how many
    are below the median; with too few for that it is their range.
    """
    ordered = sorted(samples)
    count = len(ordered)
    below = 0
    while below < count // 2 and special.bdtr(below, count, 0.5) <= 0.005:
        below += 1
    low = max(below - 1, 0)
    return {
        "result": _quantile(ordered, 0.5),
        "samples": list(samples),
        "stats_ci_99_a": ordered[low],
        "stats_ci_99_b": ordered[count - 1 - low],
        "stats_q_25": _quantile(ordered, 0.25),
        "stats_q_75": _quantile(ordered, 0.75),
        "stats_repeat": count,
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _regridded(row: Row, axes: Sequence[Sequence[str]]) -> Row:
    """The row over wider axes: what it does not know is left out (NaN), as asv writes it."""
    if row.get("params") == axes:
        return row
    own = list(product(*(row.get("params") or ())))
    places = {point: index for index, point in enumerate(own)}
    wide = list(product(*axes))
    result = {**row}
    for column in PER_POINT & row.keys():
        values = points(row[column], len(own))
        missing = math.nan if column == "result" else None
        result[column] = [values[places[p]] if p in places else missing for p in wide]
    return result


def _rows(document: Mapping[str, Any]) -> dict[str, Row]:
    names = document["result_columns"]
    return {name: dict(zip(names, row, strict=False)) for name, row in document["results"].items()}


def _at(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list) and index < len(values) else None
