"""The levels of a series: which changes between them hold, and where each of them lies.

The noise around the levels is learned as a density. Every change must then earn its place by
likelihood against one common level, weighed down by the memory of the noise. ``fit`` says where
each of those that are left lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.statistics.density import NoiseShape, learn_all, median, robust_sigma
from warpwatch.judge.statistics.likeliest import Stretches, best_shifts, likeliest

from .fit import LEAST_POINTS, WINDOW, Fit, Placed, Points, place_all, sides
from .lockstep import Work

Floats = NDArray[np.float64]

LEAST_BETWEEN = 5  # of a level that came and went
EVIDENCE_NATS, _HALF = 10.0, 0.5  # log-likelihood a step needs over no change
SLIDE_NATS = 4.0  # and over the best straight line
_FEW_POINTS_SIGMA = 40.0  # a step is this over (points - 4) sigma high: few points lie
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


def settle(data: Points, proposals: Sequence[int], floor: float) -> Work[Levels | None]:
    """Learn the noise, drop the weakest change, move the others; until nothing moves.

    Args:
        data: the points of the series.
        proposals: where it may change, ascending; each level has ``LEAST_POINTS`` or more.
        floor: the least memory of the noise that every change is weighed down by.

    Returns:
        The levels, ``None`` where no change is left; as work to be done with that of others.
    """
    n = len(data.scaled)
    edges = (0, *proposals, n)
    tried: list[tuple[int, ...]] = []
    rounds = _ROUNDS + len(proposals)
    for _ in range(rounds):
        fit = (yield from _fitted(data, edges)) if len(edges) > 2 else None
        if fit is None:
            return None
        if edges in tried:
            # What follows is known: it goes round until the rounds are over.
            first = tried.index(edges)
            last = tried[first + (rounds - 1 - first) % (len(tried) - first)]
            fit = yield from _fitted(data, last)
            break
        tried.append(edges)
        gone = (yield from _weak(data, fit, floor)) or _burst(fit)
        if gone:
            edges = tuple(at for k, at in enumerate(edges) if k not in gone)
            continue
        places = yield from _placed(data, fit)
        moved = [0]
        for one in places:
            if one.at - moved[-1] >= LEAST_POINTS:
                moved.append(one.at)
        if edges == (*moved, n):
            return Levels(fit, places)
        edges = (*moved, n)
    assert fit is not None
    return Levels(fit, (yield from _placed(data, fit)))


def _fitted(data: Points, edges: tuple[int, ...]) -> Work[Fit | None]:
    """The fit between ``edges``; mostly the same are tried more than once."""
    if edges not in data.fits:
        data.fits[edges] = yield fit_all, (data, edges)
    return data.fits[edges]


def _placed(data: Points, fit: Fit) -> Work[tuple[Placed, ...]]:
    """Where the edges of a fit lie, asked once."""
    if "places" not in fit.answers:
        fit.answers["places"] = yield place_all, (data, fit)
    places: tuple[Placed, ...] = fit.answers["places"]
    return places


def fit_all(asked: Sequence[tuple[Points, tuple[int, ...]]]) -> list[Fit | None]:
    """A fit of each series between its edges, ``None`` where nothing is apart from anything."""
    x = [data.scaled for data, _ in asked]
    levels = [
        np.array([median(data.scaled[a:b]) for a, b in pairwise(edges)]) for data, edges in asked
    ]
    sigmas = np.array(
        [_sigma(one, level, edges) for one, level, (_, edges) in zip(x, levels, asked, strict=True)]
    )
    if not (sigmas > 0.0).all():
        some = [one for one, sigma in zip(asked, sigmas.tolist(), strict=True) if sigma > 0.0]
        found = iter(fit_all(some) if some else [])
        return [next(found) if sigma > 0.0 else None for sigma in sigmas.tolist()]
    ends = np.cumsum([0, *map(len, x)])
    starts = np.concatenate(
        [np.array(edges[:-1]) + end for (_, edges), end in zip(asked, ends.tolist(), strict=False)]
    )
    owners = np.repeat(np.arange(len(asked)), list(map(len, levels)))
    every, weights = np.concatenate(x), np.concatenate([data.weights for data, _ in asked])
    level, lengths = np.concatenate(levels), np.diff(starts, append=len(every))
    residuals = every - np.repeat(level, lengths)
    shapes, _ = learn_all(residuals, ends, sigmas)
    # A median hangs between modes; the likeliest level does not.
    level += best_shifts(shapes, Stretches(residuals, weights, starts, owners), 5)
    residuals = every - np.repeat(level, lengths)
    shapes, cells = learn_all(residuals, ends, sigmas)
    each = np.concatenate(
        [
            shape.log_density[cells[a:b]]
            for shape, (a, b) in zip(shapes, pairwise(ends), strict=True)
        ]
    )
    likely = np.add.reduceat(each * weights, starts).tolist()
    cuts = np.searchsorted(owners, np.arange(len(asked) + 1)).tolist()
    return [
        Fit(edges, level[a:b], shape, residuals[first:end], tuple(likely[a:b]))
        for (_, edges), shape, (a, b), (first, end) in zip(
            asked, shapes, pairwise(cuts), pairwise(ends.tolist()), strict=True
        )
    ]


def _sigma(x: Floats, levels: Floats, edges: tuple[int, ...]) -> float:
    """Of the noise around the levels, 0 where they are all the same."""
    sigma = robust_sigma(x - np.repeat(levels, np.diff(edges)))
    if sigma <= 0.0:
        # Every segment is constant: the smallest change there is stands for several sigmas.
        jumps = np.abs(np.diff(levels))
        sigma = float(jumps[jumps > 0.0].min(initial=np.inf)) / 8.0
    return sigma if np.isfinite(sigma) and sigma >= 1e-200 else 0.0


def _weak(data: Points, fit: Fit, floor: float) -> Work[set[int]]:
    """The edge with the least evidence, where it has too little; and with it those that have not
    half of what it takes, no two of them neighbours: each of them would be the next."""
    if "evidence" not in fit.answers:
        fit.answers["evidence"] = yield over_nothing, (fit, data)
    every = []
    for k, evidence in enumerate(fit.answers["evidence"], start=1):
        if fit.is_beyond_noise(k):
            evidence = max(evidence, _nearer(data, fit, k)) * max(floor, fit.memory)
        every.append((evidence, k))
    every.sort()
    weakest = every[0][0]
    # No memory is below the floor: mostly it need not be known.
    if weakest >= EVIDENCE_NATS * floor and weakest >= EVIDENCE_NATS * fit.memory:
        return set()
    weak = {every[0][1]}
    for evidence, k in every[1:]:
        if evidence < _HALF * EVIDENCE_NATS and not weak & {k - 1, k + 1}:
            weak.add(k)
    return weak


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


def _around(asked: Sequence[tuple[Fit, Points, int]]) -> tuple[Any, ...]:
    """Edges to be looked at: their shapes, the points around them, and the two levels."""
    points, weights, owners, low, high = [], [], [], [], []
    number: dict[int, int] = {}
    shapes: list[NoiseShape] = []
    for fit, data, k in asked:
        if id(fit) not in number:
            number[id(fit)] = len(shapes)
            shapes.append(fit.shape)
        points.append(data.scaled[fit.edges[k - 1] : fit.edges[k + 1]])
        weights.append(data.weights[fit.edges[k - 1] : fit.edges[k + 1]])
        owners.append(number[id(fit)])
        before, after = fit.levels[k - 1 : k + 1].tolist()
        low.append(min(before, after))
        high.append(max(before, after))
    return shapes, Stretches.joined(points, weights, owners), np.array(low), np.array(high)


def over_nothing(asked: Sequence[tuple[Fit, Points]]) -> list[list[float]]:
    """Of each edge of a fit how much likelier its two levels are than one common level, in nats."""
    every = [(fit, data, k) for fit, data in asked for k in range(1, len(fit.levels))]
    together = likeliest(*_around(every)).tolist()
    found = (
        fit.likely[k - 1] + fit.likely[k] - one
        for (fit, _, k), one in zip(every, together, strict=True)
    )
    return [[next(found) for _ in fit.levels[1:]] for fit, _ in asked]


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


def is_slide(asked: Sequence[tuple[Fit, Points, int]]) -> list[bool]:
    """Whether a straight line through both segments is nearly as likely as the step at an edge."""
    rows, weights, lengths, reaches, mosts = [], [], [], [], []
    for fit, data, k in asked:
        start, _, end = fit.edges[k - 1 : k + 2]
        before, after = fit.levels[k - 1 : k + 1].tolist()
        x, w = data.scaled[start:end], data.weights[start:end]
        step = fit.likely[k - 1] + fit.likely[k]
        height = after - before
        along = (np.arange(end - start) + 0.5) / (end - start) - 0.5
        rows.append((x - 0.5 * (before + after) - _SLOPES * height * along).ravel())
        weights.append(np.tile(w, len(_SLOPES)))
        lengths.append(end - start)
        reaches.append(0.6 * abs(height))
        remembers = 1.0 if fit.is_beyond_noise(k) else fit.memory
        mosts.append(step - SLIDE_NATS * remembers)
    each = np.repeat(lengths, len(_SLOPES))
    owners = np.repeat(np.arange(len(asked)), len(_SLOPES))
    given = Stretches(np.concatenate(rows), np.concatenate(weights), np.cumsum(each) - each, owners)
    shapes = [fit.shape for fit, _, _ in asked]
    reach, most = np.repeat(reaches, len(_SLOPES)), np.repeat(mosts, len(_SLOPES))
    slides = likeliest(shapes, given, -reach, reach) > most
    return [bool(of_edge.any()) for of_edge in slides.reshape(len(asked), len(_SLOPES))]
