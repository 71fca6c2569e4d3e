"""Where a series changed, and whether for better or worse: the one judgement every page shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model import search_space
from warpwatch.judge.model.core import Better, Change, Step, Verdict
from warpwatch.judge.model.thresholds import Threshold, load
from warpwatch.judge.results.history import Table, state_of
from warpwatch.judge.results.result_file import FAILED, Floats

from .lockstep import Work, together
from .steps import LEAST_BESIDE_END, exact_steps, steps_of

_UNDECIDED = 0.4  # of the way between two levels and beyond, up to the same of the way back
_SAME = 0.2  # of a step: levels that differ by less are one
_WORTH_A_LOOK = 0.02  # of the level, before a border is looked across

Kind = Literal["hurt", "helped", "lost", "gained", "other space"]


def kind(change: Change) -> Kind:
    """The kind of the change, as ``regressions.json`` names it; people read its verdict."""
    if change.verdict in ("missing", "not applicable"):
        return "lost"
    if change.verdict == "inconclusive":
        return "other space"
    if math.isnan(change.step.before):
        return "gained"
    return "hurt" if change.verdict == "regressed" else "helped"


@cache
def _limits() -> Mapping[str, Threshold]:
    """Metrics with a threshold of their own."""
    return load().metrics


def series_changes(table: Table, row: int) -> list[Change]:
    """The changes of one series, none across a border; of evidence only those of search spaces,
    which are neither better nor worse."""
    return changes_of_rows(table, [row])[0]


def changes_of_rows(table: Table, rows: Sequence[int]) -> list[list[Change]]:
    """``series_changes`` of many rows, in a fraction of the time."""
    return together(_series_changes(table, row) for row in rows)


def _series_changes(table: Table, row: int) -> Work[list[Change]]:
    info = table.series[row]
    if info.meaning.metric == search_space.METRIC:
        return _other_spaces(table, row)
    if info.meaning.role != "verdict" or info.meaning.better is None:
        return []
    present = table.present(row)
    values = table.values[row, present]
    if len(values) < 2 or (values == values[0]).all():
        return []
    found: list[tuple[Step, Verdict]] = []
    exact = info.meaning.exact
    counts = _limits().get(info.meaning.metric)
    edges = (0, *table.borders(row), len(values))
    steps: list[Step] = []
    for start, end in pairwise(edges):
        segment = values[start:end]
        for step, verdict in _availability(segment):
            found.append((_moved(step, start), verdict))
        own = exact_steps(segment, counts) if exact else (yield from _noisy_steps(segment))
        steps += [_moved(step, start) for step in own]
    if not exact:
        for start, border, end in zip(edges, edges[1:], edges[2:], strict=False):
            for step in (yield from _beside_border(values, (start, border, end))):
                steps = [one for one in steps if abs(one.index - step.index) >= LEAST_BESIDE_END]
                steps.append(step)
    found += [(step, _direction(step, info.meaning.better)) for step in steps]
    found.sort(key=lambda item: item[0].index)
    finite = np.isfinite(values)

    def commit(point: int) -> str:
        return table.commits[int(present[point])].hash

    return [
        Change(
            info.key,
            verdict,
            step,
            commit(_last_before(finite, step)),
            commit(step.index),
            ratio(step.before, step.after),
        )
        for step, verdict in found
    ]


def _noisy_steps(values: Floats) -> Work[list[Step]]:
    return [at_its_level(step, values) for step in (yield from steps_of(values))]


def _beside_border(values: Floats, edges: tuple[int, int, int]) -> Work[list[Step]]:
    """The steps so near to a border that one side of it has too few points to show them.

    Where the values beside the border are the same, those behind it say how high the level is.
    The border itself changed nothing there, and none of these steps is at it.
    """
    start, border, end = edges
    near = values[max(border - LEAST_BESIDE_END, start) : border + LEAST_BESIDE_END]
    near = near[np.isfinite(near)]
    if len(near) < 2 or abs(near.max() - near.min()) <= _WORTH_A_LOOK * abs(near).max():
        return []
    found = yield from _noisy_steps(values[start:end])
    every = [_moved(step, start) for step in found]
    if any(step.interval[0] <= border <= step.interval[1] for step in every):
        return []
    finite = np.flatnonzero(np.isfinite(values[start:end])) + start
    behind = int(np.searchsorted(finite, border))
    if not 0 < behind < len(finite):
        return []
    beside = values[finite[behind - 1 : behind + 1]]
    return [
        step
        for step in every
        if abs(step.index - border) < LEAST_BESIDE_END
        and abs(np.diff(_way(beside, step))[0]) < _SAME
    ]


def _other_spaces(table: Table, row: int) -> list[Change]:
    """Where autotuned kernels began to choose from other configurations."""
    present = table.present(row)
    columns = present[np.isfinite(table.values[row, present])].tolist()
    places = {column: index for index, column in enumerate(present.tolist())}
    found = []
    for older, newer in pairwise(columns):
        before, after = (float(table.values[row, column]) for column in (older, newer))
        if before != after and table.methods[row, older] == table.methods[row, newer]:
            at = places[newer]
            step = Step(at, before, after, (places[older] + 1, at), 1.0)
            old, new = (table.commits[column].hash for column in (older, newer))
            key = table.series[row].key
            found.append(Change(key, "inconclusive", step, old, new, ratio(before, after)))
    return found


def still_stands(change: Change, last: Change, table: Table, row: int) -> bool:
    """Whether a change is still there after ``last``, the last one of its series: at least a tenth
    of it, or, of what was lost, that it never came back.

    No change reaches across a border, but what is as it was behind one, or back, stands no more.
    """
    before, after = change.step.before, change.step.after
    if math.isnan(after):
        return not np.isfinite(_from(table, row, change.step.index)).any()
    level, border = last.step.after, max(table.borders(row), default=0)
    if border > last.step.index:
        behind = _from(table, row, border)
        behind = behind[np.isfinite(behind)]
        level = float(np.median(behind)) if len(behind) else math.nan
    if math.isnan(level):
        return True
    if change.verdict == "inconclusive":  # of numbers that only stand for something
        return bool(level != before)
    return bool((level - before) * (after - before) > 0.1 * (after - before) ** 2)


def _from(table: Table, row: int, index: int) -> Floats:
    """The values of a series from a point on."""
    values: Floats = table.values[row, table.present(row)[index:]]
    return values


def ends(table: Table, row: int, change: Change) -> tuple[str, str]:
    """The commits that stand for before and after: the last at the old level, the first at the new.

    A noisy step is known to a few commits only, and those next to it may be at the other level or
    spikes: what is shown must be what the verdict speaks of.
    """
    step = change.step
    if table.series[row].meaning.exact or math.isnan(step.after - step.before):
        return change.last_good, change.first_commit
    present = table.present(row)
    half = abs(step.after - step.before) / 2
    first, last = max(step.interval[0] - 3, 0), step.interval[1] + 3
    before, after = present[first : step.index][::-1], present[step.index : last]
    found = []
    for columns, level, likely in (
        (before, step.before, change.last_good),
        (after, step.after, change.first_commit),
    ):
        near = np.abs(table.values[row, columns] - level) < half
        found.append(table.commits[int(columns[near.argmax()])].hash if near.any() else likely)
    return found[0], found[1]


def at_its_level(step: Step, values: Floats) -> Step:
    """The step at the commit, of those that may hold it, that parts old level from new best.

    The likeliest place of a step counts on noise, so beside a commit that ran far off both levels,
    or between levels that lie near a third, it may name a commit whose own value denies it. Where
    several part the levels equally well the likeliest place decides.
    """
    first, last = step.interval
    held = values[first : last + 1]
    known = np.isfinite(held)
    way = _way(held, step)
    # How many values lie on the wrong side if the new level begins at each place.
    new = (known & (way > 1 - _UNDECIDED)).astype(np.int64)
    old = (known & (way < _UNDECIDED)).astype(np.int64)
    early: NDArray[np.int64] = np.cumsum(new) - new
    late: NDArray[np.int64] = np.cumsum(old[::-1])[::-1]
    places = [k for k in range(len(held)) if known[k]]
    best = min(places, key=lambda k: (early[k] + late[k], abs(first + k - step.index)))
    return replace(step, index=first + best)


def _way(values: Floats, step: Step) -> Floats:
    """How far each value is on its way from the old level, 0, to the new one, 1; in ratios where
    all are positive."""
    if min(step.before, step.after, np.nanmin(values, initial=np.inf)) > 0:
        values, (before, after) = np.log(values), np.log((step.before, step.after))
    else:
        before, after = step.before, step.after
    way: Floats = (values - before) / (after - before)
    return way


def ratio(before: float, after: float) -> float:
    """After over before; infinite from zero, NaN where one of them is not a number."""
    if before == 0:
        return 1.0 if after == 0 else float(np.copysign(np.inf, after))
    return after / before


def _moved(step: Step, by: int) -> Step:
    first, last = step.interval
    return replace(step, index=step.index + by, interval=(first + by, last + by))


def _availability(values: Floats) -> Iterator[tuple[Step, Verdict]]:
    """Where a series stops or begins to have a value."""
    finite = np.isfinite(values)
    for index in (np.flatnonzero(finite[1:] != finite[:-1]) + 1).tolist():
        before, after = float(values[index - 1]), float(values[index])
        verdict: Verdict
        if finite[index - 1]:
            verdict = "missing" if state_of(after) == "failed" else "not applicable"
            step = Step(index, before, np.nan, (index, index), 1.0)
        else:
            verdict = "improved" if before == FAILED else "unchanged"
            step = Step(index, np.nan, after, (index, index), 1.0)
        yield step, verdict


def _last_before(finite: np.ndarray[tuple[int], np.dtype[np.bool_]], step: Step) -> int:
    """The last point before the step that has a value, or simply the one before it."""
    earlier = np.flatnonzero(finite[: step.interval[0]])
    if np.isnan(step.before) or not len(earlier):
        return max(step.index - 1, 0)
    return int(earlier[-1])


def _direction(step: Step, better: Better) -> Verdict:
    return "improved" if (step.after < step.before) == (better == "lower") else "regressed"
