"""Marked calls: what a worker under a profiler does, so that each launch is known to be whose.

A *mark* is a launch of a spinning kernel that no workload has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.outcome import Outcome

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

KERNEL = "spin_kernel"

Do = Callable[[], object]


def repeated(
    workload: Workload, repeats: int, marked: Callable[[Do, Do], None], torch_device: str = "cuda"
) -> Outcome:
    """``marked(call, mark)`` so many times, on inputs made before. Its ``marks`` are how many there
    were, also where one raised half-way: a reader shifts nobody else's launches."""
    import torch

    if (absent := measuring.missing(workload)) is not None:
        return absent
    marks = 0

    def mark() -> None:
        nonlocal marks
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        marks += 1

    try:
        inputs = workload.inputs(torch_device, seed=0)
        workload.call(inputs)  # compiles
        torch.cuda.synchronize()
        for _ in range(repeats):
            marked(lambda: workload.call(inputs), mark)
    except Exception as error:  # the code under test may raise anything
        status, why = measuring.status_of(error), measuring.first_line(error)
        return Outcome(workload.name, status, why, evidence={"marks": marks})
    return Outcome(workload.name, "ok", evidence={"marks": marks})
