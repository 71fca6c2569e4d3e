"""Where points of a known noise most probably lie: the likeliest of many levels.

To try a level is to look up every point, and that is the judge's innermost loop. Levels beside
each other look up cells beside each other: one look-up of the highest density in all those cells
bounds many levels at once, and mostly that is all that has to be known.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .density import CELLS, CELLS_A_SIGMA, REACH_SIGMA, SIDE, NoiseShape, highest_near

Floats = NDArray[np.float64]

_MOST_LEVELS = 60
_PLACES: Floats = np.arange(_MOST_LEVELS, dtype=np.float64)
_MOST_CELLS = 1e12  # a place beyond is no longer exact
# Neighbouring cells that one look-up bounds, to each side; and how many look-ups.
_REACHES, _BLOCKS = (4, 8, 16, 32, 64, 128), 8
_BEYOND = 62
_WIDTH = CELLS + 2 * _BEYOND
_LEVEL_GRID = np.linspace(-1.0, 1.0, 7)  # of a level that is not sure
_AT_ONCE = 60_000
# Against rounding: of a cell, and of a likelihood whose parts were added in another order.
_CELL_SLACK, _SLACK = 1e-3, 1e-9


@dataclass(frozen=True)
class Stretches:
    """Points of several series, end to end, with their weights; ``starts`` says where each stretch
    begins, none of which is empty, and ``owners`` which series it is of."""

    points: Floats
    weights: Floats
    starts: NDArray[np.intp]
    owners: NDArray[np.intp]

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
    def lengths(self) -> NDArray[np.intp]:
        lengths = np.empty_like(self.starts)
        np.subtract(self.starts[1:], self.starts[:-1], out=lengths[:-1])
        lengths[-1] = len(self.points) - self.starts[-1]
        return lengths

    def spread(self, each: NDArray[Any]) -> Floats:
        """What is known of each stretch, for each of its points."""
        return each.repeat(self.lengths, axis=-1)

    def parts(
        self, chosen: NDArray[np.intp], most: int
    ) -> Iterator[tuple[Stretches, NDArray[np.intp]]]:
        """The ``chosen`` ones, of about ``most`` points at once: what fits a processor's cache."""
        if len(chosen) == len(self.owners) and len(self.points) <= most:
            yield self, chosen
            return
        if not len(chosen):
            return
        total = np.cumsum(self.lengths[chosen])
        cuts = np.flatnonzero(np.diff(total // most)) + 1
        for some in np.split(chosen, cuts):
            lengths = self.lengths[some]
            starts = np.cumsum(lengths) - lengths
            places = np.arange(lengths.sum()) + np.repeat(self.starts[some] - starts, lengths)
            yield (
                Stretches(self.points[places], self.weights[places], starts, self.owners[some]),
                some,
            )


class _Table:
    """Rows of log-densities end to end, one a series, in which the ``points`` of stretches are
    looked up at once. Each row goes on at both ends, so that no place moved by little leaves it."""

    def __init__(self, rows: Floats, given: Stretches, points: Floats, sigmas: Floats):
        self._given = given
        table = np.empty((len(rows), _WIDTH))
        table[:, _BEYOND:-_BEYOND] = rows
        table[:, :_BEYOND] = rows[:, :1]
        table[:, -_BEYOND:] = rows[:, -1:]
        self._flat = table.ravel()
        self._first = given.spread(given.owners * float(_WIDTH))
        self._places = points * given.spread((CELLS_A_SIGMA / sigmas)[given.owners])
        self._places += SIDE + 0.5 + _BEYOND
        self._weighted = bool((given.weights != 1.0).any())

    def totals(self, moved: Floats) -> Floats:
        """The log-likelihood of each stretch, a row for each row of ``moved``: by how many cells
        the points are moved down."""
        each = self.each(moved)
        if self._weighted:
            each *= self._given.weights
        totals: Floats = np.add.reduceat(each, self._given.starts, axis=1)
        return totals

    def each(self, moved: Floats) -> Floats:
        """The log-density of each point, in rows."""
        down, up = max(float(moved.max()), 0.0), max(-float(moved.min()), 0.0)
        if max(down, up) <= _BEYOND:
            apart = np.minimum(np.maximum(self._places, down), _WIDTH - 1.0 - up)
            apart = (apart + self._first) - moved
        else:
            apart = self._places - moved
            np.maximum(apart, 0.0, out=apart)
            np.minimum(apart, _WIDTH - 1.0, out=apart)
            apart += self._first
        found: Floats = self._flat.take(apart.astype(np.intp))
        return found


class _Scratch(threading.local):
    """Arrays that are used again: giving large ones back to the system and asking for them anew
    costs more than filling them."""

    def __init__(self) -> None:
        self._size = -1

    def of(self, *shape: int) -> tuple[Floats, NDArray[np.intp], Floats]:
        size = math.prod(shape)
        if size > self._size:
            self._size = size
            self._buffers = np.empty(size), np.empty(size, dtype=np.intp), np.empty(size)
        first, second, third = self._buffers
        return (
            first[:size].reshape(shape),
            second[:size].reshape(shape),
            third[:size].reshape(shape),
        )


_scratch = _Scratch()


def best_shift(
    shape: NoiseShape, residuals: Floats, low: float, high: float, weights: Floats | None = None
) -> tuple[float, float]:
    """The common shift in ``low`` to ``high`` under which ``residuals`` are likeliest, and that
    log-likelihood."""
    shifts, each = _tried(shape, residuals, low, high)
    totals = each.sum(axis=1) if weights is None else each @ weights
    best = int(totals.argmax())
    return float(shifts[best]), float(totals[best])


def best_shifts(shapes: Sequence[NoiseShape], given: Stretches, reach_sigma: float) -> Floats:
    """The best shift of each stretch, at most ``reach_sigma`` to both sides."""
    sigmas, rows = _sigmas(shapes), _rows(shapes)
    numbers = np.array([_number(2.0 * reach_sigma * one, one) for one in sigmas.tolist()])
    found = np.empty(len(given.owners))
    for some in np.unique(numbers).tolist():
        moved = _PLACES[:some, None] * (2.0 * reach_sigma * CELLS_A_SIGMA / (some - 1))
        here = np.flatnonzero(numbers[given.owners] == some)
        for part, stretches in given.parts(here, _AT_ONCE // some):
            reach = reach_sigma * sigmas[part.owners]
            table = _Table(rows, part, part.points + part.spread(reach), sigmas)
            best = table.totals(moved).argmax(axis=0)
            shifts = best * (2.0 * reach / (some - 1)) - reach
            found[stretches] = np.where(best == some - 1, reach, shifts)
    return found


def likeliest(
    shapes: Sequence[NoiseShape], given: Stretches, lows: Floats, highs: Floats
) -> Floats:
    """For each stretch the highest log-likelihood of any common level between ``lows`` and
    ``highs``."""
    sigmas, rows = _sigmas(shapes), _rows(shapes)
    found = np.empty(len(given.owners))
    ranges = zip((highs - lows).tolist(), sigmas[given.owners].tolist(), strict=True)
    numbers = np.array([_number(*one) for one in ranges])
    spans = _spans(sigmas, given, lows, highs)
    for fewest, most in pairwise((0, 12, _MOST_LEVELS)):
        chosen = np.flatnonzero((fewest < numbers) & (numbers <= most))
        for part, stretches in given.parts(chosen, _AT_ONCE // most):
            number = numbers[stretches]
            table = _Table(rows, part, part.points - part.spread(lows[stretches]), sigmas)
            moved = np.minimum(_PLACES[: number.max(), None], number - 1.0)
            moved *= spans[stretches] / (number - 1.0)
            found[stretches] = table.totals(part.spread(moved)).max(axis=0)
    return found


def bounds(shapes: Sequence[NoiseShape], given: Stretches, lows: Floats, highs: Floats) -> Floats:
    """For each stretch a log-likelihood that no common level between ``lows`` and ``highs``
    exceeds.

    Levels are taken together by blocks, more than a sigma wide, so that this takes a sixth of the
    time of ``likeliest``.
    """
    sigmas, rows = _sigmas(shapes), _rows(shapes)
    found = np.full(len(given.owners), np.inf)
    spans = _spans(sigmas, given, lows, highs)
    reaches = np.full(len(found), np.inf)
    for reach in _REACHES[::-1]:
        reaches[spans <= _BLOCKS * _width(reach)] = reach
    for reach in _REACHES:
        chosen = np.flatnonzero(reaches == reach)
        if not len(chosen):
            continue
        highest = highest_near(rows, reach)
        for part, stretches in given.parts(chosen, _AT_ONCE // _BLOCKS):
            span = spans[stretches]
            table = _Table(highest, part, part.points - part.spread(lows[stretches]), sigmas)
            blocks = np.ceil(np.maximum(span, 1.0) / _width(reach))
            moved = np.minimum(_PLACES[: int(blocks.max()), None], blocks - 1.0) + 0.5
            totals = table.totals(part.spread(moved * (span / blocks))).max(axis=0)
            found[stretches] = totals + _SLACK * np.abs(totals)
    return found


def running(
    shapes: Sequence[NoiseShape], given: Stretches, levels: Floats, spreads: Floats
) -> Floats:
    """Of each stretch the log-likelihood of its first 1, 2, 3 ... points around a level that is
    only known as well as its ``spreads`` say: the average over levels near the estimate."""
    sigmas = _sigmas(shapes)
    table = _Table(_rows(shapes), given, given.points - given.spread(levels), sigmas)
    moved = _LEVEL_GRID[:, None] * (spreads * CELLS_A_SIGMA / sigmas[given.owners])
    each = table.each(given.spread(moved))
    each *= given.weights
    for first, end in pairwise([*given.starts.tolist(), len(given.points)]):
        stretch = each[:, first:end]
        np.add.accumulate(stretch, axis=1, out=stretch)
    highest: Floats = each.max(axis=0)
    each -= highest
    np.exp(each, out=each)
    highest += np.log(each.mean(axis=0))
    return highest


def _sigmas(shapes: Sequence[NoiseShape]) -> Floats:
    return np.array([shape.sigma for shape in shapes])


def _rows(shapes: Sequence[NoiseShape]) -> Floats:
    return np.array([shape.log_density for shape in shapes])


def _spans(sigmas: Floats, given: Stretches, lows: Floats, highs: Floats) -> Floats:
    """In cells."""
    spans: Floats = np.minimum((highs - lows) * (CELLS_A_SIGMA / sigmas)[given.owners], _MOST_CELLS)
    return spans


def _width(reach: int) -> float:
    """How many cells of levels one look-up of the highest density in ``reach`` bounds."""
    return 2.0 * (reach - 1 - _CELL_SLACK)


def _tried(shape: NoiseShape, residuals: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """The shifts to try, and a row of the residuals' log-likelihoods under each: to be used before
    the next call."""
    span, scale = high - low, CELLS_A_SIGMA / shape.sigma
    steps = _number(span, shape.sigma)
    shifts = _PLACES[:steps] * (span / (steps - 1))  # as numpy.linspace, in a tenth of its time
    shifts += low
    shifts[-1] = high
    if not span * scale < _MOST_CELLS:
        return shifts, shape.log_likelihood(residuals[None, :] - shifts[:, None])
    places = _places(shape, residuals, low, span)
    return shifts, _looked_up(shape.log_density, places, (shifts - low) * scale)


def _number(span: float, sigma: float) -> int:
    """How many levels to try."""
    return max(2, min(_MOST_LEVELS, int(span / sigma * CELLS_A_SIGMA) + 2))


def _places(shape: NoiseShape, residuals: Floats, low: float, span: float) -> Floats:
    """In cells from the start, cut off by the look-up."""
    far = span + 2.0 * REACH_SIGMA * shape.sigma
    places: Floats = np.minimum(np.maximum(residuals - low, -far), far)
    places *= CELLS_A_SIGMA / shape.sigma
    places += SIDE + 0.5
    return places


def _looked_up(log_density: Floats, places: Floats, offsets: Floats) -> Floats:
    """The log-density of all places less each offset."""
    apart, cells, each = _scratch.of(len(offsets), *places.shape)
    np.subtract(places, offsets.reshape(-1, *(1,) * places.ndim), out=apart)
    np.copyto(cells, apart, casting="unsafe")
    log_density.take(cells, mode="clip", out=each)
    return each
