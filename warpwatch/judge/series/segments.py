"""The levels of a series: which changes between them hold, and where each of them lies.

The noise around the levels is learned as a density. Every change must then earn its place by
likelihood against one common level, weighed down by the memory of the noise. ``fit`` says where
each of those that are left lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.statistics.density import learn, median, robust_sigma
from warpwatch.judge.statistics.likeliest import best_shift, best_shifts, bounds

from .fit import LEAST_POINTS, WINDOW, Fit, Placed, Points, place, sides

Floats = NDArray[np.float64]

LEAST_BETWEEN = 5  # of a level that came and went
EVIDENCE_NATS, _HALF = 10.0, 0.5  # log-likelihood a step needs over no change
SLIDE_NATS = 4.0  # and over the best straight line
_FEW_POINTS_SIGMA = 40.0  # a step is this over (points - 4) sigma high: few points lie
_FAR_SIGMA = 2.0
_LONGEST_BURST, _BURST_SIGMA = 16, 2.5
_ROUNDS = 30  # of pruning and moving; they settle after a few
# Of a slide, in steps a series length.
_SLOPES = np.array([0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5])[:, None]


@dataclass(frozen=True)
class Levels:
    """A fit of which every change has enough evidence, and the place of each change."""

    fit: Fit
    places: tuple[Placed, ...]

    @property
    def changes(self) -> list[int]:
        """The edges without the ends of the series."""
        return list(self.fit.edges[1:-1])


def settle(data: Points, proposals: Sequence[int], floor: float) -> Levels | None:
    """Learn the noise, drop the weakest change, move the others; until nothing moves.

    Args:
        data: the points of the series.
        proposals: where it may change, ascending; each level has ``LEAST_POINTS`` or more.
        floor: the least memory of the noise that every change is weighed down by.

    Returns:
        The levels, ``None`` where no change is left.
    """
    n = len(data.scaled)
    edges = (0, *proposals, n)
    tried: list[tuple[int, ...]] = []
    rounds = _ROUNDS + len(proposals)
    for _ in range(rounds):
        fit = _fitted(data, edges) if len(edges) > 2 else None
        if fit is None:
            return None
        if edges in tried:
            # What follows is known: it goes round until the rounds are over.
            first = tried.index(edges)
            last = tried[first + (rounds - 1 - first) % (len(tried) - first)]
            fit = _fitted(data, last)
            break
        tried.append(edges)
        gone = _weak(data, fit, floor) or _burst(fit)
        if gone:
            edges = tuple(at for k, at in enumerate(edges) if k not in gone)
            continue
        places = _places(data, fit)
        moved = [0]
        for one in places:
            if one.at - moved[-1] >= LEAST_POINTS:
                moved.append(one.at)
        if edges == (*moved, n):
            return Levels(fit, places)
        edges = (*moved, n)
    assert fit is not None
    return Levels(fit, _places(data, fit))


def _places(data: Points, fit: Fit) -> tuple[Placed, ...]:
    return tuple(place(data, fit, k) for k in range(1, len(fit.edges) - 1))


def _fitted(data: Points, edges: tuple[int, ...]) -> Fit | None:
    """The fit between ``edges``; mostly the same are tried more than once."""
    if edges not in data.fits:
        data.fits[edges] = _fit(data, edges)
    return data.fits[edges]


def _fit(data: Points, edges: tuple[int, ...]) -> Fit | None:
    x = data.scaled
    lengths = np.diff(edges)
    levels = np.array([median(x[a:b]) for a, b in pairwise(edges)])
    residuals = x - np.repeat(levels, lengths)
    sigma = robust_sigma(residuals)
    if sigma <= 0.0:
        # Every segment is constant: the smallest change there is stands for several sigmas.
        jumps = np.abs(np.diff(levels))
        sigma = float(jumps[jumps > 0.0].min(initial=np.inf)) / 8.0
        if not np.isfinite(sigma) or sigma < 1e-200:
            return None
    shape = learn(residuals, sigma)
    # A median hangs between modes; the likeliest level does not.
    levels = levels + best_shifts(shape, residuals, -5.0 * sigma, 5.0 * sigma, data.weights, edges)
    residuals = x - np.repeat(levels, lengths)
    shape = learn(residuals, sigma)
    each = shape.log_likelihood(residuals)
    likely = tuple(float(each[a:b] @ data.weights[a:b]) for a, b in pairwise(edges))
    return Fit(edges, levels, shape, residuals, likely)


def _weak(data: Points, fit: Fit, floor: float) -> set[int]:
    """The edge with the least evidence, where it has too little; and with it those that have not
    half of what it takes, no two of them neighbours: each of them would be the next."""
    inner = range(1, len(fit.edges) - 1)
    # Between levels far apart a bound takes a fraction of the time, and mostly it is enough.
    far = [abs(fit.levels[k] - fit.levels[k - 1]) > _FAR_SIGMA * fit.shape.sigma for k in inner]

    def evidence_of(k: int, bound: bool) -> float:
        found = _over_nothing(data, fit, k, bound)
        if fit.is_beyond_noise(k):
            found = max(found, _nearer(data, fit, k)) * max(floor, fit.memory)
        return found

    known = sorted((evidence_of(k, bound), k, bound) for k, bound in zip(inner, far, strict=True))
    faint = [k for evidence, k, bound in known if not bound and evidence < _HALF * EVIDENCE_NATS]
    # No memory is below the floor: mostly it need not be known.
    least = EVIDENCE_NATS * floor
    while known[0][0] < least or known[0][0] < EVIDENCE_NATS * fit.memory:
        _, weakest, bounded = known[0]
        if not bounded:
            weak = {weakest}
            for k in faint:
                if not weak & {k - 1, k + 1}:
                    weak.add(k)
            return weak
        known[0] = evidence_of(weakest, False), weakest, False
        known.sort()
    return set()


def _burst(fit: Fit) -> set[int]:
    """The edges of a level that is none; nothing where every level is one.

    It came and went within a few points, or the noise has such bursts: elsewhere as many points
    lie about as far off, to the same side, or half as many and no farther. Between levels that
    differ it belongs to the nearer one: a step remains.
    """
    for k, points in enumerate(np.diff(fit.edges).tolist()):
        neighbours = fit.levels[[i for i in (k - 1, k + 1) if 0 <= i < len(fit.levels)]]
        heights = fit.levels[k] - neighbours
        up, down = bool((heights > 0.0).all()), bool((heights < 0.0).all())
        if points > _LONGEST_BURST or not (up or down):
            continue
        ends = {k, k + 1} & set(range(1, len(fit.levels)))
        if len(heights) == 2 and np.abs(heights[1] - heights[0]) > 0.5 * np.abs(heights).min():
            ends = {k + int(np.abs(heights).argmin())}
        if len(heights) == 2 and points < LEAST_BETWEEN and not _is_level(fit, k):
            return ends
        height, near = float(np.abs(heights).min()), _BURST_SIGMA * fit.shape.sigma
        start, end = fit.edges[k : k + 2]  # of which neighbours may be part
        away = fit.residuals[: max(start - WINDOW, 0)], fit.residuals[end + WINDOW :]
        off = np.concatenate(away) * (1.0 if up else -1.0)
        off = off[off > max(near, 0.5 * height)]
        if max(len(off), 2 * np.count_nonzero(off - height < near)) >= points:
            return ends
    return set()


def _is_level(fit: Fit, k: int) -> bool:
    """Whether a few points are a level: far from both neighbours, and near each other."""
    if not (fit.is_beyond_noise(k) and fit.is_beyond_noise(k + 1)):
        return False
    height = min(abs(fit.levels[k] - fit.levels[i]) for i in (k - 1, k + 1))
    return bool(np.abs(fit.residuals[fit.edges[k] : fit.edges[k + 1]]).max() < 0.5 * height)


def _over_nothing(data: Points, fit: Fit, k: int, bounded: bool) -> float:
    """How much likelier the two levels around edge ``k`` are than one common level, in nats; or,
    ``bounded``, a value that does not exceed that."""
    start, end = fit.edges[k - 1], fit.edges[k + 1]
    low, high = sorted(fit.levels[k - 1 : k + 1].tolist())
    x, w = data.scaled[start:end], data.weights[start:end]
    if bounded:
        together = float(bounds(fit.shape, x[None], low, high, w)[0])
    else:
        together = best_shift(fit.shape, x, low, high, w)[1]
    return fit.likely[k - 1] + fit.likely[k] - together


def _nearer(data: Points, fit: Fit, k: int) -> float:
    """What the points of the shorter level at edge ``k`` say by how much nearer to it than to the
    other they are, however far from both: in nats, between levels far apart."""
    start, at, end = fit.edges[k - 1 : k + 2]
    before, after = fit.levels[k - 1 : k + 1].tolist()
    short = slice(at, end) if end - at < at - start else slice(start, at)
    side = sides(data.scaled[short], before, after)
    told = float(side @ data.weights[short])
    return told if end - at < at - start else -told


def is_high(fit: Fit, k: int) -> bool:
    """Whether the step at edge ``k`` is high enough for as few points as its two levels have."""
    points = fit.edges[k + 1] - fit.edges[k - 1]
    height = abs(fit.levels[k] - fit.levels[k - 1])
    return bool(height * (points - 4) >= _FEW_POINTS_SIGMA * fit.shape.sigma)


def is_slide(data: Points, fit: Fit, k: int) -> bool:
    """Whether a straight line through both segments is nearly as likely as the step at ``k``."""
    start, at, end = fit.edges[k - 1 : k + 2]
    before, after = fit.levels[k - 1 : k + 1].tolist()
    x, w = data.scaled[start:end], data.weights[start:end]
    step = fit.shape.log_likelihood(x - np.where(np.arange(start, end) < at, before, after)) @ w
    height = after - before
    along = (np.arange(end - start) + 0.5) / (end - start) - 0.5
    middle, reach = 0.5 * (before + after), 0.6 * abs(height)
    rows = x - middle - _SLOPES * height * along
    remembers = 1.0 if fit.is_beyond_noise(k) else fit.memory
    most = float(step) - SLIDE_NATS * remembers
    likely = np.flatnonzero(bounds(fit.shape, rows, -reach, reach, w) > most)
    return any(best_shift(fit.shape, rows[i], -reach, reach, w)[1] > most for i in likely)
