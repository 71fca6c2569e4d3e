"""Two versions judged by what compilers say of each: exact, and without a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warpwatch.config import metrics
from warpwatch.judge.model import advice, atomics, search_space
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.pairs.gate import judge_exact
from warpwatch.judge.pairs.run_verdict import Judged, of_time
from warpwatch.judge.predicted import verdict as predicted
from warpwatch.session import versions

_UNABLE = frozenset(("not applicable", "import failed", "not measured"))


def judge(
    base: Mapping[versions.Pair, Mapping[str, Any]],
    head: Mapping[versions.Pair, Mapping[str, Any]],
    limits: Thresholds,
) -> list[Judged]:
    """Judge every compiled metric with a direction, exactly, and the predicted times.

    Args:
        base: The compiled measurements of one version, by workload and target.
        head: Those of the other.
        limits: From where on a change counts.

    Returns:
        The series. A kernel only one side has is gained or lost once, not once a metric.
    """
    judged: list[Judged] = []
    for pair in base:
        before, after = base[pair], head[pair]
        if not before["status"] == after["status"] == "not applicable":
            judged += _of_call(f"{pair[0]} @ {pair[1]}", before, after, limits)
    return judged


def _of_call(
    subject: str, before: Mapping[str, Any], after: Mapping[str, Any], limits: Thresholds
) -> Iterator[Judged]:
    one_sided = {before["status"], after["status"]} & _UNABLE
    other_space = search_space.replaced(*(_evidence(row, "tuned") for row in (before, after)))
    time = predicted.between(before.get("evidence", {}), after.get("evidence", {}))
    if time is not None and time.checked and not other_space and not one_sided:
        yield of_time(subject, time)
    updates = [row["values"].get(atomics.METRIC) for row in (before, after)]
    explaining = {atomics.METRIC} if atomics.came_or_went(*updates) else set()
    for metric in metrics.COMPILED:
        if (metric.better is None and metric.name not in explaining) or (
            one_sided and metric.name != "launches"
        ):
            continue
        a, b = (float(row["values"][metric.name]) for row in (before, after))
        if math.isnan(a) and math.isnan(b) and not one_sided:
            continue
        judgement = judge_exact(a, b, metric.better or "lower", limits.of(metric.name))
        detail = after["detail"] or before["detail"]
        unsaid = atomics.reason(metric.name, *updates)
        if unsaid and judgement.verdict != "unchanged":
            judgement = replace(judgement, verdict="not applicable", reason=unsaid)
        elif (
            other_space
            and metric.name not in search_space.OF_THE_CALL
            and judgement.verdict not in ("unchanged", "missing")
        ):
            judgement = replace(judgement, verdict="inconclusive", reason=other_space)
        if metric.name == "advisories" and not math.isnan(b - a):
            detail = advice.words(_advisories(before), _advisories(after), more=b > a)
        if judgement.verdict != "unchanged" and detail:
            judgement = replace(judgement, reason=detail)
        yield Judged(
            metric=metric.name,
            subject=subject,
            unit=metric.unit,
            base=a,
            head=b,
            judgement=judgement,
            exact=True,
            instrument="compiled",
            evidence=metric.role == "evidence",
        )


def unread_on_both(
    base: Mapping[versions.Pair, Mapping[str, Any]],
    head: Mapping[versions.Pair, Mapping[str, Any]],
) -> dict[str, str]:
    """Find workloads that no target has a value of on either side.

    Args:
        base: The compiled measurements of one version, by workload and target.
        head: Those of the other.

    Returns:
        By workload the reason: of these a comparison says nothing.
    """
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for (name, _), row in (*base.items(), *head.items()):
        seen.setdefault(name, []).append(row)
    return {
        name: f"{rows[-1]['status']}: {rows[-1]['detail']}"
        for name, rows in seen.items()
        if all(row["status"] != "ok" for row in rows)
    }


def _advisories(row: Mapping[str, Any]) -> list[str]:
    return [text for launch in _evidence(row, "launches") for text in launch["advisories"]]


def _evidence(row: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = row.get("evidence", {}).get(name, ())
    return found
