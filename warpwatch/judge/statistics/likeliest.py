"""Where points of a known noise most probably lie: the likeliest of many levels.

To try a level is to look up every point, and that is the judge's innermost loop. Levels beside
each other look up cells beside each other: one look-up of the highest density in all those cells
bounds many levels at once, and mostly that is all that has to be known.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .density import CELLS_A_SIGMA, REACH_SIGMA, SIDE, NoiseShape

Floats = NDArray[np.float64]

_MOST_LEVELS = 60
_PLACES: Floats = np.arange(_MOST_LEVELS, dtype=np.float64)
_MOST_CELLS = 1e12  # a place beyond is no longer exact
_BLOCK_CELLS, _MOST_BLOCKS = 6.0, 20  # of levels that one look-up bounds
# Against rounding: of a cell, and of a likelihood whose parts were added in another order.
_CELL_SLACK, _SLACK = 1e-3, 1e-9


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


def best_shifts(
    shape: NoiseShape,
    residuals: Floats,
    low: float,
    high: float,
    weights: Floats,
    edges: Sequence[int],
) -> Floats:
    """The best shift of each segment of ``residuals`` between ``edges``."""
    shifts, each = _tried(shape, residuals, low, high)
    best = [int((each[:, a:b] @ weights[a:b]).argmax()) for a, b in pairwise(edges)]
    found: Floats = shifts[best]
    return found


def bounds(
    shape: NoiseShape, residuals: Floats, low: float, high: float, weights: Floats
) -> Floats:
    """For each row of ``residuals`` a log-likelihood that no shift in ``low`` to ``high`` exceeds.

    Shifts are taken together by blocks a little more than a sigma wide, so that this takes a sixth
    of the time of ``best_shift``.
    """
    span = (high - low) * CELLS_A_SIGMA / shape.sigma
    if not span < _MOST_CELLS:
        return np.full(len(residuals), np.inf)
    blocks = min(int(span / _BLOCK_CELLS) + 1, _MOST_BLOCKS)
    offsets = (_PLACES[:blocks] + 0.5) * (span / blocks)
    highest = shape.highest(int(span / blocks / 2.0 + _CELL_SLACK) + 1)
    each = _looked_up(highest, _places(shape, residuals, low, high - low), offsets)
    totals: Floats = (each @ weights).max(axis=0)
    return totals + _SLACK * np.abs(totals)


def _tried(shape: NoiseShape, residuals: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """The shifts to try, and a row of the residuals' log-likelihoods under each: to be used before
    the next call."""
    span, scale = high - low, CELLS_A_SIGMA / shape.sigma
    steps = max(2, min(_MOST_LEVELS, int(span / shape.sigma * CELLS_A_SIGMA) + 2))
    shifts = _PLACES[:steps] * (span / (steps - 1))  # as numpy.linspace, in a tenth of its time
    shifts += low
    shifts[-1] = high
    if not span * scale < _MOST_CELLS:
        return shifts, shape.log_likelihood(residuals[None, :] - shifts[:, None])
    places = _places(shape, residuals, low, span)
    return shifts, _looked_up(shape.log_density, places, (shifts - low) * scale)


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
