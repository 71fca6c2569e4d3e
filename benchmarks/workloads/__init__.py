"""Every workload by name, and the fixed set of workload-target pairs a commit is compiled for."""

from __future__ import annotations

import difflib
from functools import cache

from warpwatch.config.targets import TARGETS
from warpwatch.workload.base import Inputs, Values, Workload

from . import (
    attention,
    attention_backward,
    attention_fp8,
    attention_kvcache,
    attention_varlen,
    matmul,
    matmul_fp8,
    matmul_grouped,
)

__all__ = ["Inputs", "Values", "Workload", "all_workloads", "fixed_set", "get", "select"]


@cache
def _by_name() -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    for workload in (
        *attention.workloads(),
        *attention_backward.workloads(),
        *attention_fp8.workloads(),
        *attention_varlen.workloads(),
        *attention_kvcache.workloads(),
        *matmul.workloads(),
        *matmul_fp8.workloads(),
        *matmul_grouped.workloads(),
    ):
        if workload.name in found:
            raise ValueError(f"two workloads are called {workload.name!r}: names must be unique")
        found[workload.name] = workload
    return found


def all_workloads() -> tuple[Workload, ...]:
    """Those every commit is measured on."""
    return tuple(workload for workload in _by_name().values() if workload.every_commit)


def get(name: str) -> Workload:
    """The workload called ``name``; ``ValueError`` names near matches."""
    found = _by_name().get(name)
    if found is None:
        near = difflib.get_close_matches(name, _by_name(), n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "none is alike"
        raise ValueError(f"unknown workload {name!r}: {hint}")
    return found


def select(*, kernel: str | None = None, group: str | None = None) -> tuple[Workload, ...]:
    """The workloads of one public kernel, of one group, or of both; also those that only who asks
    has measured."""
    return tuple(
        workload
        for workload in _by_name().values()
        if kernel in (None, workload.kernel) and group in (None, workload.group)
    )


def fixed_set() -> tuple[tuple[Workload, str], ...]:
    """(workload, target name) pairs every commit is compiled for: small enough to be compiled
    cold in two and a half minutes on two cores, wide enough to meet every dtype, layout and target;
    of a commit after that, only what became another program."""
    everywhere = (
        *attention.FIXED,
        *attention_backward.FIXED,
        *attention_kvcache.FIXED,
        *matmul.FIXED,
        *matmul_fp8.FIXED,
        *matmul_grouped.FIXED,
    )
    return (
        *((get(name), target.name) for name in everywhere for target in TARGETS),
        *((get(attention_fp8.FIXED), target) for target in attention_fp8.FIXED_TARGETS),
    )
