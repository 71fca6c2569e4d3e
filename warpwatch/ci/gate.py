"""Whether a GPU machine may measure what an event brings, and against which base.

Only the standard library is needed: this runs before anything is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .artifact import claimed_bases
from .event import Event
from .github import GitHub

# Their commit is the default branch's: the workflow lets no other ref through (warpwatch-gpu.yml).
OWN = ("push", "schedule", "workflow_dispatch")
# The lane that a pull request has gone through when the gate is asked.
_BEFORE = ("cpu",)


@dataclass(frozen=True)
class Admission:
    """What is measured: ``base`` is empty where nothing is, and ``reason`` says why."""

    base: str
    reason: str = ""


def admit(
    kind: str, base: str, environment: str, read: Callable[[], tuple[Event, GitHub]], package: str
) -> Admission:
    """Say what a GPU machine measures for this event.

    Args:
        kind: The name of the event.
        base: The commit compared with, for the default branch's own events.
        environment: Its reviewers approve a pull request's commit.
        read: Gives the event and the API.
        package: The measured package's folder in the repository; empty where it is elsewhere.

    Returns:
        The base to measure against, or why nothing is to be measured.

    Raises:
        ValueError: The environment asks nobody, or the event is of a kind that may not measure.
    """
    if kind in OWN:
        return Admission(base)
    if kind != "workflow_run":
        raise ValueError(f"event {kind!r}: a GPU machine measures for it in no case")
    event, api = read()
    if not api.reviewers(environment):
        raise ValueError(
            f"the environment {environment!r} has no required reviewers, so nobody would approve "
            "the commit before it is measured: add them in the repository's settings, under "
            "Environments (private repositories: GitHub Enterprise only). Without them unset "
            "WARPWATCH_GPU_BACKENDS"
        )
    pulls = api.pull_requests(event)
    if not pulls:
        return Admission("", f"no open pull request has {event.head[:10]} as its head")
    chosen = pulls[0]
    if len({pull.base for pull in pulls}) > 1:
        # Each has a run of its own, and GitHub does not say which is whose: its compile lane does.
        # A lie there moves the choice among bases of this head, and its author loses a check.
        bases = claimed_bases(api.artifacts(event.run), api.download, _BEFORE)
        chosen = next((pull for pull in pulls if pull.base in bases), chosen)
    if package and api.same(chosen.base, chosen.head, package):
        return Admission("", f"{package} is the same at base and head")
    return Admission(chosen.base)
