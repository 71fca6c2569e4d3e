"""What is planted: a small edit of our kernels as a commit, and what the gate must say of it."""

from __future__ import annotations

from dataclasses import dataclass

from examples.demo.story import Edit

TIME = ("latency_cold", "sm_cycles", "tensor_pipe")


@dataclass(frozen=True)
class Plant:
    """One commit. ``cause`` is part of the sentence the gate must give; ``metrics`` are those of
    which one at least must be found worse. Without ``cause`` the commit is harmless."""

    name: str
    subject: str
    workload: str
    edits: tuple[Edit, ...]
    cause: str = ""
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Branch:
    """Commits that one gate judges. Without ``counters`` it judges by time alone: what the
    compiler says then names the causes."""

    name: str
    counters: bool
    plants: tuple[Plant, ...]

    @property
    def seconds(self) -> float:
        """About what the gate takes on an H200."""
        return (32.0 if self.counters else 14.0) * len(self.plants)

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(plant.workload for plant in self.plants)
