"""Where a series changed its level: segmentation that spikes, modes and memory do not fool.

Three stages. A rank contrast proposes too many change points. The noise around the levels is then
learned as a density, and every proposal must earn its place by likelihood: against *no change* at
all, weighed down by the memory of the noise, and against *a slow slide*. What is left is placed
where the probability of being right within two commits is highest; that probability is the
step's confidence. A change that surely exists but cannot be placed is no step yet: more runs of
the commits in its interval place it (see ``suspects``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model.core import Step
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.statistics.contrast import memory, splits, splits_beside_ends, strongest
from warpwatch.judge.statistics.density import NoiseShape, learn, median, robust_sigma
from warpwatch.judge.statistics.likeliest import best_shift, best_shifts, bounds

Floats = NDArray[np.float64]

LEAST_POINTS = 3  # on each side; fewer are a spike
SUSPECT_CONTRAST = 5.0  # of the proposals, in units of what pure noise reaches on average
EVIDENCE_NATS = 10.0  # log-likelihood a step needs over no change
SLIDE_NATS = 4.0  # and over the best straight line
PLACED_CONFIDENCE = 0.7  # probability of being right within WINDOW commits
WINDOW = 2
_LEVEL_GRID, _LEVEL_SPREAD = np.linspace(-1.0, 1.0, 7), 2.0  # how unsure a level is
_FEW_POINTS_SIGMA = 40.0  # a step is this over (points - 4) sigma high: few points lie
_AS_GOOD = 0.02
_SHORT = 100  # points: shorter series are always looked at closely
_FEW = 40  # points: in fewer, what lies far off at an end may hide a step
_SHARE = 0.35  # of n: a perfect step among n points has 0.39 n; memory read early counts it in
_FAR_SIGMA = 2.0
_ROUNDS = 30  # of pruning and moving; they settle after a few
# Of a slide, in steps a series length.
_SLOPES = np.array([0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5])[:, None]

Values = Sequence[float | None] | Floats
Samples = Sequence[Sequence[float]]


@dataclass(frozen=True)
class _Data:
    """The finite points: their places in the series, raw and on the scale judged (logarithms of
    positive values, so that a step is a ratio); ``weights`` count repeated runs."""

    places: NDArray[np.int64]
    raw: Floats
    scaled: Floats
    weights: Floats


@dataclass(frozen=True)
class _Fit:
    """Segments between ``edges`` (first 0, last n), their levels and the noise around them.

    ``likely`` is the log-likelihood of each segment at its level.
    """

    edges: tuple[int, ...]
    levels: Floats
    shape: NoiseShape
    residuals: Floats
    likely: tuple[float, ...]

    @cached_property
    def memory(self) -> float:
        return memory(self.residuals)


@dataclass(frozen=True)
class _Placed:
    at: int
    confidence: float
    first: int
    last: int


def find_steps(
    values: Values, *, samples: Samples | None = None, glance: bool = False
) -> list[Step]:
    """The steps of a series, oldest first, each placed with at least ``PLACED_CONFIDENCE``.

    Gaps (``None``, NaN, infinities) are skipped and keep their index. ``samples`` are the runs
    behind each value: a commit that was run again weighs more. For an instrument without noise
    use ``exact_steps``. With ``glance``, a long series whose strongest contrast is one that noise
    reaches too is passed over: it only saves time, for steps that are found lie above.
    """
    found = changes(values, samples=samples, glance=glance)
    return [step for step in found if step.confidence >= PLACED_CONFIDENCE]


def changes(values: Values, *, samples: Samples | None = None, glance: bool = False) -> list[Step]:
    """All changes that surely exist, also those whose place is still open (low confidence)."""
    data = _read(values, samples)
    n = len(data.scaled)
    if n < 2 * LEAST_POINTS:
        return []
    noise_memory = min(memory(data.scaled), 2.5)
    top = strongest(data.scaled, LEAST_POINTS)
    if glance and top[1] <= noise_memory * worth_a_look(data.raw):
        return []
    proposals = splits(
        data.scaled,
        least=LEAST_POINTS,
        threshold=min(SUSPECT_CONTRAST * noise_memory, _SHARE * n),
        most=max(4, n // 8),
        top=top,
    )
    if not proposals and n < _FEW:
        proposals = splits_beside_ends(data.scaled, least=LEAST_POINTS, share=_SHARE)
    settled = _settle(data, proposals) if proposals else None
    if settled is None:
        return []
    fit, places = settled
    found = []
    for k in range(1, len(fit.edges) - 1):
        if abs(fit.levels[k] - fit.levels[k - 1]) * (n - 4) < _FEW_POINTS_SIGMA * fit.shape.sigma:
            continue
        if _is_slide(data, fit, k):
            continue
        placed = places[k - 1]
        found.append(
            Step(
                index=int(data.places[placed.at]),
                before=median(data.raw[fit.edges[k - 1] : placed.at]),
                after=median(data.raw[placed.at : fit.edges[k + 1]]),
                interval=(int(data.places[placed.first]), int(data.places[placed.last])),
                confidence=placed.confidence,
            )
        )
    return found


def worth_a_look(measured: Floats) -> float:
    """The contrast, at a memory of one, that a long series must exceed to hold a step.

    The highest contrast of n noisy points grows with log n, that of a step that can be told from
    noise with n.
    """
    n = len(measured)
    if n < _SHORT or not (measured > 0.0).all():
        return -np.inf
    return 5.0 + 1.1 * float(np.log2(n / _SHORT))


def exact_steps(values: Values, threshold: Threshold | None = None) -> list[Step]:
    """The steps of an instrument without noise: every change is one, at once and for certain.

    With a ``threshold`` a step is where the series has left its last level by that much, so that
    many small changes are one step in the end.
    """
    data = _read(values, None)
    steps: list[Step] = []
    level = 0
    for i in (np.flatnonzero(data.raw[1:] != data.raw[:-1]) + 1).tolist():
        before, after = float(data.raw[level]), float(data.raw[i])
        if before == after or (threshold is not None and not threshold.passed(before, after)):
            continue
        places = (int(data.places[i - 1]) + 1, int(data.places[i]))
        steps.append(
            Step(index=places[1], before=before, after=after, interval=places, confidence=1.0)
        )
        level = i
    return steps


def _read(values: Values, samples: Samples | None) -> _Data:
    if samples is not None and len(samples) != len(values):
        raise ValueError(
            f"samples: expected one list for each of the {len(values)} values, got {len(samples)}"
        )
    every = np.asarray(values, dtype=np.float64)  # NaN for None
    places = np.flatnonzero(np.isfinite(every))
    raw = every[places]
    # The largest magnitudes would overflow in squares; no measurement has them.
    scaled = np.log(raw) if (raw > 0.0).all() else np.clip(raw, -1e150, 1e150)
    weights = np.ones(len(raw))
    if samples is not None and len(raw):
        runs = np.array([max(1, len(samples[i])) for i in places.tolist()], dtype=np.float64)
        weights = np.clip(runs / np.median(runs), 0.25, 4.0)
    return _Data(places=places, raw=raw, scaled=scaled, weights=weights)


def _settle(data: _Data, proposals: list[int]) -> tuple[_Fit, list[_Placed]] | None:
    """Learn the noise, drop the weakest change, move the others; until nothing moves."""
    n = len(data.scaled)
    edges = [0, *proposals, n]
    for _ in range(_ROUNDS + len(proposals)):
        fit = _fit(data, edges) if len(edges) > 2 else None
        if fit is None:
            return None
        weakest = _weakest(data, fit)
        if weakest is not None:
            del edges[weakest]
            continue
        inner = range(1, len(fit.edges) - 1)
        places = [_place(data, fit, k) for k in inner]
        moved = sorted({0, *(place.at for place in places), n})
        if moved == edges:
            return fit, places
        edges = moved
    assert fit is not None
    return fit, [_place(data, fit, k) for k in range(1, len(fit.edges) - 1)]


def _fit(data: _Data, edges: list[int]) -> _Fit | None:
    x = data.scaled
    lengths = np.diff(edges)
    levels = np.array([median(x[a:b]) for a, b in pairwise(edges)])
    residuals = x - np.repeat(levels, lengths)
    sigma = robust_sigma(residuals)
    if sigma <= 0.0:
        # Every segment is constant: the smallest change there is stands for several sigmas.
        jumps = np.abs(np.diff(levels))
        sigma = float(jumps[jumps > 0.0].min(initial=np.inf)) / 8.0
        if not np.isfinite(sigma) or sigma < 1e-200:
            return None
    shape = learn(residuals, sigma)
    # A median hangs between modes; the likeliest level does not.
    levels = levels + best_shifts(shape, residuals, -5.0 * sigma, 5.0 * sigma, data.weights, edges)
    residuals = x - np.repeat(levels, lengths)
    shape = learn(residuals, sigma)
    each = shape.log_likelihood(residuals)
    likely = tuple(float(each[a:b] @ data.weights[a:b]) for a, b in pairwise(edges))
    return _Fit(tuple(edges), levels, shape, residuals, likely)


def _weakest(data: _Data, fit: _Fit) -> int | None:
    """The edge with the least evidence, ``None`` where every edge has enough."""
    inner = range(1, len(fit.edges) - 1)
    # Between levels far apart a bound takes a fraction of the time, and mostly it is enough.
    far = [abs(fit.levels[k] - fit.levels[k - 1]) > _FAR_SIGMA * fit.shape.sigma for k in inner]
    known = sorted(
        (_over_nothing(data, fit, k, bound), k, bound) for k, bound in zip(inner, far, strict=True)
    )
    # No memory is below one: mostly it need not be known.
    while known[0][0] < EVIDENCE_NATS or known[0][0] < EVIDENCE_NATS * fit.memory:
        _, weakest, bounded = known[0]
        if not bounded:
            return weakest
        known[0] = _over_nothing(data, fit, weakest, False), weakest, False
        known.sort()
    return None


def _over_nothing(data: _Data, fit: _Fit, k: int, bounded: bool) -> float:
    """How much likelier the two levels around edge ``k`` are than one common level, in nats; or,
    ``bounded``, a value that does not exceed that."""
    start, end = fit.edges[k - 1], fit.edges[k + 1]
    low, high = sorted(fit.levels[k - 1 : k + 1].tolist())
    x, w = data.scaled[start:end], data.weights[start:end]
    if bounded:
        together = float(bounds(fit.shape, x[None], low, high, w)[0])
    else:
        together = best_shift(fit.shape, x, low, high, w)[1]
    return fit.likely[k - 1] + fit.likely[k] - together


def _is_slide(data: _Data, fit: _Fit, k: int) -> bool:
    """Whether a straight line through both segments is nearly as likely as the step at ``k``."""
    start, at, end = fit.edges[k - 1 : k + 2]
    before, after = fit.levels[k - 1 : k + 1].tolist()
    x, w = data.scaled[start:end], data.weights[start:end]
    step = fit.shape.log_likelihood(x - np.where(np.arange(start, end) < at, before, after)) @ w
    height = after - before
    along = (np.arange(end - start) + 0.5) / (end - start) - 0.5
    middle, reach = 0.5 * (before + after), 0.6 * abs(height)
    rows = x - middle - _SLOPES * height * along
    most = float(step) - SLIDE_NATS * fit.memory
    likely = np.flatnonzero(bounds(fit.shape, rows, -reach, reach, w) > most)
    return any(best_shift(fit.shape, rows[i], -reach, reach, w)[1] > most for i in likely)


def _place(data: _Data, fit: _Fit, k: int) -> _Placed:
    """Where edge ``k`` most probably lies within ``WINDOW``, between its neighbours."""
    start, at, end = fit.edges[k - 1 : k + 2]
    before, after = fit.levels[k - 1 : k + 1].tolist()
    x, w = data.scaled[start:end], data.weights[start:end]
    left = _running(fit, x, w, before, at - start)
    right = _running(fit, x[::-1], w[::-1], after, end - at)[::-1]
    log_odds = left[LEAST_POINTS - 1 : -LEAST_POINTS] + right[LEAST_POINTS : 1 - LEAST_POINTS]
    probability = np.exp(log_odds - log_odds.max())
    probability /= probability.sum()
    n = len(probability)
    below = np.concatenate(([0.0], np.cumsum(probability)))
    place = np.arange(n)
    near = below[np.minimum(place + WINDOW + 1, n)] - below[np.maximum(place - WINDOW, 0)]
    # The likeliest place of all that are as good as the best window.
    best = int(np.argmax(np.where(near >= near.max() - _AS_GOOD, probability, 0.0)))
    first = min(int(np.searchsorted(below[1:], 0.025)), best)
    last = max(min(int(np.searchsorted(below[1:], 0.975)), n - 1), best)
    offset = start + LEAST_POINTS
    return _Placed(offset + best, min(1.0, float(near[best])), offset + first, offset + last)


def _running(fit: _Fit, x: Floats, weights: Floats, level: float, points: int) -> Floats:
    """Log-likelihood of the first 1, 2, 3 ... points around a level that is only known as well
    as ``points`` tell: the average over levels near the estimate."""
    spread = _LEVEL_SPREAD * fit.shape.sigma / np.sqrt(points)
    levels = level + spread * _LEVEL_GRID
    each = fit.shape.log_likelihood(x - levels[:, None]) * weights
    totals = np.cumsum(each, axis=1) / fit.memory
    highest = totals.max(axis=0)
    out: Floats = highest + np.log(np.exp(totals - highest).mean(axis=0))
    return out
