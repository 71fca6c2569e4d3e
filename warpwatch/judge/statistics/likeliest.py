"""Where points of a known noise most probably lie: the likeliest of many levels.

Levels lie a cell of the density apart, so that all points in one cell stay together whichever level
is tried. A histogram of a stretch, correlated with the density, is therefore the log-likelihood of
every level at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .density import CELLS, CELLS_A_SIGMA, SIDE, NoiseShape

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_FARTHEST = SIDE  # cells: no density reaches farther from a level
_LEVEL_GRID = np.linspace(-1.0, 1.0, 7)  # of a level that is not sure
_AT_ONCE = 2_000  # points, each under every level of the grid, stay in the processor's cache


@dataclass(frozen=True)
class Stretches:
    """Points of several series, end to end, with their weights; ``starts`` says where each stretch
    begins, none of which is empty, and ``owners`` which series it is of."""

    points: Floats
    weights: Floats
    starts: Places
    owners: Places

    @staticmethod
    def joined(
        points: Sequence[Floats], weights: Sequence[Floats], owners: Sequence[int]
    ) -> Stretches:
        """One stretch each."""
        ends = np.array([0, *accumulate(map(len, points[:-1]))], dtype=np.intp)
        return Stretches(
            np.concatenate(points), np.concatenate(weights), ends, np.array(owners, dtype=np.intp)
        )

    @cached_property
    def lengths(self) -> Places:
        return np.diff(self.starts, append=len(self.points))

    def spread(self, each: NDArray[Any]) -> NDArray[Any]:
        """What is known of each stretch, for each of its points."""
        return each.repeat(self.lengths)


def best_shift(
    shape: NoiseShape, residuals: Floats, low: float, high: float
) -> tuple[float, float]:
    """The common shift in ``low`` to ``high`` under which ``residuals`` are likeliest, and that
    log-likelihood."""
    given = Stretches.joined([residuals], [np.ones(len(residuals))], [0])
    cell = shape.sigma / CELLS_A_SIGMA
    totals = _totals([shape], given, np.array([low]), np.array([int((high - low) / cell)]))
    best = len(totals) - 1 - int(totals[::-1].argmax())
    return low + (len(totals) - 1 - best) * cell, float(totals[best])


def best_shifts(shapes: Sequence[NoiseShape], given: Stretches, reach_sigma: int) -> Floats:
    """The best shift of each stretch, at most ``reach_sigma`` to both sides."""
    reach = reach_sigma * CELLS_A_SIGMA
    cells = _cells(shapes)[given.owners]
    totals = _totals(shapes, given, -reach * cells, np.full(len(cells), 2 * reach))
    best = totals.reshape(len(cells), -1)[:, ::-1].argmax(axis=1)
    shifts: Floats = (best - reach) * cells
    return shifts


def likeliest(
    shapes: Sequence[NoiseShape], given: Stretches, lows: Floats, highs: Floats
) -> Floats:
    """For each stretch the highest log-likelihood of any common level between ``lows`` and
    ``highs``.

    Levels are counted from both ends, which are among them. One that is far from both explains
    no point of either.
    """
    cells = _cells(shapes)[given.owners]
    halves = np.ceil(np.minimum((highs - lows) / cells / 2.0, _FARTHEST))
    steps = halves.astype(np.intp)
    starts = np.cumsum(steps + 1) - (steps + 1)
    upwards = np.maximum.reduceat(_totals(shapes, given, lows, steps), starts)
    downwards = np.maximum.reduceat(_totals(shapes, given, highs - halves * cells, steps), starts)
    found: Floats = np.maximum(upwards, downwards)
    return found


def running(
    shapes: Sequence[NoiseShape], given: Stretches, levels: Floats, spreads: Floats
) -> Floats:
    """Of each stretch the log-likelihood of its first 1, 2, 3 ... points around a level that is
    only known as well as its ``spreads`` say: the average over levels near the estimate."""
    densities = np.concatenate([shape.log_density for shape in shapes])
    scales = 1.0 / _cells(shapes)[given.owners]
    places = (given.points - given.spread(levels)) * given.spread(scales) + (SIDE + 0.5)
    firsts = given.spread(given.owners * CELLS)
    moved = given.spread(spreads * scales)
    found = np.empty(len(given.points))
    for start, end in _parts(given):
        each = places[start:end] - _LEVEL_GRID[:, None] * moved[start:end]
        np.clip(each, 0.0, CELLS - 1.0, out=each)
        each = densities.take(each.astype(np.intp) + firsts[start:end])
        each *= given.weights[start:end]
        starts = given.starts[(given.starts >= start) & (given.starts < end)] - start
        for first, last in pairwise([*starts.tolist(), end - start]):
            stretch = each[:, first:last]
            np.add.accumulate(stretch, axis=1, out=stretch)
        highest: Floats = each.max(axis=0)
        each -= highest
        np.exp(each, out=each)
        highest += np.log(each.mean(axis=0))
        found[start:end] = highest
    return found


def _parts(given: Stretches) -> Iterator[tuple[int, int]]:
    """Whole stretches, of about ``_AT_ONCE`` points together."""
    start = 0
    for end in [*given.starts[1:].tolist(), len(given.points)]:
        if end - start >= _AT_ONCE or end == len(given.points):
            yield start, end
            start = end


def _cells(shapes: Sequence[NoiseShape]) -> Floats:
    """How wide a cell of each density is."""
    return np.array([shape.sigma for shape in shapes]) / CELLS_A_SIGMA


def _totals(shapes: Sequence[NoiseShape], given: Stretches, lows: Floats, steps: Places) -> Floats:
    """The log-likelihood of each stretch at ``lows`` and at as many levels above as it has
    ``steps``, each a cell higher: end to end, each from the highest level down."""
    last = steps + (CELLS - 1)  # what lies farther up is as unlikely at each of the levels
    places = (given.points - given.spread(lows)) / given.spread(_cells(shapes)[given.owners])
    places += SIDE + 0.5  # cut off instead of rounded, as in ``cells_of``
    np.maximum(places, 0.0, out=places)
    np.minimum(places, given.spread(last), out=places)
    cells = places.astype(np.intp)
    # Only what lies between a stretch's lowest and highest point has to be added up.
    first = np.minimum.reduceat(cells, given.starts)
    widths = np.maximum.reduceat(cells, given.starts) - first + 1
    ends = np.cumsum(widths)
    cells += given.spread(ends - widths - first)
    counts = np.bincount(cells, given.weights, int(ends[-1]))
    beyond = int(steps.max())
    densities = _widened(shapes, beyond)
    levels = np.cumsum(steps + 1)
    totals = np.empty(int(levels[-1]))
    for owner, start, width, end, more, level in zip(
        given.owners.tolist(),
        (first + (beyond - steps)).tolist(),
        widths.tolist(),
        ends.tolist(),
        steps.tolist(),
        levels.tolist(),
        strict=True,
    ):
        density = densities[owner][start : start + width + more]
        totals[level - more - 1 : level] = np.correlate(density, counts[end - width : end])
    return totals


def _widened(shapes: Sequence[NoiseShape], by: int) -> Floats:
    """Log-densities, a row each, that go on for ``by`` cells at both ends."""
    rows = np.empty((len(shapes), CELLS + 2 * by))
    rows[:, by : by + CELLS] = [shape.log_density for shape in shapes]
    rows[:, :by] = rows[:, by : by + 1]
    rows[:, by + CELLS :] = rows[:, by + CELLS - 1 : by + CELLS]
    return rows
