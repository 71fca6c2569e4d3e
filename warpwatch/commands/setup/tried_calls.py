"""Tries the calls of workloads without a GPU, as a history will: a process of its own for each few.

Code that nobody ran passes for good code: a call may name a function that is not there, or give it
arguments that it does not take.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from warpwatch.config import package as configuration
from warpwatch.workload.base import Workload

SECONDS = 10.0  # for all calls: who waits for `doctor` has one question
JOB_SECONDS = 60.0  # for one, with the import of the package


def problems(names: Collection[str], environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Record one call of each workload, those of other kernels first, while there is time.

    Args:
        names: The workloads.
        environment: Of the processes that measure the package.

    Returns:
        By workload, in one line why its call cannot be recorded; and how many calls were tried.

    Example:
        >>> problems(["scale", "add"], version.environment)  # doctest: +SKIP
        ({'scale': "not applicable: AttributeError: module 'ops' has no attribute 'scal'"}, 2)
    """
    from warpwatch.instruments.compiled.measure import jobs

    targets: dict[str, str] = {}
    for workload, target in configuration.workloads().fixed_set():
        targets.setdefault(workload.name, target)
    default = configuration.chosen_targets()[0]
    asked = [
        jobs.Job(one.name, targets.get(one.name, default), is_workload=True)
        for one in _other_kernels_first(configuration.workloads().all_workloads())
        if one.name in names
    ]
    if not asked:
        return {}, 0
    calls = "1 call" if len(asked) == 1 else f"{len(asked)} calls"
    limit = f"at most {SECONDS:.0f} s"
    print(f"trying {calls} without a GPU, {limit} ...", file=sys.stderr, flush=True)
    wrong: dict[str, str] = {}
    count, deadline = 0, time.monotonic() + SECONDS
    for job, found in jobs.measure(asked, environment, job_seconds=JOB_SECONDS):
        count += 1
        # A kernel may serve other targets than the first.
        declined = found.status == "not applicable" and "NotImplementedError" in found.detail
        if found.status != "ok" and not declined:
            wrong[job.name] = f"{found.status}: {found.detail}"
        if time.monotonic() > deadline:
            break
    return wrong, count


def _other_kernels_first(workloads: Sequence[Workload]) -> list[Workload]:
    """One workload of each kernel, then a second of each, and so on."""
    seen: Counter[str] = Counter()
    turns = []
    for one in workloads:
        turns.append(seen[one.kernel])
        seen[one.kernel] += 1
    return [one for _, one in sorted(zip(turns, workloads, strict=True), key=lambda two: two[0])]
