"""A series drawn: its chart as SVG and as data for the script, its line in a table, its noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from warpwatch.judge.model import names
from warpwatch.judge.model.core import Change, SeriesKey
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.results.result_file import Floats
from warpwatch.judge.series.addresses import short_address
from warpwatch.judge.series.noise import Noise, classify, classify_rows
from warpwatch.report import words

from . import svg as charts
from .data import encode, spans


@dataclass(frozen=True)
class Detail:
    """How much is written; a large site shows less, to stay small.

    Newest ``values`` listed, series ``listed`` that moved alike or differ with a finding, points
    ``drawn`` in charts and in ``spark`` lines, commits that can be ``compared`` in the browser,
    whether charts have ``intervals``, and whether pages leave what each new point moves to the
    script (``scripted``).
    """

    values: int
    listed: int
    drawn: int
    spark: int
    compared: int
    intervals: bool
    scripted: bool


FULL = Detail(
    values=12, listed=60, drawn=400, spark=70, compared=400, intervals=True, scripted=False
)
LEAN = Detail(values=2, listed=20, drawn=50, spark=32, compared=8, intervals=False, scripted=True)
_MANY_POINTS = 300_000
Lines = tuple[dict[int, int], NDArray[np.int16]]
_lines: WeakKeyDictionary[Table, dict[tuple[int, tuple[int, int]], Lines]] = WeakKeyDictionary()
_ROWS_AT_ONCE = 256  # copies of a whole table would be the most memory that a page takes


def detail_for(tables: Iterable[Table]) -> Detail:
    return LEAN if sum(table.values.size for table in tables) > _MANY_POINTS else FULL


def title_of(info: SeriesInfo) -> str:
    """A series in the fewest words: metric, workload and target, or benchmark and params."""
    if info.meaning.metric:
        place = f" @ {info.target}" if info.target else ""
        return f"{info.meaning.metric} of {info.workload}{place}"
    key = info.key
    return f"{key.benchmark} ({names.params(key)})" if key.params else key.benchmark


def headline_of(infos: Sequence[SeriesInfo]) -> str:
    """Several series in the fewest words: what metrics, workloads and targets they share."""
    if len(infos) == 1:
        return title_of(infos[0])
    metrics = list(dict.fromkeys(info.meaning.metric or info.key.benchmark for info in infos))
    what = _listed(metrics) if infos[0].meaning.metric else _benchmarks(metrics)
    of = _shared(info.workload for info in infos if info.workload != info.key.benchmark)
    targets = _shared(info.target for info in infos if info.target)
    parts = [what]
    if of or any(info.workload != info.key.benchmark for info in infos):
        count = len({info.workload for info in infos})
        parts.append(f"of {of or f'{count} workloads'}")
    if any(info.target for info in infos):
        count = len({info.target for info in infos})
        parts.append(f"on {targets or f'{count} targets'}")
    return f"{' '.join(parts)} ({len(infos)} series)"


def _benchmarks(names: Sequence[str]) -> str:
    """Benchmarks in few words: what their dotted names share is said once."""
    parts = [name.split(".") for name in names]
    homes = [part[:-1] for part in parts]
    if len(names) > 1 and all(homes):
        if len({part[-1] for part in parts}) == 1:
            columns = enumerate(zip(*homes, strict=False))
            shared = next((place for place, of in columns if len({*of}) > 1), 0)
            own = [".".join(home[min(shared, len(home) - 1) :]) for home in homes]
            return f"{parts[0][-1]} of {_listed(own)}"
        if all(home == homes[0] for home in homes):
            return f"{'.'.join(homes[0])}: {_listed([part[-1] for part in parts])}"
    return _listed(names, most=2)


def _listed(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many are left."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _shared(names: Iterable[str]) -> str:
    """The name all have, or "" where they differ or there is none."""
    found = set(names)
    return found.pop() if len(found) == 1 else ""


def marks_of(changes: Iterable[Change], unit: str) -> list[charts.Mark]:
    return [
        charts.Mark(
            change.step.index,
            change.verdict,
            f"{words.word(change)} {words.size(change, unit)}".rstrip()
            + f" at {change.first_commit[:10]}",
        )
        for change in changes
        if _is_event(change)
    ]


def _is_event(change: Change) -> bool:
    """Whether a chart marks it: that a series begins is seen anyway."""
    return change.verdict != "unchanged"


def chart_of(table: Table, row: int, changes: Iterable[Change], drawn: int) -> str:
    """The chart of a series as SVG, for its own page and for those of its findings."""
    present = table.present(row)
    values = table.values[row, present]
    limits = charts.bounds(values)
    unit = table.series[row].meaning.unit
    ends = [table.commits[present[0]], table.commits[present[-1]]] if len(present) else []
    return charts.history(
        values,
        [f"{c.hash[:8]} {words.day(c.time_s)}" for c in ends],
        [words.quantity(v, unit) for v in limits] if limits else ["", ""],
        "History",
        marks_of(changes, unit),
        table.borders(row),
        drawn,
        table.series[row].meaning.exact,
        limits,
        _strokes(table, row, drawn, charts.CHART),
    )


def _strokes(table: Table, row: int, drawn: int, line: tuple[int, int]) -> list[int] | None:
    """The line of a noisy series that was measured throughout; of others it is drawn point by
    point."""
    if len(table.commits) <= drawn or table.series[row].meaning.exact:
        return None
    known = _lines.setdefault(table, {})
    if (drawn, line) not in known:
        known[drawn, line] = _all_strokes(table, drawn, line)
    places, strokes = known[drawn, line]
    place = places.get(row)
    return None if place is None else strokes[place].tolist()


def _all_strokes(table: Table, drawn: int, line: tuple[int, int]) -> Lines:
    """By row its place among the lines: to draw those of a table at once takes a fifth of the time
    that each of them takes."""
    rows = np.flatnonzero(np.isfinite(table.values).all(axis=1))
    places = dict(zip(rows.tolist(), range(len(rows)), strict=True))
    parts = np.split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE))
    lines = [charts.strokes_of(table.values[part], drawn, line) for part in parts]
    return places, np.concatenate(lines)


def chart_data(
    table: Table, row: int, address: str, changes: Iterable[Change], detail: Detail
) -> dict[str, Any]:
    """The same for the chart script, which looks up every point at ``address``, and there the steps
    of a page that is left to it."""
    meaning = table.series[row].meaning
    data: dict[str, Any] = {
        "of": short_address(address),
        "unit": meaning.unit,
        "better": meaning.better or "",
        "stairs": meaning.exact,
    }
    if not detail.scripted:
        data["steps"] = [_step(change, meaning.unit) for change in changes if _is_event(change)]
        data["borders"] = table.borders(row)
    if not detail.intervals:
        return data
    present = table.present(row)
    values, low, high = (part[row, present] for part in (table.values, table.low, table.high))
    if np.isfinite(low).any():
        data["low"] = encode(_bounded(low, values))
        data["high"] = encode(_bounded(high, values))
    return data


def _step(change: Change, unit: str) -> list[Any]:
    step, size = change.step, words.size(change, unit)
    return [step.index, step.interval, change.verdict, words.word(change), size]


def scripted_data(table: Table, row: int, changes: Iterable[Change]) -> tuple[int, Any, Any]:
    """What the script draws and lists of a series but for its points: whether it has levels, its
    changes with the values before and after, and its borders."""
    meaning = table.series[row].meaning
    steps = [
        [
            *_step(one, meaning.unit),
            *(words.quantity(v, meaning.unit) for v in (one.step.before, one.step.after)),
        ]
        for one in changes
    ]
    return int(meaning.exact), steps, table.borders(row)


def history_data(table: Table, row: int, columns: NDArray[np.intp]) -> tuple[Any, Any]:
    """Every point of a series for scripts: at which commits of the site, and the values."""
    present = table.present(row)
    return spans(columns[present]), encode(table.values[row, present])


def _bounded(edge: np.ndarray[Any, np.dtype[np.float32]], values: np.ndarray[Any, Any]) -> Any:
    wide = edge.astype(np.float64)
    return np.where(np.isfinite(wide), wide, values)


def noises(
    table: Table, rows: Sequence[int], changes: Mapping[SeriesKey, Sequence[Change]]
) -> list[Noise | None]:
    """The noise of several series, as ``noise_of`` tells each; those measured throughout, without
    step or border, are looked at together."""
    values = table.values[list(rows)]
    positive = (values > 0) & (values < np.inf)
    whole: list[bool] = np.all(positive, axis=1).tolist()
    plain = [
        good
        and not table.series[row].meaning.exact
        and not changes.get(table.series[row].key)
        and not table.borders(row)
        for good, row in zip(whole, rows, strict=True)
    ]
    together = iter(classify_rows(values[np.array(plain)]) if any(plain) else ())
    return [
        next(together) if one else noise_of(table, row, changes.get(table.series[row].key, ()))
        for one, row in zip(plain, rows, strict=True)
    ]


def noise_of(table: Table, row: int, changes: Iterable[Change]) -> Noise | None:
    """The noise of a measured series since its last border; exact ones have none."""
    if table.series[row].meaning.exact:
        return None
    start = max(table.borders(row), default=0)
    values = table.values[row, table.present(row)[start:]]
    steps = [
        replace(change.step, index=change.step.index - start)
        for change in changes
        if change.step.index >= start
    ]
    return classify(values, steps)


def spark_of(table: Table, row: int, changes: Iterable[Change], drawn: int = 70) -> Markup:
    """Sparks share the table's columns, so that those below each other can share a cursor."""
    present = table.present(row)
    marks = [
        charts.Mark(int(present[c.step.index]), c.verdict, "") for c in changes if _is_event(c)
    ]
    exact = table.series[row].meaning.exact
    values = table.values[row]
    if len(present) < len(values):
        values = _bridged(values, present, exact)
    return charts.spark(values, marks, drawn, exact, _strokes(table, row, drawn, charts.SPARK))


def _bridged(values: Floats, present: NDArray[np.intp], stairs: bool) -> Floats:
    """The values with those between two measured ones that nobody requested: on a line from one to
    the other, or as the last one where a series has levels."""
    found = values.copy()
    for left, right in pairwise(present.tolist()):
        if right - left > 1 and np.isfinite(values[left]) and np.isfinite(values[right]):
            end = left if stairs else right
            found[left : right + 1] = np.linspace(values[left], values[end], right - left + 1)
            found[right] = values[right]
    return found


def is_flat(table: Table, row: int) -> bool:
    """Whether a series never moved: that needs no picture."""
    values = table.values[row]
    finite = values[np.isfinite(values)]
    return len(finite) == 0 or bool((finite == finite[0]).all())
