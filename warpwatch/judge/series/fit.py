"""Levels fitted to a series, and where between two of them a change lies.

The noise around the levels is a density. A change is placed where the probability of being right
within two commits is highest. What noise remembers makes many points in a row tell little, but no
noise leaps by several times what it ever did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.statistics.contrast import memory
from warpwatch.judge.statistics.density import NoiseShape
from warpwatch.judge.statistics.likeliest import Stretches, running

Floats = NDArray[np.float64]

LEAST_POINTS = 3  # on each side; fewer are a spike
WINDOW = 2
_LEVEL_SPREAD = 2.0  # how unsure a level is
_AS_GOOD = 0.02
# A step so many times as high as the noise is none of its deviations.
_BEYOND_SIGMA, _NEARER_NATS = 20.0, 4.0
_SURE_SIDE = 1.5  # five sixths of the way are as good as all of it
_ABRUPT_SIGMA, _ABRUPT = 6.0, 2.0  # nor one so many times as high as its swings
_AS_LIKELY = 0.3  # beside the likeliest place of such a step


@dataclass(frozen=True)
class Points:
    """The finite points: their places in the series, raw and on the scale judged (logarithms of
    positive values, so that a step is a ratio); ``weights`` count repeated runs. ``fits`` keeps
    what was fitted to them, by the edges."""

    places: NDArray[np.int64]
    raw: Floats
    scaled: Floats
    weights: Floats
    fits: dict[tuple[int, ...], Fit | None] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Fit:
    """Segments between ``edges`` (first 0, last n), their levels and the noise around them.

    ``likely`` is the log-likelihood of each segment at its level. ``answers`` keeps what was asked
    of a fit, by the question: the same edges are tried more than once.
    """

    edges: tuple[int, ...]
    levels: Floats
    shape: NoiseShape
    residuals: Floats
    likely: tuple[float, ...]
    answers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _beyond: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def memory(self) -> float:
        return memory(self.residuals)

    @cached_property
    def swing(self) -> float:
        """The farthest that a few neighbours before and after a place lie apart within levels."""
        r = self.residuals
        if len(r) < 2 * LEAST_POINTS:
            return np.inf
        low, high = np.minimum(r[:-2], r[1:-1]), np.maximum(r[:-2], r[1:-1])
        middle = np.maximum(low, np.minimum(high, r[2:]))
        return float(np.abs(middle[LEAST_POINTS:] - middle[:-LEAST_POINTS]).max())

    def is_abrupt(self, k: int) -> bool:
        """Whether the step at edge ``k`` is higher than swings of the noise."""
        return bool(abs(self.levels[k] - self.levels[k - 1]) > _ABRUPT_SIGMA * self.shape.sigma)

    def is_beyond_noise(self, k: int) -> bool:
        """Whether the step at edge ``k`` is far higher than the noise around the levels, or than
        the noise ever moves from some neighbours to the next.

        What the noise remembers are its own deviations: such a step is weighed without memory.
        """
        if k not in self._beyond:
            self._beyond[k] = self._is_beyond_noise(k)
        return self._beyond[k]

    def _is_beyond_noise(self, k: int) -> bool:
        step = float(self.levels[k] - self.levels[k - 1])
        if abs(step) > _BEYOND_SIGMA * self.shape.sigma:
            return True
        if abs(step) <= _ABRUPT_SIGMA * self.shape.sigma:
            return False
        at = self.edges[k]
        near = _middle(self.residuals[at : at + LEAST_POINTS])
        near -= _middle(self.residuals[at - LEAST_POINTS : at])
        return abs(step + near) > _ABRUPT * self.swing


@dataclass(frozen=True)
class Placed:
    """Where a change lies, how probably within ``WINDOW``, and what holds it with 95 %."""

    at: int
    confidence: float
    first: int
    last: int


def sides(x: Floats, before: float, after: float) -> Floats:
    """Of points between or beyond two levels: positive near the newer one, in nats."""
    way = (x - before) / (after - before)
    side: Floats = np.clip(_SURE_SIDE * (2.0 * way - 1.0), -1.0, 1.0) * _NEARER_NATS
    return side


def place_all(asked: Sequence[tuple[Points, Fit]]) -> list[tuple[Placed, ...]]:
    """Where each edge of each fit most probably lies within ``WINDOW``, between its neighbours."""
    edges = [
        (number, k) for number, (_, fit) in enumerate(asked) for k in range(1, len(fit.levels))
    ]
    sides = [_Side(*asked[number], k, after) for after in (False, True) for number, k in edges]
    given = Stretches.joined(
        [one.points for one in sides],
        [one.weights for one in sides],
        [number for number, _ in edges] * 2,
    )
    levels, spreads = (np.array(one) for one in zip(*(s.known for s in sides), strict=True))
    likely = running([fit.shape for _, fit in asked], given, levels, spreads)
    each = np.split(likely, given.starts[1:])
    found: list[list[Placed]] = [[] for _ in asked]
    for (number, k), left, right in zip(edges, each[: len(edges)], each[len(edges) :], strict=True):
        found[number].append(_place(*asked[number], k, (left, right[::-1])))
    return list(map(tuple, found))


def _place(data: Points, fit: Fit, k: int, running: tuple[Floats, Floats]) -> Placed:
    start, _, end = fit.edges[k - 1 : k + 2]
    before, after = fit.levels[k - 1 : k + 1].tolist()
    x, w = data.scaled[start:end], data.weights[start:end]
    far, abrupt = fit.is_beyond_noise(k), fit.is_abrupt(k)
    left, right = running
    if abs(after - before) > _BEYOND_SIGMA * fit.shape.sigma:
        # A value between levels far apart is an outlier of both: it belongs to the nearer one,
        # the surer the nearer it is.
        side = sides(x, before, after) * w
        left = left - np.cumsum(np.maximum(side, 0.0))
        right = right - np.cumsum(np.maximum(-side, 0.0)[::-1])[::-1]
    log_odds = left[LEAST_POINTS - 1 : -LEAST_POINTS] + right[LEAST_POINTS : 1 - LEAST_POINTS]
    if abrupt and not far and fit.memory > 1.0:
        log_odds = _remembered(fit, log_odds, x, (before, after))
    probability = np.exp(log_odds - log_odds.max())
    probability /= probability.sum()
    n = len(probability)
    below = np.concatenate(([0.0], np.cumsum(probability)))
    place = np.arange(n)
    near = below[np.minimum(place + WINDOW + 1, n)] - below[np.maximum(place - WINDOW, 0)]
    # The likeliest place of all that are as good as the best window.
    good = np.where(near >= near.max() - _AS_GOOD, probability, 0.0)
    best = int(np.argmax(good))
    if far:  # where the old level is left, if what follows is not the new one yet
        best = int(np.argmax(good >= _AS_LIKELY * good[best]))
    first = min(int(np.searchsorted(below[1:], 0.025)), best)
    last = max(min(int(np.searchsorted(below[1:], 0.975)), n - 1), best)
    offset = start + LEAST_POINTS
    return Placed(offset + best, min(1.0, float(near[best])), offset + first, offset + last)


def _remembered(fit: Fit, log_odds: Floats, x: Floats, levels: tuple[float, float]) -> Floats:
    """What places cost beside the likeliest, if the noise remembers.

    Many points in a row off their level tell little more than the first of them; but that one
    tells all it can.
    """
    best = int(log_odds.argmax())
    cost = log_odds[best] - log_odds
    before, after = (fit.shape.log_likelihood(x - level) for level in levels)
    moved = (after - before)[LEAST_POINTS:-LEAST_POINTS]
    first = np.zeros_like(cost)
    first[best + 1 :] = np.maximum.accumulate(moved[best:])[: len(cost) - best - 1]
    first[:best] = np.maximum.accumulate(-moved[:best][::-1])[::-1]
    weighed: Floats = -np.maximum(cost / fit.memory, np.minimum(cost, first))
    return weighed


class _Side:
    """The points around edge ``k``, from the side of its older level on or, newest first, from that
    ``after`` it."""

    def __init__(self, data: Points, fit: Fit, k: int, after: bool):
        start, at, end = fit.edges[k - 1 : k + 2]
        way = slice(start, end)
        self.points, self.weights = data.scaled[way], data.weights[way]
        if not (fit.is_beyond_noise(k) or fit.is_abrupt(k)):
            self.weights = self.weights / fit.memory
        if after:
            self.points, self.weights = self.points[::-1], self.weights[::-1]
        length = end - at if after else at - start
        spread = _LEVEL_SPREAD * fit.shape.sigma / math.sqrt(length)
        self.known = float(fit.levels[k] if after else fit.levels[k - 1]), spread


def _middle(few: Floats) -> float:
    """The median of ``LEAST_POINTS`` values."""
    values: list[float] = few.tolist()
    return sorted(values)[LEAST_POINTS // 2]
