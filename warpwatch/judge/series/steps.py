"""Where a series changed its level: segmentation that spikes, modes and memory do not fool.

Changes are proposed where neighbours lie far apart, however many other changes there are, and
where a rank contrast of a whole stretch is high. The noise is judged within the levels that the
clear changes leave: what a series remembers must not be confused with how often it changed.
``segments`` says which proposals hold and where they lie. A change that surely exists but cannot
be placed is no step yet: more runs of the commits in its interval place it (see ``suspects``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model.core import Step
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.statistics.contrast import memory, splits, splits_beside_ends, strongest
from warpwatch.judge.statistics.density import median
from warpwatch.judge.statistics.jumps import jumps

from .fit import LEAST_POINTS, Points
from .lockstep import Work, together
from .segments import Levels, is_high, is_slide, settle

Floats = NDArray[np.float64]

LEAST_BESIDE_END = 4  # points before the first jump; a spike of three is common
PLACED_CONFIDENCE = 0.7  # probability of being right within ``fit.WINDOW`` commits
LONGEST_MEMORY = 2.5
_SUSPECT, _SUSPECT_LONGER = 5.0, 1.1  # contrast of a proposal, and more with each doubling
_SHORT = 100  # points: from here on the highest contrast of noise is watched grow
_FEW = 40  # points: in fewer, what lies far off at an end may hide a step
_SHARE = 0.35  # of n: a perfect step among n points has 0.39 n; memory read early counts it in

Values = Sequence[float | None] | Floats
Samples = Sequence[Sequence[float]]


def find_steps(values: Values, *, samples: Samples | None = None) -> list[Step]:
    """The steps of a series, oldest first, each placed with at least ``PLACED_CONFIDENCE``.

    Gaps (``None``, NaN, infinities) are skipped and keep their index. For an instrument without
    noise use ``exact_steps``.

    Args:
        values: of the series, oldest first.
        samples: the runs of each value: a commit that was run again weighs more.

    Returns:
        The steps.

    Raises:
        ValueError: there is not one list of samples for each value.

    Examples:
        >>> values = [100.0, 100.2, 99.9, 100.1, 100.0, 100.2, 110.1, 109.9, 110.0, 110.2, 109.8]
        >>> step = find_steps(values)[0]
        >>> step.index, step.before, step.after
        (6, 100.05, 110.0)
    """
    return together([steps_of(values, samples)])[0]


def steps_of(values: Values, samples: Samples | None = None) -> Work[list[Step]]:
    """``find_steps``, as work to be done with that of other series."""
    found = yield from _changes(values, samples)
    return [step for step in found if step.confidence >= PLACED_CONFIDENCE]


def changes(values: Values, *, samples: Samples | None = None) -> list[Step]:
    """All changes that surely exist, also those whose place is still open (low confidence).

    Args:
        values: of the series, oldest first.
        samples: the runs of each value.

    Returns:
        The changes, oldest first.

    Raises:
        ValueError: there is not one list of samples for each value.
    """
    return together([_changes(values, samples)])[0]


def _changes(values: Values, samples: Samples | None) -> Work[list[Step]]:
    data = _read(values, samples)
    levels = (yield from _levels(data)) if len(data.scaled) >= 2 * LEAST_POINTS else None
    if levels is None:
        return []
    fit = levels.fit
    found = []
    for k, placed in enumerate(levels.places, start=1):
        if not is_high(fit, k) or (yield is_slide, (fit, data, k)):
            continue
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


def worth_a_look(n: int) -> float:
    """The contrast, at a memory of one, that n points must exceed to be looked at closely.

    The highest contrast of n noisy points grows with log n, that of a step that can be told from
    noise with n. A perfect step among few points has little.

    Args:
        n: how many points.

    Returns:
        The contrast, as ``contrast.strongest`` counts it.
    """
    longer = max(0.0, float(np.log2(n / _SHORT)))
    return min(_SUSPECT + _SUSPECT_LONGER * longer, _SHARE * n)


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


def _read(values: Values, samples: Samples | None) -> Points:
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
    return Points(places=places, raw=raw, scaled=scaled, weights=weights)


def _levels(data: Points) -> Work[Levels | None]:
    """The levels of a series: the clear ones first. What is left around them says how much the
    noise remembers, and that, which of the fainter changes are worth a look."""
    x = data.scaled
    n = len(x)
    clear = jumps(x, LEAST_BESIDE_END)
    look = worth_a_look(n) if n >= _FEW else 0.0
    top = strongest(x, LEAST_POINTS, look) if not clear else None
    if top is not None and n >= _FEW and top[1] <= look:
        return None
    if top is not None and top[1] > _SUSPECT * LONGEST_MEMORY:
        clear = [top[0]]
    levels = (yield from settle(data, clear, _memory(x, clear))) if clear else None
    sure = levels.changes if levels else []
    known = min(levels.fit.memory if levels else _memory(x, []), LONGEST_MEMORY)
    faint = []
    for first, end in pairwise((0, *sure, n)):
        faint += [first + at for at in _splits(x[first:end], known, None if sure else top)]
    if not faint and not sure and n < _FEW:
        faint = splits_beside_ends(x, least=LEAST_POINTS, share=_SHARE)
    return (yield from settle(data, sorted((*sure, *faint)), 1.0)) if faint else levels


def _memory(x: Floats, changes: list[int]) -> float:
    """That of the noise around the levels between ``changes``."""
    parts = (x[first:end] for first, end in pairwise((0, *changes, len(x))))
    return min(memory(np.concatenate([part - median(part) for part in parts])), LONGEST_MEMORY)


def _splits(x: Floats, known: float, top: tuple[int, float] | None) -> list[int]:
    n = len(x)
    limit = min(known * worth_a_look(n), _SHARE * n)
    top = top or strongest(x, LEAST_POINTS, limit)
    return splits(x, least=LEAST_POINTS, threshold=limit, most=max(4, n // 8), top=top)
