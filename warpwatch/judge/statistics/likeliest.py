"""Where points of a known noise most probably lie: the likeliest of many levels.

To try a level is to look up every point, and that is the judge's innermost loop. Levels beside
each other look up cells beside each other: one look-up of the highest density in all those cells
bounds many levels at once, and mostly that is all that has to be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .density import CELLS, CELLS_A_SIGMA, SIDE, NoiseShape, highest_near

Floats = NDArray[np.float64]

_MOST_LEVELS = 60
_PLACES: Floats = np.arange(2 * _MOST_LEVELS, dtype=np.float64)
_MOST_CELLS = 1e12  # a place beyond is no longer exact
# Neighbouring cells that one look-up bounds, to each side; and how many look-ups.
_REACHES, _BLOCKS = (4, 8, 16, 32, 64, 128), 8
# Levels on each side of one that are bounded with it, less than a cell apart; stretches so long
# that a bound rules levels out.
_NEAR = 3
_TOGETHER, _LONG = 2 * _NEAR + 1, 12
_BEYOND = 62
_WIDTH = CELLS + 2 * _BEYOND
_LEVEL_GRID = np.linspace(-1.0, 1.0, 7)  # of a level that is not sure
_AT_ONCE = 16_000
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
            places: slice | NDArray[np.intp]
            if some[-1] - some[0] == len(some) - 1:  # one after the other
                first = int(self.starts[some[0]])
                places = slice(first, first + int(starts[-1] + lengths[-1]))
            else:
                places = np.arange(starts[-1] + lengths[-1])
                places += np.repeat(self.starts[some] - starts, lengths)
            yield (
                Stretches(self.points[places], self.weights[places], starts, self.owners[some]),
                some,
            )


def _end_to_end(rows: Floats) -> Floats:
    """Rows of log-densities, one a series. Each goes on at both ends, so that no place moved by
    little leaves it."""
    table = np.empty((len(rows), _WIDTH))
    table[:, _BEYOND:-_BEYOND] = rows
    table[:, :_BEYOND] = rows[:, :1]
    table[:, -_BEYOND:] = rows[:, -1:]
    return table.ravel()


class _Table:
    """Log-densities ``_end_to_end``, in which the ``points`` of stretches are looked up at once."""

    def __init__(self, flat: Floats, given: Stretches, points: Floats, sigmas: Floats):
        self._given, self._flat = given, flat
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


def best_shift(
    shape: NoiseShape, residuals: Floats, low: float, high: float
) -> tuple[float, float]:
    """The common shift in ``low`` to ``high`` under which ``residuals`` are likeliest, and that
    log-likelihood."""
    shifts = np.linspace(low, high, _number(high - low, shape.sigma))
    totals = shape.log_likelihood(residuals - shifts[:, None]).sum(axis=1)
    best = int(totals.argmax())
    return float(shifts[best]), float(totals[best])


def best_shifts(shapes: Sequence[NoiseShape], given: Stretches, reach_sigma: float) -> Floats:
    """The best shift of each stretch, at most ``reach_sigma`` to both sides."""
    sigmas, rows = _sigmas(shapes), _rows(shapes)
    tables = _end_to_end(rows), _end_to_end(highest_near(rows, _NEAR + 1))
    numbers = np.array([_number(2.0 * reach_sigma * one, one) for one in sigmas.tolist()])
    found = np.empty(len(given.owners))
    for some in np.unique(numbers).tolist():
        step = 2.0 * reach_sigma * CELLS_A_SIGMA / (some - 1)
        moved = _PLACES[: some + _NEAR] * step
        here = np.flatnonzero(numbers[given.owners] == some)
        first = np.zeros(len(given.owners), dtype=np.intp)
        count = np.full(len(given.owners), some)
        long = here[given.lengths[here] >= (_LONG if step <= 1.0 else np.inf)]
        for part, stretches in given.parts(long, _AT_ONCE // (some // _TOGETHER)):
            points = part.points + part.spread(reach_sigma * sigmas[part.owners])
            first[stretches], count[stretches] = _promising(
                [_Table(flat, part, points, sigmas) for flat in tables], moved, some
            )
        for size in np.unique(count[here]).tolist():
            alike = here[count[here] == size]
            for part, stretches in given.parts(alike, _AT_ONCE // size):
                reach = reach_sigma * sigmas[part.owners]
                table = _Table(tables[0], part, part.points + part.spread(reach), sigmas)
                start = first[stretches]
                if size == some:
                    totals = table.totals(moved[:some, None])
                else:
                    totals = table.totals(part.spread(moved[start + np.arange(size)[:, None]]))
                best = start + totals.argmax(axis=0)
                shifts = best * (2.0 * reach / (some - 1)) - reach
                found[stretches] = np.where(best == some - 1, reach, shifts)
    return found


def _promising(
    tables: Sequence[_Table], moved: Floats, some: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of ``some`` levels which may be the likeliest of each stretch: the first, and how many.

    ``tables`` hold the densities, and the highest of those near each. The level in the middle is
    tried: no block whose bound stays below it holds the likeliest.
    """
    exact, highest = tables
    bounds = highest.totals(moved[_NEAR::_TOGETHER, None])
    bounds += _SLACK * np.abs(bounds)
    alive = bounds >= exact.totals(moved[some // 2, None, None])
    first = alive.argmax(axis=0) * _TOGETHER
    end = np.minimum((len(alive) - alive[::-1].argmax(axis=0)) * _TOGETHER, some)
    return first, end - first


def likeliest(
    shapes: Sequence[NoiseShape], given: Stretches, lows: Floats, highs: Floats
) -> Floats:
    """For each stretch the highest log-likelihood of any common level between ``lows`` and
    ``highs``."""
    sigmas, flat = _sigmas(shapes), _end_to_end(_rows(shapes))
    found = np.empty(len(given.owners))
    ranges = zip((highs - lows).tolist(), sigmas[given.owners].tolist(), strict=True)
    numbers = np.array([_number(*one) for one in ranges])
    spans = _spans(sigmas, given, lows, highs)
    for fewest, most in pairwise((0, 12, _MOST_LEVELS)):
        chosen = np.flatnonzero((fewest < numbers) & (numbers <= most))
        for part, stretches in given.parts(chosen, _AT_ONCE // most):
            number = numbers[stretches]
            table = _Table(flat, part, part.points - part.spread(lows[stretches]), sigmas)
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
        highest = _end_to_end(highest_near(rows, reach))
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
    sigmas, flat = _sigmas(shapes), _end_to_end(_rows(shapes))
    found = np.empty(len(given.points))
    every = np.arange(len(given.owners))
    for part, stretches in given.parts(every, _AT_ONCE // len(_LEVEL_GRID)):
        table = _Table(flat, part, part.points - part.spread(levels[stretches]), sigmas)
        spread = spreads[stretches] * CELLS_A_SIGMA / sigmas[part.owners]
        each = table.each(part.spread(_LEVEL_GRID[:, None] * spread))
        each *= part.weights
        for first, end in pairwise([*part.starts.tolist(), len(part.points)]):
            stretch = each[:, first:end]
            np.add.accumulate(stretch, axis=1, out=stretch)
        highest: Floats = each.max(axis=0)
        each -= highest
        np.exp(each, out=each)
        highest += np.log(each.mean(axis=0))
        start = int(given.starts[stretches[0]])
        found[start : start + len(highest)] = highest
    return found


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


def _number(span: float, sigma: float) -> int:
    """How many levels to try."""
    return max(2, min(_MOST_LEVELS, int(span / sigma * CELLS_A_SIGMA) + 2))
