"""Where a level may have changed: a rank contrast that neither spikes nor modes can fool."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_THRESHOLDS = 14
_LONGEST_LAG = 6
_PLATEAU_LAGS = (9, 10, 11)
_MANY = 46_000


def memory(values: Floats) -> float:
    """How many points tell as much as one independent point: 1 for white noise, above for noise
    that remembers.

    Estimated from ranks of differences between neighbours, near and far: a step touches only the
    few pairs that straddle it, so this holds before the steps are known.
    """
    n = len(values)
    if n < 4 * max(_PLATEAU_LAGS):
        return 1.0
    ranks = _ranks(values)

    def spread(lag: int) -> float:
        difference = ranks[lag:] - ranks[:-lag]
        return float(difference @ difference) / (n - lag)

    plateau = sum(spread(lag) for lag in _PLATEAU_LAGS) / len(_PLATEAU_LAGS)
    if plateau <= 0.0:
        return 1.0
    total = 0.0
    for lag in range(1, _LONGEST_LAG + 1):
        correlation = 1.0 - spread(lag) / plateau
        if correlation < 2.0 / np.sqrt(n):
            break
        total += correlation
    return 1.0 + 2.0 * total


def ordered(values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Each row in ascending order, and which rows certainly have a ``memory`` of one: neighbours
    are no more alike than points far apart. Rows with equal values are left to ``memory``."""
    count, n = values.shape
    places = values.argsort(axis=1)
    places += np.arange(0, count * n, n)[:, None]
    order = values.ravel()[places]
    if n < 4 * max(_PLATEAU_LAGS):
        return order, np.ones(count, dtype=bool)
    ranks = np.empty_like(values)
    ranks.ravel()[places] = _even_ranks(n)

    def spread(lag: int) -> Floats:
        difference = ranks[:, lag:] - ranks[:, :-lag]
        found: Floats = np.einsum("rn,rn->r", difference, difference) / (n - lag)
        return found

    plateau = sum(map(spread, _PLATEAU_LAGS), np.zeros(count)) / len(_PLATEAU_LAGS)
    tied = (order[:, 1:] == order[:, :-1]).any(axis=1)
    # Sums in another order: within a billionth of the limit ``memory`` decides.
    correlation = 1.0 - spread(1) / plateau
    certain: NDArray[np.bool_] = ~tied & (correlation < 2.0 / np.sqrt(n) - 1e-9)
    return order, certain


def _ranks(values: Floats) -> Floats:
    """Mid-ranks in 0 to 1."""
    n = len(values)
    places = values.argsort()
    order = values[places]
    if (order[1:] == order[:-1]).any():
        below, up_to = np.searchsorted(order, values), np.searchsorted(order, values, "right")
        return (below + up_to) / (2.0 * n)
    # Without ties a searched place is the sorted one, and sorting is the faster of the two.
    ranks = np.empty(n)
    ranks[places] = _even_ranks(n)
    return ranks


@cache
def _even_ranks(n: int) -> Floats:
    return np.arange(1, 2 * n, 2) / (2.0 * n)


def splits(
    values: Floats, *, least: int, threshold: float, most: int, top: tuple[int, float]
) -> list[int]:
    """Indexes at which the series may change, too many rather than too few, ascending.

    Binary segmentation with the Anderson-Darling contrast of the two sides; ``least`` points a
    side, at most ``most`` indexes; ``top`` is the ``strongest`` split of the whole.
    """
    found: list[int] = []
    open_intervals = [(0, len(values))]
    while open_intervals and len(found) < most:
        first, end = open_intervals.pop()
        if end - first < 2 * least:
            continue
        whole = end - first == len(values)
        at, height = top if whole else strongest(values[first:end], least)
        if height > threshold:
            found.append(first + at)
            open_intervals += [(first, first + at), (first + at, end)]
    return sorted(found)


def splits_beside_ends(values: Floats, *, least: int, share: float) -> list[int]:
    """``splits`` of a short series whose first or last points, fewer than ``least``, hide them.

    Such points are no level, but far beyond a level they outweigh a step between few others: it
    shows without them. Only points twice as far from both levels as that level's own farthest
    are left out, so that noise and its modes get no second chance. A split of the n points left
    must reach ``share`` of n.
    """
    n = len(values)
    for cut in range(1, least):
        for first, end in ((cut, n), (0, n - cut)):
            at, height = strongest(values[first:end], least)
            if height <= share * (end - first):
                continue
            at += first
            ends = values[:first] if first else values[end:]
            if all(_is_apart(ends, level) for level in (values[first:at], values[at:end])):
                return [at]
    return []


def _is_apart(points: Floats, level: Floats) -> bool:
    middle = float(np.median(level))
    return bool(np.abs(points - middle).min() > 2.0 * np.abs(level - middle).max())


def strongest(values: Floats, least: int) -> tuple[int, float]:
    """The split with the highest contrast, over all scales: the whole interval against moving
    windows, so that a level that came and went is seen too. Its place and its contrast."""
    n = len(values)
    if n < 2 * least:
        return 0, 0.0
    quantiles = np.sort(values)[quantile_places(n)]
    distinct = np.empty(len(quantiles), dtype=bool)
    distinct[0], distinct[1:] = True, quantiles[1:] != quantiles[:-1]
    # A row a threshold: how many of the points before a place lie above it, counted in integers.
    above = values > quantiles[distinct][:, None]
    count = np.int32 if n < _MANY else np.int64  # squares must fit
    total = np.zeros((len(above), n + 1), dtype=count)
    above.cumsum(axis=1, dtype=count, out=total[:, 1:])
    share = total[:, -1] / n
    use = (share > 0.0) & (share < 1.0)
    if not use.any():
        return 0, 0.0
    weight = np.where(use, 1.0 / np.where(use, share * (1.0 - share), 1.0), 0.0) / use.sum()
    at, sides = _sides(n, least)
    left = share[:, None] * at
    np.subtract(total[:, least : n - least + 1], left, out=left)
    left *= left
    height = weight @ left
    height *= sides
    best = int(height.argmax())
    answer = (least + best, float(height[best]))
    # Rows end to end: one long difference is faster than many short ones. What a window counts
    # across the end of a row is left out.
    flat = total.ravel()
    width = 8
    while width * 3 <= n:
        within = flat[width:] - flat[:-width]
        contrast = np.empty_like(total)
        np.subtract(within[width:], within[:-width], out=contrast.ravel()[: -2 * width])
        contrast = contrast[:, : n + 1 - 2 * width]
        height = weight @ (contrast * contrast)
        best = int(height.argmax())
        if height[best] / (2.0 * width) > answer[1]:
            answer = (best + width, float(height[best] / (2.0 * width)))
        width *= 2
    return answer


@lru_cache(maxsize=2048)
def _sides(n: int, least: int) -> tuple[Floats, Floats]:
    """How many of ``n`` points lie before each split, and what the contrast there is scaled by."""
    at = np.arange(least, n - least + 1)
    return at.astype(np.float64), n / (at * (n - at))


@cache
def quantile_places(n: int) -> NDArray[np.int64]:
    """Where, among ``n`` ascending values, those lie that others are counted against."""
    count = min(_THRESHOLDS, n)
    return ((np.arange(count) + 0.5) / count * n).astype(np.int64)
