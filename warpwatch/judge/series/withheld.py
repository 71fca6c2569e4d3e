"""Changes of compiled values that say nothing without a GPU: no verdict is given on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from warpwatch.judge.model import atomics, search_space
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.results.history import SeriesInfo, Table


@dataclass(frozen=True)
class Withheld:
    """What stands in the place of a verdict, and why."""

    verdict: Verdict
    reason: str


def withheld(table: Table, row: int, columns: Sequence[int | None]) -> Withheld | None:
    """Why a compiled series gets no verdict between two commits.

    Args:
        table: The series' table.
        row: Its row.
        columns: Of the older and the newer commit, ``None`` where one was not measured here.

    Returns:
        ``None`` where nothing stands in the way. Atomics that came or went stand in the way of the
        bound; another configuration of an autotuned kernel in that of all that is read from code.
    """
    info = table.series[row]
    metric = info.meaning.metric
    if not _is_read_from_code(info):
        return None

    def values(name: str) -> list[float | None]:
        other = table.row_of(name, info.workload, info.target)
        return [
            None if other is None or column is None else float(table.values[other, column])
            for column in columns
        ]

    if said := atomics.reason(metric, *values(atomics.METRIC)):
        return Withheld("not applicable", said)
    if said := search_space.reason(metric, *values(search_space.RECORDED)):
        return Withheld("inconclusive", said)
    return None


def withheld_at(table: Table, row: int) -> list[str]:
    """The commits at which a series changed without a verdict, as at a border.

    Args:
        table: The series' table.
        row: Its row.

    Returns:
        Their hashes, oldest first.
    """
    info = table.series[row]
    if not _is_read_from_code(info):
        return []
    columns = table.present(row).tolist()
    values = table.values[row]
    return [
        table.commits[newer].hash
        for older, newer in pairwise(columns)
        if values[older] != values[newer] and withheld(table, row, (older, newer))
    ]


def _is_read_from_code(info: SeriesInfo) -> bool:
    return info.meaning.instrument == "compiled" and info.meaning.role == "verdict"
