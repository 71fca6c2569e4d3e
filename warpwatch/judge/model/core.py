"""The judge's own words, as the layers hand them on: commits, series, points, steps, verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Better = Literal["lower", "higher"]
Verdict = Literal[
    "regressed", "improved", "unchanged", "mixed", "inconclusive", "missing", "not applicable"
]
# What each means: legends and documents say it in these words. Those a word does not explain first.
MEANINGS: Mapping[Verdict, str] = {
    "missing": "base has a value, and head has none or fails",
    "mixed": "better and worse at once, and neither a measured nor a predicted time weighs it",
    "inconclusive": "the measurements cannot rule out a change that matters",
    "not applicable": "nothing to compare, as a value is new or does not apply at one commit",
    "regressed": "it got worse, by more than noise and threshold",
    "improved": "it got better, by more than noise and threshold, or failed at base",
    "unchanged": "a change that matters would have been seen",
}
FindingKind = Literal["slower", "faster", "lost", "flaky", "failed build", "other space"]
PointState = Literal["measured", "failed", "not applicable"]

# A range of more commits is named by its ends: to name one of so many would be a guess.
_MOST_NAMED = 20


@dataclass(frozen=True)
class Commit:
    """A commit of the measured repository; ``position`` counts from the oldest, along the graph."""

    hash: str
    parents: tuple[str, ...]
    time_s: int
    author: str
    subject: str
    position: int


@dataclass(frozen=True)
class Point:
    """One result of one series: a commit's value, with its samples where they were stored."""

    commit: str
    value: float | None
    state: PointState
    samples: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    started_ms: int | None = None


@dataclass(frozen=True)
class SeriesKey:
    """What makes two results the same series; nothing else splits a history."""

    machine: str
    environment: str
    benchmark: str
    params: tuple[str, ...]

    @property
    def label(self) -> str:
        return " ".join((self.benchmark, *self.params))


@dataclass(frozen=True)
class Series:
    """One metric of one workload on one machine, over commits (oldest first).

    ``exact`` instruments have no noise: any change is a change. ``role`` is ``evidence`` for a
    metric that explains but never alarms. ``borders`` are indexes of points at which the measuring
    method, image, driver, Triton or device changed: no verdict reaches across one.
    """

    key: SeriesKey
    unit: str
    better: Better | None
    role: Literal["verdict", "evidence"]
    exact: bool
    instrument: str
    points: tuple[Point, ...]
    borders: tuple[int, ...] = ()
    metric: str = ""
    workload: str = ""
    target: str = ""


@dataclass(frozen=True)
class Step:
    """A change point: ``index`` is the first point of the new level; ``interval`` holds the change
    point's index with high probability; ``confidence`` is in 0 to 1."""

    index: int
    before: float
    after: float
    interval: tuple[int, int]
    confidence: float


@dataclass(frozen=True)
class Change:
    """A step with its judgement: which series, between which commits, better or worse.

    ``first_commit`` is the first commit on the new level; ``last_good`` the last one measured on
    the old. ``ratio`` is after over before (``inf`` from zero).
    """

    series: SeriesKey
    verdict: Verdict
    step: Step
    last_good: str
    first_commit: str
    ratio: float


@dataclass(frozen=True)
class Finding:
    """Changes that share one cause, with the commit range that holds it."""

    identity: str
    verdict: Verdict
    commits: tuple[str, ...]
    changes: tuple[Change, ...]
    cost: float
    cause: str = "unknown"
    # What speaks for the cause, in one sentence.
    why: str = ""
    reasons: tuple[str, ...] = field(default=())
    # The verdict from the predicted time of its call, in one sentence; "" where none is predicted.
    predicted: str = ""
    # A failure is no slowdown: lost, flaky and failed builds are listed apart. Another search space
    # is neither: which of its configurations is faster a GPU must say.
    kind: FindingKind = "slower"
    # The probability that the commits hold the cause.
    sure: float = 1.0
    # The commits again, the likeliest first: who touched the kernel's files, then what they import.
    suspects: tuple[str, ...] = ()

    @property
    def since(self) -> str:
        """The commit to name: where the largest change begins, if its range holds that."""
        first = self.changes[0].first_commit
        return first if first in self.commits else self.commits[-1]

    @property
    def is_wide(self) -> bool:
        """Whether the range holds too many commits to name one."""
        return len(self.commits) > _MOST_NAMED

    @property
    def likeliest(self) -> str:
        """The commit of the range to look at first; :attr:`since` where no file tells."""
        return self.suspects[0] if self.suspects else self.since
