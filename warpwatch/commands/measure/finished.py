"""The line at the end of each commit of a history: its result, its time, and the time left."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from warpwatch.commands.measure.queues import Queue, has
from warpwatch.config import isolation
from warpwatch.instruments.compiled.diff import comparison, kept
from warpwatch.judge.evidence import compiled
from warpwatch.judge.evidence.benchmarks import counted
from warpwatch.judge.evidence.coverage import IsKept, coverage
from warpwatch.judge.results.strict_json import RejectedError, line

# asv's heading of a commit that it begins; of one that has all its values there is none.
_BEGINS = re.compile(r"· For .* commit ([0-9a-f]+)\b")
_LONGEST_SUBJECT = 50
_HOST = "host"
_UNSAID = ("same", "other code", "nothing")


@dataclass(frozen=True)
class Recorded:
    """Where a history leaves its values, and which of them are its own.

    Attributes:
        results: asv's folder of results.
        begin_ns: When the history began; files written before are of earlier ones.
        is_kept: Says of a commit's file and a workload whether this run has left it as it was.
        subjects: Of each commit.
    """

    results: Path
    begin_ns: int
    is_kept: IsKept
    subjects: Mapping[str, str]

    def said(self, commit: str, queue: Queue) -> str:
        """How much of a commit was measured in a queue."""
        said = []
        ran = counted(self.results, {commit}, queue.patterns, self.begin_ns)
        pairs = coverage(self.results / compiled.FOLDER, {commit}, self.is_kept)
        if pairs.pairs and queue.name != _HOST:
            said.append(f"{pairs.measured} of {pairs.pairs} pairs measured")
            without = {"failed": 0, "not applicable": 0}
            for one in pairs.reasons:
                status = "not applicable" if one.status == "not applicable" else "failed"
                without[status] += one.count
            said += [f"{count} {status}" for status, count in without.items() if count]
            said += [f"{pairs.kept} of these kept"] if pairs.kept else []
        failed = sum(count for _, count in ran.failed)
        if ran.measured or failed:
            said.append(f"{ran.measured} of {ran.measured + failed} values measured")
        return ", ".join(said) or "nothing measured"

    def has_earlier(self, commit: str) -> bool:
        """Whether an earlier run left compiled values of a commit."""
        paths = (self.results / compiled.FOLDER).glob(f"{commit[:8]}-*{compiled.SUFFIX}")
        return any(path.stat().st_mtime_ns < self.begin_ns for path in paths)

    def worst(self, older: str, newer: str) -> str:
        """The gravest compiled change between two commits; nothing where one was not measured."""
        try:
            sides = kept.of_commits(older, newer, self.results / compiled.FOLDER)
        except (RejectedError, OSError):
            return ""  # the end of the history names it
        if sides is None:
            return ""
        found = [one for one in comparison.compare(*sides) if one.word not in _UNSAID]
        if not found:
            return "unchanged"
        first, more = found[0], len(found) - 1
        change = first.worst or next(iter(first.verdicts), None)
        named = f"{change} of " if change else ""
        others = f" and {more} more" if more else ""
        return line(f"{first.word}, {named}{first.name} on {first.target}{others}")


def subjects_of(repository: Path, commits: Sequence[str]) -> dict[str, str]:
    """The first lines of the messages of commits.

    Args:
        repository: That holds them.
        commits: Full hashes.

    Returns:
        By commit its first line, shortened and printable.

    Example:
        >>> subjects_of(Path("."), ["5c8530b4..."])
        {'5c8530b4...': 'Show no bound as least time where a call took less'}
    """
    log = isolation.git(repository, "log", "--no-walk=unsorted", "--format=%H %s", *commits, "--")
    found = {}
    for one in log.decode("utf-8", "replace").split("\n"):
        commit, _, subject = one.partition(" ")
        cut = subject[: _LONGEST_SUBJECT - 1] + "…" if len(subject) > _LONGEST_SUBJECT else subject
        found[commit] = line(cut)
    return found


@dataclass
class Stage:
    """The commits that asv measures at a time, in one queue or several.

    Attributes:
        commits: All of them, newest first.
        recorded: Where their values are.
        is_last: Whether nothing is measured after this stage.
    """

    commits: Sequence[str]
    recorded: Recorded
    is_last: bool = True
    _began: float = field(default_factory=time.monotonic)
    _done: set[str] = field(default_factory=set)
    _compared: set[tuple[str, str]] = field(default_factory=set)
    _measured: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def passed(self, commits: Sequence[str]) -> None:
        """Commits that asv leaves out, as all their values are recorded."""
        with self._lock:
            self._done.update(commits)

    def finished(self, commit: str, queue: Queue, seconds: float) -> None:
        """Print the line of a commit; those of two queues do not mix."""
        with self._lock:
            self._done.add(commit)
            self._measured += 1
            what = "host's times of commit" if queue.name == _HOST else "commit"
            subject = self.recorded.subjects.get(commit, "")
            place = f"{len(self._done)} of {len(self.commits)}"
            said = [
                f"{what} {place} done: {commit[:8]} “{subject}”",
                self.recorded.said(commit, queue),
                *(self._changes(commit) if queue.name != _HOST else ()),
                f"took {duration(seconds)}",
                *self._left(),
            ]
            print("; ".join(said) + "\n", end="", file=sys.stderr, flush=True)

    def _changes(self, commit: str) -> list[str]:
        """What changed from the commit before, and, as the newest come first, in the one after.
        Each is said once, where both commits have all their values."""
        at, said = self.commits.index(commit), []
        for older, newer in pairwise(self.commits[max(at - 1, 0) : at + 2][::-1]):
            other = older if commit == newer else newer
            is_known = other in self._done or self.recorded.has_earlier(other)
            worst = self.recorded.worst(older, newer) if is_known else ""
            if not worst or (older, newer) in self._compared:
                continue
            self._compared.add((older, newer))
            what = f"compared with {older[:8]}" if commit == newer else f"{newer[:8]} after it"
            said.append(f"{what}: {worst}")
        return said

    def _left(self) -> list[str]:
        left = len(self.commits) - len(self._done)
        if not left:
            return []
        seconds = (time.monotonic() - self._began) / self._measured * left
        but = "" if self.is_last or not has(_HOST) else ", without the host's times"
        return [f"about {duration(seconds)} left{but}"]


@dataclass
class Ends:
    """Hears in the output of one run of asv where its commits end.

    Attributes:
        stage: That the run is a part of.
        queue: What it measures.
    """

    stage: Stage
    queue: Queue
    _now: str = ""
    _since: float = 0.0

    def hear(self, said: str) -> None:
        """Take a line of asv's output."""
        heading = _BEGINS.search(said)
        if heading is None:
            return
        begun = [one for one in self.queue.commits if one.startswith(heading[1])]
        if not begun or begun[0] == self._now:
            return
        self._finish()
        before = self.queue.commits[: self.queue.commits.index(begun[0])]
        self.stage.passed(before)
        self._now, self._since = begun[0], time.monotonic()

    def end(self) -> None:
        """Take the end of a run that measured all its commits."""
        self._finish()
        self.stage.passed(self.queue.commits)

    def _finish(self) -> None:
        if self._now:
            self.stage.finished(self._now, self.queue, time.monotonic() - self._since)
        self._now = ""


def duration(seconds: float) -> str:
    """A time as one says it.

    Args:
        seconds: How long.

    Returns:
        In seconds, minutes or hours.

    Example:
        >>> duration(42.4), duration(760), duration(9000)
        ('42 s', '13 min', '2.5 h')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
