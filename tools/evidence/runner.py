"""Runs steps on cards until the time is up, and keeps what each prints and what came of it.

A folder has of each step ``NAME.txt``, what it printed, as it comes; ``NAME.json``, what came of
it; ``NAME/`` where the step writes files. What an earlier run left there is numbered, not written
over. One archive of the folder is replaced, whole, again and again.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tools.root import ROOT
from warpwatch.config import results_file

GRACE_S = 5.0  # between SIGTERM, upon which some print what they have, and SIGKILL
ARCHIVE_EVERY_S = 15.0
MOST_LINES = 4  # of a step in the table
# What a step may take beyond its estimate before it is taken for hung.
LIMIT_SHARE, LIMIT_S = 2.0, 60.0
FINISHED = ("ok", "failed")
# What an earlier run must share: a commit that changed none of these sources is as good.
SAME = ("sources", "triton", "torch")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """``command`` is what follows ``python``: ``{seconds}`` stands for the time it has, less the
    ``ends_s`` it takes to end when that is up, and ``{folder}`` for its files. ``seconds`` it takes
    about on an H200. ``shows`` says which figure is wanted.

    It is alone on its card unless its ``share`` is less than 1: so much of a card, and of the cores
    that come with it. ``timed`` steps are a queue of their own where there are several cards.

    It went well with exit code 0, a line that has ``must`` and none that has ``spoils``; with 0 or
    1 and what it must show, or with what spoils it, it is *failed*, else *incomplete*. ``tells``:
    lines for the table, the last one otherwise. All three are regular expressions.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    shows: str
    must: str
    tells: str = ""
    spoils: str = r"\bFAILED\b"
    share: float = 1.0
    timed: bool = False
    ends_s: float = 10.0

    @property
    def limit_s(self) -> float:
        return LIMIT_SHARE * self.seconds + LIMIT_S


@dataclass(frozen=True)
class Record:
    """What came of a step: *ok*, *failed*, *incomplete*, *cut off* or *not begun*. ``made_by`` says
    of which sources and which Triton."""

    step: str
    state: str
    code: int | None = None
    seconds: float = 0.0
    lines: tuple[str, ...] = ()
    made_by: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    card: str = ""
    kept: bool = False  # an earlier run's


def read_record(path: Path) -> Record | None:
    """What an earlier run wrote there, if it did."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        lines, command = (tuple(found.pop(name)) for name in ("lines", "command"))
        return Record(**found, lines=lines, command=command)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def judged(step: Step, text: str, code: int) -> str:
    shown = re.search(step.must, text, re.MULTILINE) is not None
    spoiled = re.search(step.spoils, text, re.MULTILINE) is not None
    if code == 0 and shown and not spoiled:
        return "ok"
    return "failed" if spoiled or (code in (0, 1) and shown) else "incomplete"


def telling(step: Step, text: str) -> tuple[str, ...]:
    """The lines for the table: what spoils first, then what ``tells``, or the last one."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if re.search(step.spoils, line)][:MOST_LINES]
    if step.tells:
        found += [line for line in lines if re.search(step.tells, line)][-MOST_LINES:]
    return tuple(line.strip()[:140] for line in dict.fromkeys(found or lines[-1:]))


def table(steps: Sequence[Step], records: Mapping[str, Record]) -> list[str]:
    """A row a step that has a record, further lines below; then the names of the others."""
    rows = []
    for step in steps:
        if (one := records.get(step.name)) is None:
            continue
        code = "-" if one.code is None else str(one.code)
        first, *others = (*one.lines, "")[: max(1, len(one.lines))]
        rows.append(
            f"{step.name:<26}{one.state:<11}{code:>4}{one.seconds:>6.0f} s of "
            f"{step.seconds:>4.0f}  {'(before) ' * one.kept}{first}".rstrip()
        )
        rows += [" " * 55 + line for line in others]
    rest = [step.name for step in steps if step.name not in records]
    return [*rows, f"to come: {' '.join(rest)}"] if rest else rows


def exit_code(records: Mapping[str, Record]) -> int:
    """1 where a step failed or did not show what it must, 3 where one did not come to its end."""
    states = {one.state for one in records.values()}
    if states & {"failed", "incomplete"}:
        return 1
    return 3 if not states or states != {"ok"} else 0


def pack(folder: Path, archive: Path) -> None:
    """Make ``archive`` of all in ``folder``; until it is whole the one before it stays."""
    partial = archive.with_name(f".{archive.name}.partial")
    left_out = {archive.resolve(), partial.resolve()}
    with tarfile.open(partial, "w:gz", compresslevel=1) as made:
        for path in sorted(folder.rglob("*")):
            if path.resolve() in left_out or not path.is_file():
                continue
            try:
                content = path.read_bytes()  # at once: it may grow, or be replaced
            except OSError:
                continue
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mtime = len(content), time.time()
            made.addfile(entry, io.BytesIO(content))
    partial.replace(archive)


def put_aside(folder: Path, name: str) -> None:
    """Number what an earlier run of a step left."""
    there = [path for end in (".txt", ".json", "") if (path := folder / f"{name}{end}").exists()]
    number = 1
    while any((folder / f"{name}.{number}{end}").exists() for end in (".txt", ".json", "")):
        number += 1
    for path in there:
        path.rename(folder / f"{name}.{number}{path.name.removeprefix(name)}")


