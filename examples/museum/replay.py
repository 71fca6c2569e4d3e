"""Compiles both sides of exhibits and harmless edits, and holds what is said against what is."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from warpwatch.instruments.compiled.diff import comparison, sides
from warpwatch.instruments.compiled.measure import jobs

from .case import Case, Edit, edited
from .harmless import Harmless

_WORSE = ("regressed", "missing")
_ALIKE = ("same", "other code")
_INSTALLED = "."
# What spills takes the assembler minutes on a busy machine.
_JOB_SECONDS = 600.0


@dataclass(frozen=True)
class Side:
    """Code that is compiled: a file with edits, for a target, under a Triton."""

    file: str
    edits: tuple[Edit, ...]
    target: str
    triton: str = _INSTALLED

    @property
    def module(self) -> str:
        """A name of its own for each text."""
        text = edited(self.file, self.edits)
        return f"{Path(self.file).stem}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def job(self) -> jobs.Job:
        return jobs.Job(f"{self.module}:call", self.target)


@dataclass(frozen=True)
class Row:
    """What came of an exhibit or a harmless edit. ``flagged`` are the targets on which it is called
    worse, ``said`` the words on the first of them. ``found`` says that it was flagged where it
    must be, ``cause`` that the cause is named there, ``target`` that no other is flagged."""

    name: str
    title: str
    source: str
    expected: tuple[str, ...]
    flagged: tuple[str, ...]
    said: str
    found: bool
    cause: bool
    target: bool
    missed: str = ""

    @property
    def right(self) -> bool:
        """Whether it is as it should be, where nothing is known to be missed."""
        return self.found and self.cause and self.target

    @property
    def as_stated(self) -> bool:
        """Whether it is as the exhibit says: found with its cause, or missed."""
        return self.right != bool(self.missed)


def replay(cases: Sequence[Case], harmless: Sequence[Harmless]) -> list[Row]:
    """Every exhibit, then every harmless edit, each compiled on both sides."""
    pairs = [(one, _sides(one)) for one in cases]
    edits = [(one, _sides_of_edit(one)) for one in harmless]
    wanted = [side for _, found in (*pairs, *edits) for both in found for side in both]
    done = _compiled(wanted)
    rows = [
        _row(case, [_compared(case.name, both, done) for both in found]) for case, found in pairs
    ]
    for edit, found in edits:
        rows.append(_row_of_edit(edit, [_compared(edit.name, both, done) for both in found]))
    return rows


def _sides(case: Case) -> list[tuple[Side, Side]]:
    old, new = case.tritons or (_INSTALLED, _INSTALLED)
    return [
        (Side(case.file, case.before, target, old), Side(case.file, case.after, target, new))
        for target in case.targets
    ]


def _sides_of_edit(one: Harmless) -> list[tuple[Side, Side]]:
    return [
        (Side(one.file, (), target), Side(one.file, one.edits, target)) for target in one.targets
    ]


def _compiled(wanted: Iterable[Side]) -> dict[Side, jobs.Result]:
    """Each side once, those of one Triton in processes of their own."""
    by_triton: dict[str, dict[jobs.Job, list[Side]]] = {}
    for side in dict.fromkeys(wanted):
        by_triton.setdefault(side.triton, {}).setdefault(side.job, []).append(side)
    found: dict[Side, jobs.Result] = {}
    with TemporaryDirectory(prefix="museum-") as folder:
        for triton, asked in by_triton.items():
            for same in asked.values():
                text = edited(same[0].file, same[0].edits)
                Path(folder, f"{same[0].module}.py").write_text(text, encoding="utf-8")
            with sides.opened(triton) as opened:
                environment = dict(opened.environment)
                environment["PYTHONPATH"] = os.pathsep.join((environment["PYTHONPATH"], folder))
                done = jobs.run(list(asked), environment, job_seconds=_JOB_SECONDS)
                for count, result in enumerate(done, 1):
                    found |= dict.fromkeys(asked[result.job], result)
                    if sys.stderr.isatty():
                        print(f"\r{opened.label}: {count}/{len(asked)}", end="", file=sys.stderr)
            if sys.stderr.isatty():
                print(file=sys.stderr)
    return found


def _compared(
    name: str, both: tuple[Side, Side], done: dict[Side, jobs.Result]
) -> comparison.Compared:
    job = jobs.Job(name, both[0].target)
    old, new = (replace(done[side], job=job) for side in both)
    (compared,) = comparison.compare([old], [new])
    return compared


def _text(one: comparison.Compared) -> str:
    changes = (*one.verdicts, *one.evidence)
    return "; ".join((*(str(change) for change in changes), *one.causes))


def _row(case: Case, compared: Sequence[comparison.Compared]) -> Row:
    flagged = tuple(one.target for one in compared if one.word in _WORSE)
    worse = [one for one in compared if one.target in case.worse]
    named = all(re.search(case.cause, _text(one)) for one in worse)
    first = next((one for one in worse if one.target in flagged), worse[0])
    return Row(
        case.name,
        case.title,
        case.source,
        case.worse,
        flagged,
        _text(first) if flagged else f"{first.word}: {_text(first)}",
        found=set(case.worse) <= set(flagged),
        cause=named and set(case.worse) <= set(flagged),
        target=set(flagged) <= set(case.worse),
        missed=case.missed,
    )


def _row_of_edit(one: Harmless, compared: Sequence[comparison.Compared]) -> Row:
    flagged = tuple(each.target for each in compared if each.word not in _ALIKE)
    said = "; ".join(f"{each.word}: {_text(each)}" for each in compared if each.target in flagged)
    quiet = not flagged
    return Row(one.name, one.title, "", (), flagged, said, found=quiet, cause=quiet, target=quiet)
