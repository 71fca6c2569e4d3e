"""Predicted times that got surely longer along the history, and the findings that hold them.

Steps of measured series open findings. A predicted time is in no series: it is read from the
evidence of two commits, as a comparison of recorded commits does. So a report names those that no
finding does, else it would call clean what a comparison fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from warpwatch.judge.evidence.lookup import Evidence, Place
from warpwatch.judge.model import search_space
from warpwatch.judge.model.core import Commit, Finding
from warpwatch.judge.predicted import verdict as predicted

from .judgement import Judgement

_Call = tuple[str, Place]  # environment or Triton; workload and target


@dataclass(frozen=True)
class LongerTime:
    """A call that is predicted to take longer at ``head`` than at ``base``, the last commit before
    that has a predicted time of it.

    ``stands`` where the newest predicted time is still longer. ``held`` where a finding says so:
    one that compiled metrics of the call opened in between, open where the time stands.
    """

    workload: str
    target: str
    base: str
    head: str
    time: predicted.Change
    stands: bool
    held: bool


def between(
    evidence: Evidence, place: Place, triton: str, commits: Sequence[str]
) -> predicted.Change | None:
    """Compare the predicted times of a recorded call at two commits.

    Args:
        evidence: Where they are.
        place: The workload and the target.
        triton: The version of Triton that compiled both.
        commits: The older and the newer one.

    Returns:
        How its time changes; ``None`` where one has no time, where no card checked the model, or
        where autotuned kernels are recorded in other configurations.

    Example:
        >>> between(Evidence(), ("add", "sm_90"), "3.7.1", ("1f2e", "3d4c")) is None
        True
    """
    before, after = (evidence.calls(commit, triton).get(place) for commit in commits)
    spaces = [evidence.tuned(commit, triton).get(place, ()) for commit in commits]
    if before is None or after is None or search_space.replaced(*spaces):
        return None
    time = predicted.of_calls(before, after)
    return time if time is not None and time.checked else None


def longer_times(judgement: Judgement) -> list[LongerTime]:
    """Find every predicted time that is surely longer than the one before it.

    Args:
        judgement: Of the history, with the evidence that lies next to it.

    Returns:
        Those of each call, oldest first; also those that a finding holds.

    Example:
        >>> [one.workload for one in longer_times(judgement) if not one.held]
        ['add']
    """
    evidence, findings = judgement.evidence, _findings(judgement)
    found: list[LongerTime] = []
    for table in judgement.history.tables:
        compiled = {
            (info.workload, info.target)
            for info in table.series
            if info.meaning.instrument == "compiled" and info.target
        }
        triton = table.environment.removeprefix("triton ")
        known: dict[Place, list[Commit]] = {}
        for commit in table.commits if compiled else ():
            for place in evidence.calls(commit.hash, triton):
                known.setdefault(place, []).append(commit)
        for place in sorted(known.keys() & compiled):
            said = findings.get((table.environment, place), ())
            found += _of_call(judgement, (triton, place), known[place], said)
    return found


def _of_call(
    judgement: Judgement,
    call: _Call,
    known: Sequence[Commit],
    findings: Sequence[tuple[int, Finding]],
) -> Iterator[LongerTime]:
    """Of the commits at which its time is known."""
    evidence, (triton, place) = judgement.evidence, call
    for number, (base, head) in enumerate(pairwise(known), 1):
        time = between(evidence, place, triton, (base.hash, head.hash))
        if time is None or time.verdict != "regressed":
            continue
        # The newest that can be compared with it: no verdict crosses to another model of time.
        later = (
            between(evidence, place, triton, (base.hash, one.hash))
            for one in reversed(known[number:])
        )
        last = next(found for found in later if found is not None)
        stands = last.verdict == "regressed"
        saying = [one for at, one in findings if base.position < at <= head.position]
        held = any(judgement.is_open(one) or not stands for one in saying)
        yield LongerTime(*place, base.hash, head.hash, time, stands, held)


def _findings(judgement: Judgement) -> dict[_Call, list[tuple[int, Finding]]]:
    """For each call the findings for the worse of its compiled metrics, and where they step."""
    found: dict[_Call, list[tuple[int, Finding]]] = {}
    for finding in judgement.findings:
        for change in finding.changes if judgement.status(finding) != "improved" else ():
            info = judgement.info(change.series)
            if info.meaning.instrument == "compiled":
                call = info.key.environment, (info.workload, info.target)
                at = judgement.history.positions[change.first_commit]
                found.setdefault(call, []).append((at, finding))
    return found
