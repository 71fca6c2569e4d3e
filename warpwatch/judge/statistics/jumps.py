"""Where a level jumps by more than its noise: seen in a few neighbours, whatever else the series
does.

A contrast over a whole series loses a level that comes and goes among others. Here each place is
judged by the few points on both sides of it: the number of other steps does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .density import TINY, robust_sigma

Floats = NDArray[np.float64]

WINDOW = 5  # points on each side, and between two jumps
_NEAREST = 2  # points on each side that tell two jumps apart
_SPIKE_SIGMA = 3.0  # farther from the median of five is cut off
_MEANS_SIGMA = 0.63  # of the difference of two means of five
_ABRUPT = 0.4  # of its height a jump has between two neighbours
_SHARP_SIGMA, _SHARP = 20.0, 3  # a jump so high needs only so many points on each side
_ABOVE = 1.3  # of its own deviations, above the highest that so many places reach on average


def jumps(values: Floats, least: int) -> list[int]:
    """Where the level jumps.

    The noise is that between neighbours, which steps hardly touch. Spikes of one or two points
    are cut off first.

    Args:
        values: finite values, oldest first.
        least: points before the first jump, and after the last, that is not ``_SHARP_SIGMA`` high.

    Returns:
        Indexes of the first points after the jumps, ascending, at least ``WINDOW`` apart; those
        of jumps that are ``_SHARP_SIGMA`` high at least ``_SHARP``.
    """
    n = len(values)
    if n < 2 * least:
        return []
    apart = values[1:] - values[:-1]
    sigma = robust_sigma(apart) / np.sqrt(2.0)
    if sigma <= TINY:
        return []
    total = _running(values[None], np.array([sigma]))
    height = _heights(total, least, WINDOW)[0]
    high = np.flatnonzero(height > sigma * _limit(n))
    if not len(high):
        return []
    # A jump is seen from a few places. Between two that follow each other all are as high, so what
    # the nearest points say counts, too.
    sharp = height[high] + _heights(total, least, _NEAREST)[0, high]
    found = _sharp(values, sigma)
    for place in (high[np.argsort(-sharp, kind="stable")] + least).tolist():
        # A wave of ten commits and more is as high, but comes little by little.
        most = height[max(place - least - WINDOW, 0) : place - least + WINDOW].max()
        abrupt = np.abs(apart[max(place - 3, 0) : place + 2]).max() >= _ABRUPT * most
        if abrupt and all(abs(place - other) >= WINDOW for other in found):
            found.append(place)
    return sorted(found)


def _sharp(values: Floats, sigma: float) -> list[int]:
    """Where a level far beyond the noise begins, be it as short as ``_SHARP`` points: all of these
    lie on its side of the middle, and as many before it on the other."""
    if len(values) < 2 * _SHARP:
        return []
    a, b, c = values[:-2], values[1:-1], values[2:]
    low, high = np.minimum(np.minimum(a, b), c), np.maximum(np.maximum(a, b), c)
    middle = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    before, after = middle[:-_SHARP], middle[_SHARP:]
    half = (before + after) / 2.0
    up = (high[:-_SHARP] < half) & (half < low[_SHARP:])
    down = (low[:-_SHARP] > half) & (half > high[_SHARP:])
    height = np.abs(after - before)
    sharp = np.flatnonzero((up | down) & (height > _SHARP_SIGMA * sigma))
    found: list[int] = []
    for place in (sharp[np.argsort(-height[sharp], kind="stable")] + _SHARP).tolist():
        if all(abs(place - other) >= _SHARP for other in found):  # of a ramp the steepest part
            found.append(place)
    return found


def without_jumps(rows: Floats, least: int) -> NDArray[np.bool_]:
    """Which rows certainly hold none of the ``jumps``.

    Args:
        rows: finite values, a series a row, oldest first.
        least: points before the first jump, and after the last.

    Returns:
        A flag a row; rows of which most neighbours are equal are left to ``jumps``.
    """
    n = rows.shape[1]
    if n < 2 * least:
        return np.ones(len(rows), dtype=bool)
    apart = np.sort(np.abs(rows[:, 1:] - rows[:, :-1]), axis=1)
    # The median, in a third of the time that numpy takes to part values at the middle.
    middles = (apart[:, (n - 2) // 2] + apart[:, (n - 1) // 2]) / 2.0
    sigmas = 1.4826 * middles / np.sqrt(2.0)
    tops = _heights(_running(rows, sigmas), least, WINDOW).max(axis=1)
    # Sums in another order: within a billionth of the limit ``jumps`` decides.
    steady: NDArray[np.bool_] = (sigmas > TINY) & (tops < sigmas * _limit(n) * (1.0 - 1e-9))
    return steady


def _limit(n: int) -> float:
    """What a height must exceed, in sigmas."""
    return _MEANS_SIGMA * float(np.sqrt(2.0 * np.log(n)) + _ABOVE)


def _running(rows: Floats, sigmas: Floats) -> Floats:
    """The sums of the first 0, 1, 2 ... points, spikes cut off."""
    total = np.zeros((len(rows), rows.shape[1] + 1))
    reach = _SPIKE_SIGMA * sigmas[:, None]
    middle = _medians_of_five(rows)
    held = np.minimum(np.maximum(rows, middle - reach), middle + reach)
    np.add.accumulate(held, axis=1, out=total[:, 1:])
    return total


def _heights(total: Floats, least: int, window: int) -> Floats:
    """How far the means of as many points before and after each place lie apart."""
    n = total.shape[1] - 1
    at = np.arange(least, n - least + 1)
    first, last = np.maximum(at - window, 0), np.minimum(at + window, n)
    here = total[:, least : n - least + 1]
    after = (total[:, last] - here) / (last - at)
    before = (here - total[:, first]) / (at - first)
    heights: Floats = np.abs(after - before)
    return heights


def _medians_of_five(rows: Floats) -> Floats:
    """Of each point, its two neighbours before and the two after; ends are repeated."""
    ends = (rows[:, :1], rows[:, :1], rows, rows[:, -1:], rows[:, -1:])
    padded = np.concatenate(ends, axis=1)
    a, b, c, d, e = (padded[:, k : k + rows.shape[1]] for k in range(5))
    # Of four, neither the lowest nor the highest is the median of five.
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    middle: Floats = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return middle
