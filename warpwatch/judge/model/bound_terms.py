"""Which values of the bound may be held against each other: spills and products joined it later.

The version of the method stayed, as it stayed true of values in which neither takes part. Others
have a border between the last value without these terms and the first with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

METRIC, SPILLED = "bound_added_us", "spilled_bytes"
# The bound, and what is read of the launch whose bound is the longest.
CONCERNED = ("bound_us", "bound_utilization", "blocks_in_flight")
_OTHER = 1_000_000  # no history has as many versions

Floats = NDArray[np.float64]


def methods(
    known: NDArray[np.int32], values: Floats, added: Floats, spilled: Floats | None
) -> NDArray[np.int32]:
    """Tell apart the values with and without the later terms.

    Args:
        known: For each commit, the version that a series was measured with, as a number.
        values: The series' values.
        added: What the later terms add to each; not finite where it was measured before them.
        spilled: The bytes that spill, ``None`` where they were not measured.

    Returns:
        The versions, others where the terms joined a value that they change.

    Example:
        >>> bound, old = np.array([10.0, 10.0, 14.0]), np.full(3, np.nan)
        >>> found = methods(np.zeros(3, np.int32), bound, np.array([np.nan, np.nan, 4.0]), old)
        >>> [int(one) for one in found]
        [0, 0, 1000000]
    """
    columns = np.flatnonzero(np.isfinite(values))
    later = np.isfinite(added[columns])
    concerned = np.where(later, added[columns] > 0, False)
    if spilled is not None:
        concerned |= ~later & (spilled[columns] > 0) & np.isfinite(spilled[columns])
    joined = (later[1:] != later[:-1]) & (concerned[1:] | concerned[:-1])
    joined &= np.diff(values[columns]) != 0  # an equal value shows that they changed nothing
    found = known.copy()
    others = columns[1:][np.cumsum(joined) % 2 == 1]
    found[others] += _OTHER
    return found
