"""The judge's own error rates: on noise whose truth is known, synthetic and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs import prior
from warpwatch.judge.pairs.commits import spread_of_lone
from warpwatch.judge.pairs.gate import judge_pairs
from warpwatch.judge.pairs.judgement import Judgement
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.series.fit import WINDOW
from warpwatch.judge.series.lockstep import together
from warpwatch.judge.series.steps import changes, steps_of
from warpwatch.judge.series.suspicion import slide, suspect_newest
from warpwatch.judge.statistics import synthetic
from warpwatch.judge.statistics.paired import Prior

Floats = NDArray[np.float64]
# Of each series the indexes at which a detector says that a new level begins.
Detector = Callable[[Sequence[Floats]], Sequence[Sequence[int]]]
Noise = Callable[[int, np.random.Generator], Floats]

POINTS = 200
MARGIN = 20


@dataclass(frozen=True)
class Found:
    """Of ``series`` with one step each: steps reported, and series whose step was among them,
    within two commits."""

    series: int
    reported: int
    hits: int

    @property
    def precision(self) -> float:
        return self.hits / self.reported if self.reported else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.series


@dataclass(frozen=True)
class GateRate:
    """Of ``gates``: how many said regressed, how many improved, how many pairs they took, and how
    many of them no more than are measured side by side at first."""

    gates: int
    regressed: int
    improved: int
    pairs: float
    most_pairs: int
    first_batch: int

    @property
    def alarms(self) -> int:
        return self.regressed + self.improved


def ours(pool: Sequence[Floats]) -> list[list[int]]:
    """The steps that the judge finds, series side by side as a report judges them."""
    found = together(steps_of(values.tolist()) for values in pool)
    return [[step.index for step in steps] for steps in found]


def made(kind: synthetic.Kind, sigma: float) -> Noise:
    return lambda points, random: 100.0 * np.exp(synthetic.noise(kind, points, sigma, random))


def steps_found(detector: Detector, noise: Noise, step: float, series: int, seed: int) -> Found:
    """Precision and recall on series of 200 points with one step at a random place."""
    random = np.random.default_rng(seed)
    pool = [_with_step(noise, step, random) for _ in range(series)]
    reported = hits = 0
    for (_, where), found in zip(pool, detector([values for values, _ in pool]), strict=True):
        reported += len(found)
        hits += any(abs(index - where) <= WINDOW for index in found)
    return Found(series, reported, hits)


def recall_at(precision: float, noise: Noise, step: float, series: int, seed: int) -> float:
    """Our recall at the confidence from which on the precision is at least this."""
    random = np.random.default_rng(seed)
    found: list[tuple[float, bool]] = []
    for _ in range(series):
        values, where = _with_step(noise, step, random)
        for one in changes(values.tolist()):
            found.append((one.confidence, abs(one.index - where) <= WINDOW))
    best, hits = 0.0, 0
    for count, (_, hit) in enumerate(sorted(found, reverse=True), start=1):
        hits += hit
        if hits / count >= precision:
            best = hits / series
    return best


def false_alarms(detector: Detector, noise: Noise, series: int, seed: int) -> float:
    """Steps reported for 1000 points of series without any."""
    random = np.random.default_rng(seed)
    alarms = sum(map(len, detector([noise(POINTS, random) for _ in range(series)])))
    return 1000.0 * alarms / (series * POINTS)


def suspected(noise: Noise, step: float, points: int, series: int, seed: int, runs: int) -> float:
    """Share of steps that are suspected ``points`` commits after they came, each commit being
    the median of ``runs`` runs."""
    random = np.random.default_rng(seed)
    seen = 0
    for _ in range(series):
        values = np.median([noise(100 + points, random) for _ in range(runs)], axis=0)
        values[100:] *= 1.0 + step
        seen += suspect_newest(values.tolist()) is not None
    return seen / series


def needless_suspicions(noise: Noise, series: int, seed: int) -> float:
    """Suspicions without a reason for 1000 new commits; those of neighbours count once."""
    random = np.random.default_rng(seed)
    count = commits = 0
    for _ in range(series):
        values = noise(POINTS, random).tolist()
        last = -POINTS
        for newest in range(60, POINTS):
            commits += 1
            if suspect_newest(values[:newest]) is not None:
                count += newest - last > 8
                last = newest
    return 1000.0 * count / commits


def slides_seen(noise: Noise, series: int, seed: int) -> float:
    random = np.random.default_rng(seed)
    return sum(slide(noise(POINTS, random).tolist()) is not None for _ in range(series)) / series


def gates(
    noises: Sequence[Noise],
    change: float,
    count: int,
    seed: int,
    told: float | None = None,
    metric: str = "latency_cold",
) -> GateRate:
    """Gates on pairs drawn in random order, head slower by ``change``.

    Args:
        noises: Each gate draws its runs from one of them.
        change: By how much head is slower.
        count: How many gates.
        seed: Of the random numbers.
        told: The gate knows a prior, which says so many times the true spread; none without.
        metric: Whose threshold holds.

    Returns:
        What they said, and after how many pairs.
    """
    random = np.random.default_rng(seed)
    limits = thresholds.load().of(metric)
    priors = [_told(noise, told, seed) for noise in noises]
    plan = Plan()
    found: list[Judgement] = []
    for _ in range(count):
        which = int(random.integers(len(noises))) if len(noises) > 1 else 0
        runs = noises[which](2 * plan.most_pairs, random).reshape(plan.most_pairs, 2)
        swapped = random.random(plan.most_pairs) < 0.5
        runs[swapped] = runs[swapped][:, ::-1]
        base, head = runs[:, 0], runs[:, 1] * (1.0 + change)
        # A gate ends at the first look that decides, however many pairs there are.
        found.append(judge_pairs(base, head, "lower", limits, plan, priors[which]).judgement)
    verdicts = [one.verdict for one in found]
    pairs = [one.pairs for one in found]
    return GateRate(
        gates=count,
        regressed=verdicts.count("regressed"),
        improved=verdicts.count("improved"),
        pairs=float(np.mean(pairs)),
        most_pairs=max(pairs),
        first_batch=sum(one <= plan.first for one in pairs),
    )


def _told(noise: Noise, factor: float | None, seed: int) -> Prior | None:
    """What a history of this noise says of its spread, times ``factor``."""
    if factor is None:
        return None
    history = noise(POINTS, np.random.default_rng(seed))
    return Prior(factor * spread_of_lone(history), prior.MOST_WEIGHT)


def cpu_seconds(detector: Detector, series: int, seed: int) -> float:
    """Processor time for 1000 series of 500 points, half of them with a 5 % step."""
    random = np.random.default_rng(seed)
    pool = [
        synthetic.series("lognormal", 500, 0.01, random, step=0.05 * (i % 2)).values
        for i in range(series)
    ]
    begin = time.process_time()
    detector(pool)
    return (time.process_time() - begin) * 1000.0 / series


def _with_step(noise: Noise, step: float, random: np.random.Generator) -> tuple[Floats, int]:
    values = noise(POINTS, random)
    where = int(random.integers(MARGIN, POINTS - MARGIN + 1))
    values[where:] *= 1.0 + step
    return values, where
