"""Says in words what the compiled metrics of a finding show: the reason behind a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from reports.history import SeriesInfo
from reports.model import Change

_TENSOR_CORES = ("none", "mma.sync or MFMA", "wgmma", "tcgen05")
_LOADS = ("plain loads", "cp.async or direct to LDS", "TMA")


# By metric: what a fall and a rise of it are called. The order is from cause to effect: a copy is
# also a launch, too few registers also serialise wgmma, and everything moves the bound.
_WORDS: Mapping[str, tuple[str, str]] = {
    "compile_failures": ("compiles again", "does not compile or fit"),
    "copied_bytes": ("copy removed", "extra copy"),
    "launches": ("fewer launches", "more launches"),
    "tensor_core_level": ("tensor-core flavour lost", "tensor-core flavour gained"),
    "async_copy_level": ("asynchronous loads lost", "asynchronous loads gained"),
    "spilled_bytes": ("fewer registers spill", "registers spill"),
    "advisories": ("wgmma no longer serialised", "wgmma serialised"),
    "blocks_in_flight": ("fewer blocks in flight", "more blocks in flight"),
    "bound_us": ("less work for the busiest unit", "more work for the busiest unit"),
}


def reasons(changes: Iterable[tuple[Change, SeriesInfo]]) -> tuple[str, ...]:
    """What the changes of one finding say about its cause, the likeliest first.

    Only metrics of the compiled instrument explain; a finding of timings alone gets no reason.
    """
    found: dict[str, list[tuple[Change, SeriesInfo]]] = {}
    for change, info in changes:
        # A value that ended or began has no direction; the metric that says why has one.
        metric = info.meaning.metric
        if metric in _WORDS and not math.isnan(change.step.after - change.step.before):
            found.setdefault(metric, []).append((change, info))
    return tuple(_reason(metric, found[metric]) for metric in _WORDS if metric in found)


def _reason(metric: str, changes: Sequence[tuple[Change, SeriesInfo]]) -> str:
    less, more = _WORDS[metric]
    strongest, _ = changes[0]
    before, after = float(strongest.step.before), float(strongest.step.after)
    what = more if after > before else less
    workloads = _listed(info.workload for _, info in changes)
    targets = _listed(info.target for _, info in changes)
    return f"{what}: {_value(metric, before)} to {_value(metric, after)}, {workloads} on {targets}"


def _value(metric: str, value: float) -> str:
    names = {"tensor_core_level": _TENSOR_CORES, "async_copy_level": _LOADS}.get(metric, ())
    if value.is_integer() and 0 <= value < len(names):
        return names[int(value)]
    if metric == "bound_us":
        return f"{value:.4g} us"
    return f"{value:,.0f}{' bytes' if metric.endswith('bytes') else ''}"


def _listed(names: Iterable[str], most: int = 6) -> str:
    unique = sorted(set(filter(None, names)))
    rest = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + rest
