"""Every series judged, those that were judged before only where their values changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warpwatch.judge.model.core import Change, SeriesKey, Step
from warpwatch.judge.results.history import Table
from warpwatch.judge.results.processes import Workers

from .changes import changes_of_rows
from .glance import certainly_steady

_BATCH_ROWS = 400  # a quarter of them is looked at closely, as many side by side as help
_WORTH_ROWS = 300

Remembered = dict[str, list[Any]]


@dataclass(frozen=True)
class Judged:
    """The changes of one series; ``digest`` names the history they were found in."""

    digest: str
    changes: tuple[Change, ...]


def judge_tables(
    tables: Sequence[Table], remembered: Remembered, workers: Workers
) -> dict[SeriesKey, Judged]:
    """The judgement of each series, in the order of the tables."""
    tasks = [
        (number, start)
        for number, table in enumerate(tables)
        for start in range(0, len(table.series), _BATCH_ROWS)
    ]
    worth = sum(len(table.series) for table in tables) > _WORTH_ROWS
    found = workers.map_with((tables, remembered), _judge, tasks, worth=worth)
    return {
        info.key: one
        for (number, start), judged in zip(tasks, found, strict=True)
        for info, one in zip(tables[number].series[start:], judged, strict=False)
    }


def _judge(given: tuple[Sequence[Table], Remembered], task: tuple[int, int]) -> list[Judged]:
    tables, remembered = given
    table, start = tables[task[0]], task[1]
    rows = range(start, min(start + _BATCH_ROWS, len(table.series)))
    digests = [table.digest(row) for row in rows]
    new = [row for row, digest in zip(rows, digests, strict=True) if digest not in remembered]
    noisy = [row for row in new if not table.series[row].meaning.exact]
    found: dict[int, tuple[Change, ...]] = dict.fromkeys(certainly_steady(table, noisy), ())
    left = [row for row in new if row not in found]
    found |= zip(left, map(tuple, changes_of_rows(table, left)), strict=True)
    return [
        Judged(digest, found[row])
        if row in found
        else Judged(digest, _changes(table.series[row].key, remembered[digest]))
        for row, digest in zip(rows, digests, strict=True)
    ]


def plain(changes: Sequence[Change]) -> list[Any]:
    """Changes as JSON holds them, to be remembered."""
    return [
        [
            c.verdict,
            [c.step.index, c.step.before, c.step.after, c.step.interval, c.step.confidence],
            c.last_good,
            c.first_commit,
            c.ratio,
        ]
        for c in changes
    ]


def _changes(key: SeriesKey, plain: list[Any]) -> tuple[Change, ...]:
    return tuple(
        Change(key, verdict, Step(i, before, after, tuple(interval), sure), last, first, ratio)
        for verdict, (i, before, after, interval, sure), last, first, ratio in plain
    )
