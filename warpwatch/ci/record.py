"""Whether what a job reports agrees with what the default branch has on record.

The record was measured before anyone wrote the pull request. It is compared point by point, as the
series are made: a value more in a list of parameters, or another order of them, hides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpwatch.judge.model.benchmark import Benchmark
from warpwatch.judge.results.assembly import compiler_of
from warpwatch.judge.results.asv_results import combinations
from warpwatch.judge.results.folders import Results
from warpwatch.judge.results.result_file import ResultFile, Row

_MOST_TOLD = 20

# Where a compiled value was made or an environment's name, a benchmark, and its parameters.
Point = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Held:
    """What came of holding an artifact against the record."""

    forged: tuple[str, ...]
    """Why it is refused: values of base that are on record otherwise, and impossible ones."""
    strange_methods: tuple[str, ...]
    """Benchmarks that are measured by a method that the default branch does not know."""
    unknown_points: int
    """Exact values of base that the record has not: the job alone says what base was there."""


def held_against(past: Results, claims: Sequence[Results], base: str, *, complete: bool) -> Held:
    """Hold what a job reports against the record.

    Args:
        past: The default branch's results of the same machines, with its ``benchmarks.json``.
        claims: What the job delivered, a folder a lane.
        base: The commit compared with.
        complete: Whether every shard came; the points of one that did not are not compared.

    Returns:
        What does not agree.
    """
    known = [file for _, file in past.files if file.commit == base]
    claimed = [file for folder in claims for _, file in folder.files]
    exact = {name for name, one in past.benchmarks.items() if one.attributes.get("exact") is True}
    record = {
        point: (row.version, value)
        for file in known
        for row in file.rows
        if row.benchmark in exact
        for point, value in _points(file, row, past.benchmarks)
    }
    found: dict[str, None] = {}
    unknown = 0
    for file in claimed:
        for row in file.rows:
            if row.benchmark not in exact:
                continue
            for point, value in _points(file, row, past.benchmarks):
                version, ours = record.get(point, (None, math.nan))
                if value < 0 and not ours < 0:
                    found[f"{row.benchmark}: a value below zero"] = None
                if file.commit != base or not known:
                    continue
                if version is None:
                    unknown += math.isfinite(value)
                elif version == row.version and not _same(ours, value, complete):
                    found[f"{row.benchmark}: the base is on record with other values"] = None
    return Held(tuple(found)[:_MOST_TOLD], _strange_methods(past, known, claimed), unknown)


def _points(
    file: ResultFile, row: Row, benchmarks: dict[str, Benchmark]
) -> Iterator[tuple[Point, float]]:
    described = benchmarks.get(row.benchmark, Benchmark(row.benchmark))
    compiled = described.attributes.get("instrument") == "compiled"
    home = compiler_of(file) if compiled else file.environment
    values = file.values[row.offset : row.offset + row.size].tolist()
    for combination, value in zip(combinations(row.params), values, strict=True):
        yield (home, row.benchmark, combination), value


def _same(ours: float, theirs: float, complete: bool) -> bool:
    """Failed and skipped values are equal to their own kind alone."""
    if not complete and not math.isfinite(theirs):
        return True
    return ours == theirs or (math.isnan(ours) and math.isnan(theirs))


def _strange_methods(
    past: Results, known: Sequence[ResultFile], claimed: Sequence[ResultFile]
) -> tuple[str, ...]:
    """Today's method is in ``benchmarks.json``; base may be on record by the one of its day."""
    methods = {name: {one.version} for name, one in past.benchmarks.items() if one.version}
    for file in known:
        for row in file.rows:
            methods.get(row.benchmark, set()).add(row.version)
    strange = {
        row.benchmark
        for file in claimed
        for row in file.rows
        if row.version not in methods.get(row.benchmark, {row.version})
    }
    return tuple(sorted(strange))
