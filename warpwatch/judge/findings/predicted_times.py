"""Says what the predicted times of a finding's calls make of its compiled metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model.core import Change, Verdict
from warpwatch.judge.predicted import verdict as predicted
from warpwatch.judge.results.history import SeriesInfo

_ORDER: tuple[Verdict, ...] = ("regressed", "mixed", "inconclusive", "improved", "unchanged")

_Ends = tuple[str, str]  # the last commit before, the first after
_Call = tuple[str, str, str]  # workload, target and Triton


def sentence(changes: Iterable[tuple[Change, SeriesInfo]], evidence: Evidence) -> str:
    """Say the verdict of the call that it is gravest for.

    Args:
        changes: The changes of one finding, each with its series.
        evidence: Where predicted times are.

    Returns:
        One sentence; "" where no time is predicted, or none was checked against a card.

    Example:
        >>> sentence([], Evidence())
        ''
    """
    calls: dict[_Call, tuple[_Ends, dict[str, float], dict[str, float]]] = {}
    for change, info in changes:
        if info.meaning.instrument == "compiled" and info.target:
            triton = info.key.environment.removeprefix("triton ")
            call = info.workload, info.target, triton
            ends = change.last_good, change.first_commit
            _, worse, better = calls.setdefault(call, (ends, {}, {}))
            moved = better if change.verdict == "improved" else worse
            moved[info.meaning.metric] = change.step.before
    found = []
    for (workload, target, triton), (ends, worse, better) in calls.items():
        sides = [evidence.calls(commit, triton).get((workload, target)) for commit in ends]
        if sides[0] is None or sides[1] is None:
            continue
        time = predicted.of_calls(sides[0], sides[1])
        if time is not None and time.checked:
            word = predicted.weigh(time, worse, better)
            size = abs(math.log(time.after / time.before))
            found.append((_ORDER.index(word), -size, f"{word}, {workload} on {target}: {time}"))
    if not found:
        return ""
    more = len(found) - 1
    return min(found)[2] + (f"; {more} more calls are predicted" if more else "")
