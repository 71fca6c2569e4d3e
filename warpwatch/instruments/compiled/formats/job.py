"""What one job is, for those who start processes for it and for these processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One thing to measure on one target: a workload by name, or a callable with ``arguments``;
    of autotuned kernels the ``configuration`` of that number, where one is given."""

    name: str
    target: str
    arguments: str = ""
    backward: bool = False
    is_workload: bool = False
    configuration: int | None = None
