"""Where a level jumps by more than its noise: seen in a few neighbours, whatever else the series
does.

A contrast over a whole series loses a level that comes and goes among others. Here each place is
judged by the few points on both sides of it: the number of other steps does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .density import TINY, robust_sigma

Floats = NDArray[np.float64]

WINDOW = 5  # points on each side, and between two jumps
_SPIKE_SIGMA = 3.0  # farther from the median of five is cut off
_MEANS_SIGMA = 0.63  # of the difference of two means of five
_ABRUPT = 0.4  # of its height a jump has between two neighbours
_ABOVE = 1.3  # of its own deviations, above the highest that so many places reach on average


def jumps(values: Floats, least: int) -> list[int]:
    """Where the level jumps.

    The noise is that between neighbours, which steps hardly touch. Spikes of one or two points
    are cut off first.

    Args:
        values: finite values, oldest first.
        least: points before the first jump, and after the last.

    Returns:
        Indexes of the first points after the jumps, ascending, at least ``WINDOW`` apart.
    """
    n = len(values)
    if n < 2 * least:
        return []
    apart = values[1:] - values[:-1]
    sigma = robust_sigma(apart) / np.sqrt(2.0)
    if sigma <= TINY:
        return []
    height = _heights(values[None], np.array([sigma]), least)[0]
    limit = sigma * _limit(n)
    if height.max() <= limit:
        return []
    # A jump is seen from a few places: it is where it is highest.
    around = sliding_window_view(np.pad(height, 2, mode="constant"), 5).max(axis=1)
    tops = np.flatnonzero((height == around) & (height > limit))
    found: list[int] = []
    for place in (tops[np.argsort(-height[tops], kind="stable")] + least).tolist():
        # A wave of ten commits and more is as high, but comes little by little.
        abrupt = (
            np.abs(apart[max(place - 3, 0) : place + 2]).max() >= _ABRUPT * height[place - least]
        )
        if abrupt and all(abs(place - other) >= WINDOW for other in found):
            found.append(place)
    return sorted(found)


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
    sigmas = 1.4826 * np.median(np.abs(np.diff(rows, axis=1)), axis=1) / np.sqrt(2.0)
    tops = _heights(rows, sigmas, least).max(axis=1)
    # Sums in another order: within a billionth of the limit ``jumps`` decides.
    steady: NDArray[np.bool_] = (sigmas > TINY) & (tops < sigmas * _limit(n) * (1.0 - 1e-9))
    return steady


def _limit(n: int) -> float:
    """What a height must exceed, in sigmas."""
    return _MEANS_SIGMA * float(np.sqrt(2.0 * np.log(n)) + _ABOVE)


def _heights(rows: Floats, sigmas: Floats, least: int) -> Floats:
    """How far the means of the points before and after each place lie apart."""
    n = rows.shape[1]
    reach = _SPIKE_SIGMA * sigmas[:, None]
    middle = _medians_of_five(rows)
    total = np.zeros((len(rows), n + 1))
    held = np.minimum(np.maximum(rows, middle - reach), middle + reach)
    np.add.accumulate(held, axis=1, out=total[:, 1:])
    at = np.arange(least, n - least + 1)
    first, last = np.maximum(at - WINDOW, 0), np.minimum(at + WINDOW, n)
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
