"""Findings in sentences: what moved, by how much, since when, and how sure that is."""

from __future__ import annotations

import math

from warpwatch.judge.model.core import Change, Finding
from warpwatch.judge.series.changes import kind

from . import words
from .view import View, many


def moved(view: View, finding: Finding) -> str:
    """What the changes of a finding have in common, as the rest of a sentence about them.

    Args:
        view: That shows it.
        finding: Whose largest change gives the size.

    Returns:
        Such as "rose by up to 140 %", "fell from 2 to 1" or "has no value any more".
    """
    changes, first = finding.changes, largest(finding)
    what = kind(first)
    recovered = view.judgement.status(finding) == "recovered"
    if what == "lost":
        one = len(changes) == 1
        if recovered:
            return f"{'was' if one else 'were'} without a value, and {'has' if one else 'have'} one"
        return f"{'has' if one else 'have'} no value any more"
    if what == "other space":
        return "is another"
    if what == "gained":
        return "has a value" if len(changes) == 1 else "have a value"
    ways = {change.step.after > change.step.before for change in changes}
    verb = "got worse" if what == "hurt" else "got better"
    if len(ways) == 1:
        verb = "rose" if True in ways else "fell"
    most = "up to " if len({size(view, change) for change in changes}) > 1 else ""
    return f"{verb} {_by(view, first, most)}" + (", and recovered" if recovered else "")


def largest(finding: Finding) -> Change:
    """The change that moved furthest among those like the first, which is the costliest."""
    alike = [one for one in finding.changes if kind(one) == kind(finding.changes[0])]

    def distance(change: Change) -> float:
        if not 0 < change.ratio < math.inf:
            return math.inf if change.ratio == change.ratio else -1.0
        return abs(math.log(change.ratio))

    return max(alike, key=distance)


def size(view: View, change: Change) -> str:
    """Say how much a change changed.

    Args:
        view: That shows it.
        change: Of a series of the view.

    Returns:
        Such as "+8 %", "3.2x" or "from 0 to 64 MiB"; "" where a value is gone or new.

    Example:
        >>> size(view, change)
        '+8 %'
    """
    return words.size(change, view.info(change.series).meaning.unit)


def most(view: View, finding: Finding) -> str:
    """Say how much the largest change of a finding is.

    Args:
        view: That shows it.
        finding: Whose changes are seen.

    Returns:
        Such as "+8 %", or "up to +8 %" where others of its kind changed by less.

    Example:
        >>> most(view, finding)
        'up to +8 %'
    """
    found = size(view, largest(finding))
    alike = (one for one in finding.changes if kind(one) == kind(finding.changes[0]))
    if not found or found.startswith("from ") or all(size(view, one) == found for one in alike):
        return found
    return f"up to {found}"


def headed(view: View, finding: Finding, status: str) -> str:
    """The size of the largest change of a finding and whether it stays, in a sentence."""
    change = largest(finding)
    return words.headed(change, view.info(change.series).meaning.unit, status)


def _by(view: View, change: Change, most: str) -> str:
    if change.step.before == 0:
        return size(view, change)
    if change.ratio >= 3:
        return f"to {most}{change.ratio:.3g} times as much"
    percent = abs(100 * (change.ratio - 1))
    return f"by {most}{percent:.3g} %" if math.isfinite(percent) else ""


def certainty(finding: Finding) -> str:
    """How sure the commits of a finding are."""
    sure = f"{100 * finding.sure:.0f} %"
    if len(finding.commits) == 1:
        return f"this commit holds the cause, {sure} sure"
    if finding.is_wide:
        return f"the cause lies in one of these {many(len(finding.commits), 'commit')}, {sure} sure"
    which = "the likeliest that touches these files" if finding.suspects else "the likeliest"
    return f"{which} of {many(len(finding.commits), 'commit')} that may hold the cause, {sure} sure"


def cause(finding: Finding) -> str:
    """Say what caused a finding: whose part it is, and what was seen there.

    Args:
        finding: To be explained.

    Returns:
        Such as "kernel: registers spill", or the ground for the blame where nothing else is seen.

    Example:
        >>> cause(finding)
        'kernel: extra copy (gelu_kernel)'
    """
    if finding.reasons:
        return f"{finding.cause}: {finding.reasons[0]}"
    known = finding.why if finding.cause != "unknown" else ""
    return f"{finding.cause}, {known}" if known else finding.cause


def stake(view: View, finding: Finding) -> str:
    """What a finding costs or saves, in time only where a time can follow from it."""
    status = view.judgement.status(finding)
    if finding.cost <= 0 or kind(finding.changes[0]) in ("lost", "gained"):
        return ""
    infos = [view.info(change.series) for change in finding.changes]
    if not any(info.meaning.unit in words.TIMES for info in infos):
        return ""  # of blocks, launches and bytes no time follows
    if not any((info.key.machine, info.workload, info.target) in view.timed for info in infos):
        return ""
    return words.stake(finding, status)
