"""Where a level may have changed: a rank contrast that neither spikes nor modes can fool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Brief = NDArray[np.float32]

_THRESHOLDS = 14
_LONGEST_LAG = 6
_PLATEAU_LAGS = (9, 10, 11)
_MANY = 46_000
# Points at which single precision tells a contrast to a thousandth, and is worth it; how near a
# limit it is not sure on which side a contrast lies.
_SHORT, _BRIEF, _SURELY = 60, 2000, 0.99


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
    ranks = np.empty(n)
    new = np.flatnonzero(order[1:] != order[:-1]) + 1
    if len(new) == n - 1:
        ranks[places] = _even_ranks(n)
    else:  # ties share the middle of their places
        ends = np.concatenate(([0], new, [n]))
        ranks[places] = ((ends[:-1] + ends[1:]) / (2.0 * n)).repeat(ends[1:] - ends[:-1])
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
        at, height = top if whole else strongest(values[first:end], least, threshold)
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


def strongest(values: Floats, least: int, beyond: float = 0.0) -> tuple[int, float]:
    """The split with the highest contrast, over all scales: the whole interval against moving
    windows, so that a level that came and went is seen too. Its place and its contrast.

    Where no contrast is ``beyond`` that, the answer is place 0 and about the highest.
    """
    n = len(values)
    if n < 2 * least:
        return 0, 0.0
    quantiles = np.sort(values)[quantile_places(n)]
    if np.count_nonzero(quantiles[1:] == quantiles[:-1]):
        quantiles = np.unique(quantiles)
    # A row a threshold: how many of the points before a place lie above it, counted in integers.
    above = values > quantiles[:, None]
    count = np.int32 if n < _MANY else np.int64  # squares must fit
    total = np.zeros((len(above), n + 1), dtype=count)
    np.add.accumulate(above.view(np.int8), axis=1, dtype=count, out=total[:, 1:])
    scales = _scales(n, least, tuple(total[:, -1].tolist()))
    if scales is None:
        return 0, 0.0
    widths: Sequence[int] = scales.widths
    if _SHORT < n <= _BRIEF:
        tops = _brief(total, scales)
        top = max(tops)
        if top <= _SURELY * beyond:
            return 0, top
        widths = [w for w, one in zip(widths, tops, strict=True) if one >= _SURELY * top]
    answer = 0, 0.0
    for width in widths:
        at, height = _highest(total, scales, width)
        if height > answer[1]:
            answer = at, height
    return answer


@dataclass(frozen=True)
class _Scales:
    """What contrasts are made with; ``widths`` are of the moving windows, 0 of the whole."""

    least: int
    widths: tuple[int, ...]
    share: Floats
    weight: Floats
    at: Floats
    sides: Floats
    # In single precision; of the whole how many points are to be expected above each threshold,
    # and what the contrasts of all widths, a row each, are scaled by: nothing where there is none.
    brief_weight: Brief
    brief_expected: Brief
    brief_scale: Brief


@lru_cache(maxsize=512)
def _scales(n: int, least: int, above: tuple[int, ...]) -> _Scales | None:
    """``above`` says how many of the ``n`` points lie above each threshold: without ties it is
    always the same. ``None`` where none lies above any."""
    share = np.array(above) / n
    use = share > 0.0
    if not use.any():
        return None
    weight = np.where(use, 1.0 / np.where(use, share * (1.0 - share), 1.0), 0.0) / use.sum()
    at = np.arange(least, n - least + 1)
    sides = n / (at * (n - at))
    widths = (0, *(8 << k for k in range(n.bit_length()) if 3 * (8 << k) <= n))
    scale = np.zeros((len(widths), n + 1))
    scale[0, least : n - least + 1] = sides
    for row, width in enumerate(widths[1:], 1):
        scale[row, : n + 1 - 2 * width] = 0.5 / width
    expected = share[:, None] * np.arange(n + 1)
    brief = (array.astype(np.float32) for array in (weight, expected, scale))
    return _Scales(least, widths, share, weight, at.astype(np.float64), sides, *brief)


def _highest(total: NDArray[Any], scales: _Scales, width: int) -> tuple[int, float]:
    """Where windows of one width have the highest contrast, and that."""
    n, least = total.shape[1] - 1, scales.least
    if not width:
        left = scales.share[:, None] * scales.at
        np.subtract(total[:, least : n - least + 1], left, out=left)
        left *= left
        height = scales.weight @ left
        height *= scales.sides
        best = int(height.argmax())
        return least + best, float(height[best])
    apart = np.empty_like(total)
    _apart(total, width, apart)
    apart = apart[:, : n + 1 - 2 * width]
    height = scales.weight @ (apart * apart)
    best = int(height.argmax())
    return best + width, float(height[best] / (2.0 * width))


def _apart(total: NDArray[Any], width: int, out: NDArray[Any]) -> None:
    """How many more points lie above in the window behind a place than in that before it. Rows end
    to end: one long difference is faster than many short ones. What a window counts across the end
    of a row is to be left out."""
    flat = total.ravel()
    within = flat[width:] - flat[:-width]
    np.subtract(within[width:], within[:-width], out=out.ravel()[: -2 * width])


def _brief(total: NDArray[Any], scales: _Scales) -> list[float]:
    """The highest contrast at each width, in single precision and in half the time."""
    counts = total.astype(np.float32)
    apart = np.zeros((len(scales.widths), *total.shape), dtype=np.float32)
    np.subtract(counts, scales.brief_expected, out=apart[0])
    for width, out in zip(scales.widths[1:], apart[1:], strict=True):
        _apart(counts, width, out)
    apart *= apart
    heights = scales.brief_weight @ apart
    heights *= scales.brief_scale
    tops: list[float] = heights.max(axis=1).tolist()
    return tops


@cache
def quantile_places(n: int) -> NDArray[np.int64]:
    """Where, among ``n`` ascending values, those lie that others are counted against."""
    count = min(_THRESHOLDS, n)
    return ((np.arange(count) + 0.5) / count * n).astype(np.int64)
