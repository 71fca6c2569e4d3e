"""The judge's error rates on histories as projects have them: several steps, gaps, failures,
machines that take turns, and findings whose range must hold the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.findings.grouping import group
from warpwatch.judge.model.core import Commit, SeriesKey
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.results.history import History, SeriesInfo, Table
from warpwatch.judge.series.changes import series_changes
from warpwatch.judge.series.fit import WINDOW
from warpwatch.judge.statistics import synthetic

from .error_rates import Detector, Floats, Found

LENGTHS = (24, 36, 45, 60, 100, 200, 500)


@dataclass(frozen=True)
class Case:
    """Series to be made: ``steps`` changes of ``size``, levels of at least ``gap`` points, over
    noise of one kind; ``back`` returns to the first level at each second change."""

    name: str
    steps: tuple[int, ...]
    size: float
    sigma: float
    gap: int
    kind: synthetic.Kind = "plain"
    back: bool = False
    missing: float = 0.0
    in_turn: float = 0.0


CASES = (
    Case("two of 50 %, noise 2 %", (2,), 0.5, 0.02, 5),
    Case("up 50 % and back, noise 2 %", (2,), 0.5, 0.02, 5, back=True),
    Case("2 to 6 of 10 %, noise 2 %", (2, 3, 4, 5, 6), 0.1, 0.02, 8),
    Case("2 to 6 of 5 %, noise 1 %, outliers", (2, 3, 4, 5, 6), 0.05, 0.01, 8, "lognormal"),
    Case("2 to 4 of 5 % and back, noise 1 %, outliers", (2, 4), 0.05, 0.01, 8, "lognormal", True),
    Case("2 to 4 of 10 %, drifting", (2, 3, 4), 0.1, 0.01, 8, "drifting"),
    Case("2 to 4 of 20 %, gpu-like", (2, 3, 4), 0.2, 0.01, 8, "gpu-like"),
    Case("2 to 4 of 10 %, a fifth missing", (2, 3, 4), 0.1, 0.02, 10, missing=0.2),
    Case("one of 50 %, two machines 10 % apart in turn", (1,), 0.5, 0.01, 10, in_turn=0.1),
)


def several_found(detector: Detector, case: Case, series: int, seed: int) -> Found:
    """Precision and recall over all steps of series of many lengths.

    Args:
        detector: what looks for steps; it sees no gaps.
        case: what is made.
        series: how many, in equal parts of each length that has room.
        seed: of the random numbers.

    Returns:
        Its ``series`` counts steps, each is found within ``WINDOW`` commits; of several reports of
        one step only one is right.
    """
    random = np.random.default_rng(seed)
    pool: list[tuple[list[int], NDArray[np.intp], Floats]] = []
    for number in range(series):
        count = case.steps[number % len(case.steps)]
        lengths = [n for n in LENGTHS if n >= case.gap * (count + 1)]
        points = lengths[number // len(case.steps) % len(lengths)]
        places = synthetic.places(points, count, case.gap, random)
        values = _made(case, places, points, random)
        kept = np.flatnonzero(np.isfinite(values))
        pool.append((places, kept, values[kept]))
    steps = reported = hits = 0
    said = detector([values for _, _, values in pool])
    for (places, kept, _), indexes in zip(pool, said, strict=True):
        found = kept[np.asarray(indexes, dtype=np.int64)].tolist()
        steps, reported = steps + len(places), reported + len(found)
        hits += sum(any(abs(at - place) <= WINDOW for at in found) for place in places)
    return Found(steps, reported, hits)


def _made(case: Case, places: list[int], points: int, random: np.random.Generator) -> Floats:
    signs = np.where(random.random(len(places)) < 0.5, 1.0, -1.0)
    if case.back:
        signs = signs[0] * (-1.0) ** np.arange(len(places))
    levels = np.cumsum([0.0, *(signs * np.log1p(case.size))])
    logs = np.repeat(levels, np.diff([0, *places, points]))
    logs = logs + synthetic.noise(case.kind, points, case.sigma, random)
    logs += np.where(random.random(points) < 0.5, np.log1p(case.in_turn), 0.0)
    values: Floats = 100.0 * np.exp(logs)
    values[random.random(points) < case.missing] = np.nan
    return values


@dataclass(frozen=True)
class Ranges:
    """Of the ``findings`` in made histories: those whose range holds a true commit, those that
    hold the likeliest commit of their costliest series, the commits in a range on average, how
    sure they say they are on average, and true changes for each finding."""

    findings: int
    true: int
    own: int
    commits: float
    sure: float
    causes: int


def ranges(histories: int, seed: int) -> Ranges:
    """How true the ranges of findings are: 120 commits, 40 series of three noises, six commits
    that slow 1 to 12 of them down by 3 to 30 %.

    Args:
        histories: how many are made.
        seed: of the random numbers.

    Returns:
        What was counted.
    """
    random = np.random.default_rng(seed)
    found = true = own = causes = 0
    widths: list[int] = []
    sure: list[float] = []
    for _ in range(histories):
        kinds: Sequence[synthetic.Kind] = ("plain", "lognormal", "autocorrelated")
        logs = np.array([synthetic.noise(kinds[row % 3], 120, 0.01, random) for row in range(40)])
        places = synthetic.places(120, 6, 10, random)
        for at in places:
            rows = random.choice(40, int(random.integers(1, 13)), replace=False)
            logs[rows, at:] += np.log1p(random.uniform(0.03, 0.3, len(rows)))[:, None]
        made = _history(100.0 * np.exp(logs))
        (table,) = made.tables
        changes = [one for row in range(40) for one in series_changes(table, row)]
        likeliest = {(one.series, one.step): one.first_commit for one in changes}
        names = {made.commits[at].hash for at in places}
        causes += len(places)
        for finding in group(changes, made):
            if finding.verdict != "regressed":
                continue
            found += 1
            true += bool(names & set(finding.commits))
            first = finding.changes[0]
            own += likeliest[first.series, first.step] in finding.commits
            widths.append(len(finding.commits))
            sure.append(finding.sure)
    return Ranges(found, true, own, float(np.mean(widths)), float(np.mean(sure)), causes)


def _history(values: Floats) -> History:
    """Rows of times as the history of one machine, in microseconds."""
    rows, count = values.shape
    hashes = [f"{i:040x}" for i in range(count)]
    commits = tuple(
        Commit(h, (hashes[i - 1],) if i else (), i, "", "", i) for i, h in enumerate(hashes)
    )
    meaning = Meaning("us", "lower", "verdict", False, "latency", "latency")
    infos = tuple(
        SeriesInfo(SeriesKey("made", "", "latency", (str(row),)), meaning, str(row), "")
        for row in range(rows)
    )
    blank = np.full(values.shape, np.nan, dtype=np.float32)
    table = Table(
        machine="made",
        environment="",
        series=infos,
        commits=commits,
        values=values,
        low=blank,
        high=blank,
        methods=np.zeros(values.shape, dtype=np.int32),
        platforms=np.zeros(count, dtype=np.int32),
        platform_names=("",),
        started_ms=np.zeros(count, dtype=np.int64),
        machine_fields={},
    )
    return History(commits, (table,))
