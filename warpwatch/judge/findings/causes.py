"""Says in words what the compiled metrics of a finding show: the reason behind a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model import advice, atomics, search_space
from warpwatch.judge.model.core import Change
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.results.strict_json import line

_TENSOR_CORES = ("none", "mma.sync or MFMA", "wgmma", "tcgen05")
_LOADS = ("plain loads", "cp.async or direct to LDS", "TMA")
_ADVICE, _FAILURE = "advisories", "compile_failures"
_MOST = 8  # reasons of one metric, and kernels whose search space is another
_CALL = ("the call works again", "the call fails")  # where it is host code that raised
# Why not even the number of failures is there any more, by what came of the call.
_ENDED = {"import failed": "the import fails", "not applicable": "not there any more"}

# By metric: what a fall and a rise of it are called. The order is from cause to effect: a copy is
# also a launch, too few registers also serialise wgmma, and everything moves the bound.
_WORDS: Mapping[str, tuple[str, str]] = {
    _FAILURE: ("compiles again", "does not compile or fit"),
    "copied_bytes": ("copy removed", "extra copy"),
    "launches": ("fewer launches", "more launches"),
    "tensor_core_level": ("tensor-core flavour lost", "tensor-core flavour gained"),
    "async_copy_level": ("asynchronous loads lost", "asynchronous loads gained"),
    "spilled_bytes": ("fewer registers spill", "registers spill"),
    _ADVICE: ("", ""),  # the kinds have words of their own
    "blocks_in_flight": ("fewer blocks in flight", "more blocks in flight"),
    "bound_us": ("less work for the busiest unit", "more work for the busiest unit"),
}


def reasons(
    changes: Iterable[tuple[Change, SeriesInfo]], evidence: Evidence | None = None
) -> tuple[str, ...]:
    """What the changes of one finding say about its cause, the likeliest first.

    Only metrics of the compiled instrument explain; a finding of timings alone gets no reason.
    What the compiler advises against is in the ``evidence``, where that was kept.
    """
    found: dict[str, dict[str, list[tuple[Change, SeriesInfo]]]] = {}
    spaces: dict[str, None] = {}
    for change, info in changes:
        if info.meaning.metric == search_space.METRIC:
            spaces |= dict.fromkeys(_spaces(change, info, evidence))
        metric = info.meaning.metric
        # The strongest names all of a metric; advice and errors differ from kernel to kernel.
        kind = ""
        if metric in (_ADVICE, _FAILURE):
            kind = (_advice if metric == _ADVICE else _failure)(change, info, evidence)
        # A value that ended or began has no direction; the metric that says why has one.
        ended = math.isnan(change.step.after - change.step.before)
        if metric in _WORDS and not (ended and (metric != _FAILURE or not kind)):
            found.setdefault(metric, {}).setdefault(kind, []).append((change, info))
    said = (
        _reason(metric, kind, changes)
        for metric in _WORDS
        for kind, changes in list(found.get(metric, {}).items())[:_MOST]
    )
    return (*list(spaces)[:_MOST], *said)


def atomic_updates(changes: Iterable[tuple[Change, SeriesInfo, Table]]) -> tuple[str, ...]:
    """Say where calls of a finding began or ceased to update memory atomically.

    The count has no direction, so it makes no change of its own. Yet programs that wait for the
    same addresses explain a time better than what became of the launches.

    Args:
        changes: The changes of the finding, each with its series and its table.

    Returns:
        A sentence for each pair of counts, the most workloads first.
    """
    found: dict[tuple[float, float], dict[tuple[str, str], None]] = {}
    for change, info, table in changes:
        row = table.row_of(atomics.METRIC, info.workload, info.target)
        columns = [table.column_of(commit) for commit in (change.last_good, change.first_commit)]
        counts = [
            None if row is None or column is None else float(table.values[row, column])
            for column in columns
        ]
        before, after = counts
        if before is not None and after is not None and atomics.came_or_went(before, after):
            found.setdefault((before, after), {})[info.workload, info.target] = None
    ranked = sorted(found.items(), key=lambda one: -len(one[1]))
    return tuple(
        f"atomic updates: {before:,.0f} to {after:,.0f} elements a call, "
        f"{_listed(workload for workload, _ in where)} on {_listed(target for _, target in where)}"
        for (before, after), where in ranked[:_MOST]
    )


def _spaces(change: Change, info: SeriesInfo, evidence: Evidence | None) -> list[str]:
    if evidence is None:
        return []
    triton = info.key.environment.removeprefix("triton ")
    place = (info.workload, info.target)
    sides = [
        evidence.tuned(commit, triton).get(place, ())
        for commit in (change.last_good, change.first_commit)
    ]
    return [line(said) for said in search_space.changes(*sides)]


def _advice(change: Change, info: SeriesInfo, evidence: Evidence | None) -> str:
    texts: list[list[str]] = [[], []]
    if evidence is not None:
        triton = info.key.environment.removeprefix("triton ")
        for side, commit in zip(texts, (change.last_good, change.first_commit), strict=True):
            for launch in evidence.launches(commit, triton).get((info.workload, info.target), ()):
                side += launch.advisories
    return advice.words(*texts, more=change.step.after > change.step.before)


def _failure(change: Change, info: SeriesInfo, evidence: Evidence | None) -> str:
    if evidence is None or math.isnan(change.step.before):
        return ""
    fell = change.step.after < change.step.before
    where = (
        change.last_good if fell else change.first_commit,
        info.key.environment.removeprefix("triton "),
    )
    place = (info.workload, info.target)
    error, status = evidence.details(*where).get(place), evidence.statuses(*where).get(place, "")
    if math.isnan(change.step.after):
        what = _ENDED.get(status)
    else:
        what = (_CALL if status == "call failed" else _WORDS[_FAILURE])[not fell]
    return f"{what} ({error})" if what and error else ""


def _reason(metric: str, what: str, changes: Sequence[tuple[Change, SeriesInfo]]) -> str:
    less, more = _WORDS[metric]
    strongest, _ = changes[0]
    before, after = float(strongest.step.before), float(strongest.step.after)
    what = what or (more if after > before else less)
    if math.isnan(after):
        return f"{what}: {_places(info for _, info in changes)}"
    said = _values(metric, strongest)
    alike = [info for one, info in changes if _values(metric, one) == said]
    others = [info for one, info in changes if _values(metric, one) != said]
    also = f"; also {_places(others)}" if others else ""
    return f"{what}: {said}, {_places(alike)}{also}"


def _places(series: Iterable[SeriesInfo]) -> str:
    known = list(series)
    return f"{_listed(one.workload for one in known)} on {_listed(one.target for one in known)}"


def _values(metric: str, change: Change) -> str:
    before, after = float(change.step.before), float(change.step.after)
    return f"{_value(metric, before)} to {_value(metric, after)}"


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
