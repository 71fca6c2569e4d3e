"""The part of a call's time that is not its kernels: the launch, and gaps between kernels.

Cycles of a kernel repeat where the time of a short call does not, whatever clock they were counted
at. At the clock of the time they say how much of it the kernels took.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from warpwatch.instruments.method import method_hash

Samples = Mapping[str, Sequence[float]]


def of(times: Sequence[float], mhz: float | None, counted: Samples) -> dict[str, tuple[float, ...]]:
    """The samples of ``off_kernel_us``, one for each call that was counted.

    Args:
        times: Samples of the cold time, in us.
        mhz: The SM clock of those, None where it is not known.
        counted: Samples of counters.

    Returns:
        The samples by metric; nothing where one of the three is missing.

    Example:
        >>> of([7.5], 2000.0, {"kernel_cycles": (11000.0, 11500.0)})
        {'off_kernel_us': (2.0, 1.75)}
    """
    cycles = counted.get("kernel_cycles")
    if not cycles or not mhz or not times:
        return {}
    us = statistics.median(times)
    return {"off_kernel_us": tuple(us - one / mhz for one in cycles)}


METHOD_VERSION = "off-kernel-" + method_hash(__file__)
