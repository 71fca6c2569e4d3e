"""Measures many workload-target pairs with the compiled instrument, over all cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from warpwatch.config import isolation
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure import jobs

Pair = tuple[str, str]


def compiled_pairs(
    pairs: Iterable[Pair], of: Mapping[str, str] | None = None
) -> Iterator[tuple[Pair, Measurement]]:
    """Measure (workload name, target name) pairs; yields each as it is done, whatever came of it.

    torch and Triton are imported in the processes that compile, never in the one that asks. ``of``
    is the environment of another version than this process sees.
    """
    asked = [jobs.Job(workload, target, is_workload=True) for workload, target in pairs]
    environment = isolation.subprocess_environment(of)
    if of is not None or isolation.measured() is not None:
        environment["PYTHONSAFEPATH"] = "1"  # or a checkout's own kernels would come first
    for job, measurement in jobs.measure(asked, environment):
        yield (job.name, job.target), measurement
