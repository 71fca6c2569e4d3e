"""Every benchmark, in the order of the table."""

from __future__ import annotations

from warpwatch import devices

from . import barriers, front, latencies, products, rates
from .benchmark import Benchmark

DEVICE = "h200"  # whose datasheet the model of sm_90 reads


def benchmarks() -> list[Benchmark]:
    """List them.

    Returns:
        The benchmarks; no two have one name.

    Example:
        >>> benchmarks()[0].name
        'latency of FADD'
    """
    device = devices.load(DEVICE)
    return [
        *latencies.arithmetic(),
        *latencies.memory(),
        *barriers.suite(),
        *products.suite(device),
        *rates.arithmetic(device),
        *rates.memory(device),
        *front.suite(),
    ]
