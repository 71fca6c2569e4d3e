"""What kind of noise a series has, and which test suits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model.core import Step
from warpwatch.judge.statistics.contrast import memory, ordered
from warpwatch.judge.statistics.density import (
    TINY,
    count_modes,
    count_modes_of_rows,
    median,
    robust_sigma,
)
from warpwatch.judge.statistics.paired import Runs, Test, paired_correlation

Floats = NDArray[np.float64]
NoiseKind = Literal["quiet", "skewed", "spiky", "modal", "autocorrelated", "discrete"]

_FEWEST = 8
_EQUAL_SHARE = 0.5  # of neighbours that are exactly equal: counts or a coarse clock
_MEMORY = 1.6  # points that tell as much as one
_SPIKE_SIGMA, _SPIKE_SHARE = 5.0, 0.04
_SKEW = 0.35  # (upper - lower) / (upper + lower) of the 10th and 90th percentile
_QUANTILES = (0.1, 0.5, 0.9)
_WANDER = 0.4  # rank correlation of pairs

MEANING: dict[NoiseKind, str] = {
    "quiet": "symmetric, no spikes, no memory",
    "skewed": "a longer tail on one side",
    "spiky": "more than 4 % of the points beyond 5 sigma",
    "modal": "two or more separate levels that points fall on at random",
    "autocorrelated": "neighbours are alike: the machine wanders",
    "discrete": "most neighbours are exactly equal",
}


@dataclass(frozen=True)
class Noise:
    """The noise around the levels of a series.

    ``sigma`` is robust and relative to the level (0.01: 1 %) where all values are positive, else
    in the series' own unit; ``memory`` is the number of points that tell as much as one
    independent point; ``spikes`` the share of points beyond 5 sigma.
    """

    kind: NoiseKind
    sigma: float
    memory: float
    modes: int
    spikes: float
    points: int

    @property
    def test(self) -> Test:
        """Modes and ties drown a difference of means; memory is taken out by pairs. Where all
        runs of a side are equal there is nothing to drown."""
        if self.kind in ("modal", "discrete") and self.sigma > 0.0:
            return "distribution"
        return "pairs" if self.kind == "autocorrelated" else "groups"


def classify(values: Sequence[float | None] | Floats, steps: Sequence[Step] = ()) -> Noise:
    """The noise of a series between its ``steps``; gaps are skipped."""
    every = np.asarray(values, dtype=np.float64)  # NaN for None
    finite = np.isfinite(every)
    y = every[finite]
    x = np.log(y) if len(y) and (y > 0.0).all() else np.clip(y, -1e150, 1e150)
    if len(x) == 0:
        return Noise("quiet", 0.0, 1.0, 1, 0.0, 0)
    if not steps:
        residuals = x - median(x)
        return _describe(residuals, memory(residuals))
    place = np.flatnonzero(finite)
    level_of = np.searchsorted(np.array([s.index for s in steps], dtype=np.int64), place, "right")
    residuals = x.copy()
    for level in np.unique(level_of):
        members = level_of == level
        residuals[members] -= median(x[members])
    return _describe(residuals, memory(residuals))


def classify_rows(values: Floats) -> list[Noise]:
    """``classify`` of each row of positive values without steps, in a fifth of the time.

    What most rows have in common (one mode, no memory) is told of all at once; the others are
    looked at one by one.
    """
    x = np.log(values)
    count, n = x.shape
    if n < 3 * _FEWEST:
        return [classify(row) for row in values]
    order, forgets = ordered(x)
    middles = (order[:, (n - 1) // 2] + order[:, n // 2]) / 2.0
    residuals = x - middles[:, None]
    sizes = np.abs(residuals)
    inner = np.sort(sizes, axis=1)  # faster than to part them at the middle
    sigmas = 1.4826 * ((inner[:, (n - 1) // 2] + inner[:, n // 2]) / 2.0)
    spikes = np.count_nonzero(sizes > _SPIKE_SIGMA * sigmas[:, None], axis=1) / n
    equal = np.count_nonzero(order[:, 1:] == order[:, :-1], axis=1)
    lows, centres, highs = (_quantiles(order - middles[:, None], share) for share in _QUANTILES)
    modes = count_modes_of_rows(residuals, np.maximum(sigmas, TINY))
    found = []
    for row in range(count):
        sigma, spread = float(sigmas[row]), float(highs[row] - lows[row])
        if not forgets[row] or equal[row] or sigma <= TINY or spread <= 0.0:
            found.append(classify(values[row]))
            continue
        skew = float(highs[row] + lows[row] - 2.0 * centres[row]) / spread
        kind: NoiseKind = "quiet"
        if modes[row] > 1:
            kind = "modal"
        elif spikes[row] > _SPIKE_SHARE:
            kind = "spiky"
        elif abs(skew) > _SKEW:
            kind = "skewed"
        found.append(Noise(kind, sigma, 1.0, modes[row], float(spikes[row]), n))
    return found


def _quantiles(order: Floats, share: float) -> Floats:
    """``_quantile`` of each row."""
    place = share * (order.shape[1] - 1)
    first = int(place)
    found: Floats = order[:, first] + (order[:, first + 1] - order[:, first]) * (place - first)
    return found


def classify_pairs(base: Runs, head: Runs) -> Noise:
    """The noise of interleaved runs of two versions, each around its own median."""
    a = np.clip(np.asarray(base, dtype=np.float64), -1e70, 1e70)
    b = np.clip(np.asarray(head, dtype=np.float64), -1e70, 1e70)
    together = np.concatenate((a[np.isfinite(a)], b[np.isfinite(b)]))
    if len(together) and (together > 0.0).all():
        a, b = np.log(a), np.log(b)
    sides = [side[np.isfinite(side)] for side in (a, b)]
    residuals = np.concatenate([side - median(side) for side in sides if len(side)] or [a[:0]])
    wander = paired_correlation(a, b) if len(a) == len(b) else 0.0
    remembers = _MEMORY if wander > _WANDER and len(a) >= _FEWEST else 1.0
    return _describe(residuals, remembers)


def _describe(residuals: Floats, remembers: float) -> Noise:
    n = len(residuals)
    sigma = robust_sigma(residuals) if n else 0.0
    if n < _FEWEST or sigma <= 0.0:
        kind: NoiseKind = "discrete" if n >= _FEWEST else "quiet"
        return Noise(kind, sigma, 1.0, 1, 0.0, n)
    spikes = float(np.count_nonzero(np.abs(residuals) > _SPIKE_SIGMA * sigma)) / n
    modes = count_modes(residuals, sigma) if n >= 3 * _FEWEST else 1
    order = np.sort(residuals)
    equal = np.count_nonzero(order[1:] == order[:-1]) / (n - 1)
    low, middle, high = (_quantile(order, share) for share in _QUANTILES)
    skew = (high + low - 2.0 * middle) / (high - low) if high > low else 0.0
    kind = "quiet"
    if equal > _EQUAL_SHARE:
        kind = "discrete"
    elif modes > 1:
        kind = "modal"
    elif remembers >= _MEMORY:
        kind = "autocorrelated"
    elif spikes > _SPIKE_SHARE:
        kind = "spiky"
    elif abs(skew) > _SKEW:
        kind = "skewed"
    return Noise(kind, sigma, remembers, modes, spikes, n)


def _quantile(order: Floats, share: float) -> float:
    """Of at least two ascending values, between neighbours along a straight line."""
    place = share * (len(order) - 1)
    first = int(place)
    before = float(order[first])
    return before + (float(order[first + 1]) - before) * (place - first)
