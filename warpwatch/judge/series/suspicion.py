"""What may be changing right now: too early to be a step, worth measuring again; and slow slides.

A step needs a few commits before its place is sure. A suspicion needs two or three: it asks for
more runs of the commits it names and never raises an alarm by itself. A slide is a change with no
step in it: each commit moves less than the noise, and a baseline that moves along hides it; so the
baseline is anchored to the first points of the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model.core import Step
from warpwatch.judge.statistics.contrast import memory
from warpwatch.judge.statistics.density import learn, robust_sigma
from warpwatch.judge.statistics.likeliest import best_shift

from .steps import PLACED_CONFIDENCE, changes, find_steps

Floats = NDArray[np.float64]

LEAST_BASELINE = 10
LONGEST_TAIL = 8
SUSPICION_NATS = 6.5  # two or three commits in a thousand, without a reason
FARTHEST = 200  # points of the baseline that are looked at
_ASIDE_SIGMA = 1.0

ANCHOR_POINTS = 30
SLIDE_SIGMA = 4.5  # standard errors between the anchor and now
SLIDE_RELATIVE = 0.01


@dataclass(frozen=True)
class Suspicion:
    """Points ``first`` to ``last`` of the series (inclusive) are worth measuring again.

    ``ratio`` is the suspected level over the one before; ``why`` says what was seen.
    """

    first: int
    last: int
    ratio: float
    why: str


@dataclass(frozen=True)
class Slide:
    """The series moved by ``ratio`` from its anchor to now without a step."""

    ratio: float
    sigmas: float


def suspicions(values: Sequence[float | None]) -> list[Suspicion]:
    """What to measure again in one series: its newest commits, and changes without a sure place."""
    placed = changes(values)
    found = [
        Suspicion(
            first=step.interval[0] - 1,
            last=step.interval[1],
            ratio=step.after / step.before if step.before else float("inf"),
            why=f"a change somewhere here, {step.confidence:.0%} sure of the place",
        )
        for step in placed
        if step.confidence < PLACED_CONFIDENCE
    ]
    start = placed[-1].index if placed else 0
    newest = suspect_newest(values, start)
    if newest is not None and not any(one.last >= newest.first for one in found):
        found.append(newest)
    return found


def suspect_newest(values: Sequence[float | None], start: int = 0) -> Suspicion | None:
    """Whether the newest points left the level that holds since point ``start``.

    One point is never enough: a spike is one point.
    """
    every = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    places = np.flatnonzero(np.isfinite(every))
    places = places[places >= start][-FARTHEST:]
    y = every[places]
    n = len(y)
    if n < LEAST_BASELINE + 2:
        return None
    positive = bool((y > 0.0).all())
    x = np.log(y) if positive else np.clip(y, -1e150, 1e150)
    # The longest tail that still leaves a baseline; its points must not teach the noise.
    longest = min(LONGEST_TAIL, n - LEAST_BASELINE)
    baseline = x[: n - longest]
    level = float(np.median(baseline))
    residuals = x - level
    sigma = robust_sigma(residuals[: n - longest])
    if sigma <= 0.0:
        sigma = max(abs(level), 1.0) * 1e-3 if positive else 1e-3 * max(abs(level), 1e-9)
    shape = learn(residuals[: n - longest], sigma)
    remembers = min(memory(residuals[: n - longest]), 2.0)
    best: tuple[float, int, float] = (0.0, 0, 0.0)
    for points in range(2, longest + 1):
        tail = residuals[n - points :]
        # A tail that hangs together: all on one side, but for one in four.
        aside = max(
            int((tail > _ASIDE_SIGMA * sigma).sum()), int((-tail > _ASIDE_SIGMA * sigma).sum())
        )
        if aside < points - points // 4:
            continue
        middle = float(np.median(tail))
        shift, likelihood = best_shift(shape, tail, middle - 2 * sigma, middle + 2 * sigma)
        evidence = likelihood - float(shape.log_likelihood(tail).sum())
        if evidence > best[0]:
            best = (evidence, points, shift)
    if best[0] < SUSPICION_NATS * remembers:
        return None
    ratio = float(np.exp(best[2])) if positive else float("nan")
    return Suspicion(
        first=int(places[n - best[1] - 1]),
        last=int(places[-1]),
        ratio=ratio,
        why=f"the newest {best[1]} points left the level before them",
    )


def slide(values: Sequence[float | None], steps: Sequence[Step] | None = None) -> Slide | None:
    """A slow slide of the whole series against its anchored baseline, steps taken out."""
    steps = find_steps(values) if steps is None else steps
    every = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    places = np.flatnonzero(np.isfinite(every))
    y = every[places]
    if len(y) < 3 * ANCHOR_POINTS or not (y > 0.0).all():
        return None
    x = np.log(y)
    for step in steps:
        if step.before > 0.0 and step.after > 0.0:
            x[places >= step.index] -= np.log(step.after / step.before)
    difference = float(np.median(x[-ANCHOR_POINTS:]) - np.median(x[:ANCHOR_POINTS]))
    along = np.linspace(-0.5, 0.5, len(x))
    residuals = x - np.median(x) - difference * along
    residuals -= np.median(residuals)
    sigma = robust_sigma(residuals)
    # A median's standard error is 1.25 times that of a mean.
    error = 1.25 * sigma * np.sqrt(2.0 * memory(residuals) / ANCHOR_POINTS)
    if error <= 0.0 or abs(difference) < SLIDE_SIGMA * error or abs(difference) < SLIDE_RELATIVE:
        return None
    return Slide(ratio=float(np.exp(difference)), sigmas=float(abs(difference) / error))