@dataclass
class Running:
    step: Step
    card: str
    process: subprocess.Popen[bytes]
    command: tuple[str, ...]
    began: float
    limit: float  # of time.monotonic()
    told_to_end: float = 0.0


@dataclass
class Run:
    """``steps`` in their order on ``cards``, values of ``CUDA_VISIBLE_DEVICES``."""

    steps: Sequence[Step]
    cards: Sequence[str]
    folder: Path
    archive: Path
    until: float  # of time.monotonic()
    made_by: Mapping[str, str]
    say: Say = print
    records: dict[str, Record] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    packed: float = -ARCHIVE_EVERY_S

    def skip_done(self) -> None:
        """Take over what an earlier run finished of the same sources under the same Triton."""
        for step in self.steps:
            one = read_record(self.folder / f"{step.name}.json")
            if one is None or one.state not in FINISHED:
                continue
            if all(one.made_by.get(name) == self.made_by.get(name) for name in SAME):
                self.records[step.name] = replace(one, kept=True)

    def go(self) -> int:
        waiting = [step for step in self.steps if step.name not in self.records]
        why = "stopped before its turn"
        try:
            while waiting or self.running:
                self._reap()
                self._end_late()
                for card in self.cards:
                    while (step := self._next(card, waiting)) is not None:
                        waiting.remove(step)
                        self._begin(step, card)
                if not self.running or time.monotonic() >= self.until:
                    break
                self._keep_packed()
                time.sleep(0.1)
            why = "it would not end in time"
        finally:
            self._end_all()
            for step in waiting:
                self.records[step.name] = Record(step.name, "not begun", lines=(why,))
            self._told()
        return exit_code(self.records)

    def _next(self, card: str, waiting: Sequence[Step]) -> Step | None:
        """What ``card`` takes now: of several cards the first one times, the others check, and who
        has nothing left helps. What it takes next is waited for, so that its turn comes."""
        left = self.until - GRACE_S - time.monotonic()
        times = card == self.cards[0]
        order = [step for step in waiting if step.seconds <= left]
        if len(self.cards) > 1:
            order.sort(key=lambda step: step.timed != times)
        if not order:
            return None
        taken = sum(one.step.share for one in self.running if one.card == card)
        return order[0] if taken + order[0].share <= 1.0 + 1e-9 else None

    def _begin(self, step: Step, card: str) -> None:
        put_aside(self.folder, step.name)
        now = time.monotonic()
        limit = min(self.until - GRACE_S, now + step.limit_s)
        given = {
            "{seconds}": f"{max(1.0, limit - now - step.ends_s):.0f}",
            "{folder}": str(self.folder / step.name),
        }
        if any("{folder}" in part for part in step.command):
            (self.folder / step.name).mkdir()
        command = tuple(
            re.sub(r"\{(seconds|folder)\}", lambda found: given[found[0]], part)
            for part in step.command
        )
        with (self.folder / f"{step.name}.txt").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": card, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        self.running.append(Running(step, card, process, command, now, limit))
        self.say(f"{step.name} begins on card {card}: python {' '.join(command)}")

    def _reap(self) -> None:
        for one in list(self.running):
            if one.process.poll() is not None:
                _signal(one, signal.SIGKILL)  # what it left of its group
                self._record(one)

    def _record(self, one: Running) -> None:
        self.running.remove(one)
        text = (self.folder / f"{one.step.name}.txt").read_text(errors="replace")
        code = one.process.returncode
        cut_off = code is None or one.told_to_end
        found = Record(
            one.step.name,
            "cut off" if cut_off else judged(one.step, text, code),
            code,
            round(time.monotonic() - one.began, 1),
            telling(one.step, text),
            self.made_by,
            one.command,
            one.card,
        )
        self.records[one.step.name] = found
        where = str(self.folder / f"{one.step.name}.json")
        results_file.write(where, asdict(found), last=True)
        self._told()

    def _end_late(self) -> None:
        now = time.monotonic()
        for one in self.running:
            if not one.told_to_end and now >= one.limit:
                one.told_to_end = now
                _signal(one, signal.SIGTERM)
            elif one.told_to_end and now >= one.told_to_end + GRACE_S:
                _signal(one, signal.SIGKILL)

    def _end_all(self) -> None:
        """Whatever ended the run: nothing is left on a card, and what was printed is kept. What a
        driver that answers no more holds cannot be ended: that is not waited for."""
        for one in self.running:
            one.limit = 0.0
        last = time.monotonic() + 2 * GRACE_S
        while self.running and time.monotonic() < last:
            self._end_late()
            self._reap()
            time.sleep(0.05)
        for one in list(self.running):
            self._record(one)

    def _told(self) -> None:
        """The table so far, printed and kept."""
        lines = table(self.steps, self.records)
        self.say("\n".join(["", *lines, ""]))
        (self.folder / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._keep_packed(now=True)

    def _keep_packed(self, now: bool = False) -> None:
        if now or time.monotonic() >= self.packed + ARCHIVE_EVERY_S:
            pack(self.folder, self.archive)
            self.packed = time.monotonic()


def _signal(one: Running, what: signal.Signals) -> None:
    """To the group of a step: what it started in groups of its own ends by its own limit."""
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, what)
