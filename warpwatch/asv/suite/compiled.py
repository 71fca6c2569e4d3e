"""asv's view of the compiled instrument: what each workload's code is on each target.

One process compiles everything once a commit (``setup_cache``), over all cores; the benchmarks
only hand out its values. No GPU is needed.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpwatch import devices
from warpwatch.config import isolation, metrics, sharding, targets
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled import METHOD_VERSION, Measurement
from warpwatch.instruments.gpu.roofs import roofs
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.session import compile_pairs

from .naming import class_name, definitions, kernel_of

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

_Pair = tuple[str, str]
_Cache = dict[_Pair, tuple[str, str, dict[str, float]]]

# Recorded per commit in asv; the other evidence lies in the file beside the results.
_METRICS = tuple(metric for metric in metrics.COMPILED if metric.exact)


class Compiled:
    """The fixed set, compiled for every target."""

    timeout = 600

    def setup_cache(self) -> _Cache:
        return _compiled()

    setup_cache.timeout = 600  # type: ignore[attr-defined]  # asv reads it


def _compiled() -> _Cache:
    measured = isolation.measured()
    found = load_workloads()
    pairs = [(workload.name, target) for workload, target in found.fixed_set()]
    everything = [workload.name for workload in found.all_workloads()]
    here = set(sharding.measured_here([name for name, _ in pairs], everything))
    pairs = [pair for pair in pairs if pair[0] in here]
    done = dict(compile_pairs.compiled_pairs(pairs))
    results = os.environ.get(isolation.RESULTS_VARIABLE)
    if measured is not None and results:
        # Here, not above: asv's fork server must import neither torch nor Triton.
        from warpwatch.instruments.compiled.measure import evidence

        folder = Path(results) / "evidence"
        everything_known = [*done.values(), *_kept(folder, measured.commit)]
        evidence.store(folder, measured.commit, everything_known)
    return {pair: (value.status, value.detail, dict(value.values)) for pair, value in done.items()}


def _kept(folder: Path, commit: str) -> list[Measurement]:
    """What is kept of the workloads that are not measured again, if some are."""
    import triton

    asked = sharding.only()
    found: list[Measurement] = []
    for path in kept_evidence.files(folder) if asked else ():
        if path.name != f"{commit[:8]}-{triton.__version__}{kept_evidence.SUFFIX}":
            continue
        before = kept_evidence.read(path)
        if (before.commit, before.method) != (commit, METHOD_VERSION):
            continue
        for (workload, target), row in before.results.items():
            if workload not in asked:
                said = row["status"], row["detail"], row["values"], row["evidence"]
                found.append(Measurement(workload, target, *said))
    return found


# Values are handed out in asv's own process (:mod:`warpwatch.asv.value_server`). Where asv starts
# one for each, each reads and splits into words the source of what it calls: the functions that asv
# knows are one line therefore.
def _handed_out(cache: _Cache, workload: str, target: str, metric: str) -> float:
    status, detail, values = cache.get((workload, target), ("not applicable", "", {}))
    if status in ("import failed", "not measured"):
        # The value should be there: asv records a failure, the report says `missing`.
        print(detail, file=sys.stderr)
        raise RuntimeError(detail)
    return values.get(metric, math.nan)


def _track(metric: metrics.Metric, found: list[Workload], sources: str) -> Any:
    def track(self: Any, cache: _Cache, workload: str, target: str) -> float:
        return _handed_out(cache, workload, target, metric.name)

    track.__doc__ = metric.meaning
    attributes = {
        "unit": metric.unit,
        "better": metric.better or "",
        "role": metric.role,
        "exact": metric.exact,
        "metric": metric.name,
        "instrument": "compiled",
        "version": METHOD_VERSION,
        # A commit that does not touch this folder cannot have changed the code.
        "sources": sources,
        "kernel": kernel_of(found),
        # Lists in the order of the first parameter.
        "flops": [workload.flops for workload in found],
        "bytes_moved": [workload.bytes_moved for workload in found],
        **definitions(found),
    }
    if metric.name == "bound_us":
        named = {target for _, target in load_workloads().fixed_set()}
        sheets = {
            target.name: devices.load(target.device)
            for target in targets.KNOWN
            if target.name in named
        }
        attributes |= roofs(sheets, found)
    for name, value in attributes.items():
        setattr(track, name, value)
    return track


def classes(module: str) -> dict[str, type]:
    """One class a kernel, so that a workload added to the yardstick is a benchmark at once."""
    by_kernel: dict[str, dict[str, Workload]] = {}
    wanted: dict[str, set[str]] = {}
    for workload, target in load_workloads().fixed_set():
        by_kernel.setdefault(workload.kernel, {})[workload.name] = workload
        wanted.setdefault(workload.kernel, set()).add(target)
    classes: dict[str, type] = {}
    sources = load_package().path
    for kernel, found in by_kernel.items():
        name = class_name(kernel)
        body: dict[str, Any] = {
            "params": [
                list(found),
                [one.name for one in targets.KNOWN if one.name in wanted[kernel]],
            ],
            "param_names": ["workload", "target"],
            "__doc__": f"{kernel} as the compilers of all targets see it.",
            "__module__": module,
        }
        for metric in _METRICS:
            body[f"track_{metric.name}"] = _track(metric, list(found.values()), sources)
        classes[name] = type(name, (Compiled,), body)
    return classes
