"""Many series looked at together: which of them certainly hold no step.

Most series are noise, and what ``steps.changes`` says of them is decided by one number: whether
their strongest contrast exceeds what noise reaches. Here it is computed for rows of a table at
once, in single precision; who comes near the limit is left to the exact look.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.results.history import Table
from warpwatch.judge.results.result_file import Floats
from warpwatch.judge.statistics.contrast import quantile_places
from warpwatch.judge.statistics.jumps import without_jumps

from .fit import LEAST_POINTS
from .steps import LEAST_BESIDE_END, worth_a_look

# Counts of up to 2,000 points are exact in single precision, what is computed from them is within
# a thousandth; memory only raises the limit.
_SHORTEST, _LONGEST = 100, 2000
_SURELY = 0.99
_POINTS_AT_ONCE = 16_000  # stay in the processor's cache
_FIRST_WIDTH = 8  # of the moving windows, as in ``contrast.strongest``


def certainly_steady(table: Table, rows: Sequence[int]) -> set[int]:
    """Of ``rows`` those measured at every commit, under one method on one platform, in which
    ``steps.changes`` finds nothing."""
    values = table.values[list(rows)]
    count, n = values.shape
    steady: NDArray[np.bool_] = np.zeros(count, dtype=bool)
    limit = worth_a_look(n)
    if not _SHORTEST <= n <= _LONGEST:
        return set()
    plain = ((values > 0.0) & (values < np.inf)).all(axis=1)
    fit = [i for i in np.flatnonzero(plain).tolist() if not table.borders(rows[i])]
    size = max(1, _POINTS_AT_ONCE // n)
    for start in range(0, len(fit), size):
        part = fit[start : start + size]
        logs = np.log(values[part])
        calm = without_jumps(logs, LEAST_BESIDE_END)
        steady[part] = calm & (_strongest(logs) < _SURELY * limit)
    return {rows[i] for i in np.flatnonzero(steady).tolist()}


def _strongest(values: Floats) -> NDArray[np.float32]:
    """The strongest contrast of each row, infinite where ties make it another one."""
    count, n = values.shape
    quantiles = np.sort(values, axis=1)[:, quantile_places(n)]
    above = values[:, None, :] > quantiles[:, :, None]
    tied = np.any(quantiles[:, 1:] == quantiles[:, :-1], axis=1)
    apart = ~(tied | ~np.all(np.any(above, axis=2), axis=1))
    # How far the points before a place lie above each quantile more often than all of them do.
    over = np.zeros((count, quantiles.shape[1], n + 1), dtype=np.float32)
    above.cumsum(axis=2, dtype=np.float32, out=over[:, :, 1:])
    share = over[:, :, -1] / n
    over -= share[:, :, None] * np.arange(n + 1, dtype=np.float32)
    weight = np.where(apart[:, None], share * (1 - share), 1.0) * quantiles.shape[1]
    over *= np.sqrt(1 / weight).astype(np.float32)[:, :, None]

    def product(lag: int) -> NDArray[np.float32]:
        out: NDArray[np.float32] = np.einsum(
            "rqn,rqn->rn", over[:, :, lag:], over[:, :, : n + 1 - lag]
        )
        return out

    square = product(0)
    at = np.arange(LEAST_POINTS, n - LEAST_POINTS + 1)
    sides = (n / (at * (n - at))).astype(np.float32)
    best = (square[:, at[0] : at[-1] + 1] * sides).max(axis=1)
    # A window's contrast is that of its halves' counts: (c - 2b + a) squared, from products.
    width, near = _FIRST_WIDTH, product(_FIRST_WIDTH)
    while width * 3 <= n:
        far = product(2 * width)
        height = square[:, 2 * width :] + square[:, : n + 1 - 2 * width]
        height += 4 * square[:, width : n - width + 1] + 2 * far
        height -= 4 * (near[:, width:] + near[:, : n + 1 - 2 * width])
        np.maximum(best, height.max(axis=1) / (2 * width), out=best)
        width, near = 2 * width, far
    return np.where(apart, best, np.float32(np.inf))
