"""What of a comparison is kept already, and what has to be compiled for it.

Values are compared only where one method and one Triton made them. So evidence serves a comparison
either whole, both commits of one method and Triton, or beside what is compiled now, and then it
must be of today's method and the installed Triton.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwatch.config import isolation
from warpwatch.instruments import compiled
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.instruments.compiled.measure.jobs import Job, Result
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.compiled import Evidence

from . import sides

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Side:
    """The results of one side, in the order they were asked for; ``kept`` of them were read from
    evidence, the rest compiled."""

    label: str
    results: tuple[Result, ...]
    kept: int


class Listings(Mapping[str, str]):
    """Listings of machine code by hash, each read from the folder when it is asked for."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self._folder = folder
        self._names = tuple(dict.fromkeys(names))

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return kept_evidence.listing(self._folder, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def compared(
    names: tuple[str, str], asked: Sequence[Job], folder: Path, tell: Tell
) -> tuple[Side, Side]:
    """Both sides of a comparison; what ``folder`` holds of them is not compiled again."""
    stored = [_stored(name, folder) for name in names]
    kinds = [{(one.triton, one.method) for one in side} for side in stored]
    here = (_installed(), compiled.METHOD_VERSION)
    common = sorted(kinds[0] & kinds[1], key=lambda kind: (kind == here, kind))
    for kind in reversed(common):
        results = [_results(side, kind, folder, asked) for side in stored]
        if all(len(one) == len(asked) for one in results):
            break
    else:
        results = [_results(side, here, folder, asked) for side in stored]
    old, new = (_side(name, one, asked, tell) for name, one in zip(names, results, strict=True))
    return old, new


def of_commits(old: str, new: str, folder: Path) -> tuple[list[Result], list[Result]] | None:
    """All that is kept of two commits, of one Triton and method; nothing is compiled.

    Args:
        old: A full hash.
        new: Another one.
        folder: The folder of evidence.

    Returns:
        The results of both; None where no Triton and method is common to them.

    Raises:
        RejectedError: A file of evidence is none.
    """
    stored = [_of(one, folder) for one in (old, new)]
    kinds = [{(one.triton, one.method) for one in side} for side in stored]
    here = (_installed(), compiled.METHOD_VERSION)
    kind = max(kinds[0] & kinds[1], key=lambda kind: (kind == here, kind), default=None)
    if kind is None:
        return None
    before, after = (
        _results(side, kind, folder, [Job(*key, is_workload=True) for key in _pairs(side)])
        for side in stored
    )
    return list(before.values()), list(after.values())


def _pairs(stored: Sequence[Evidence]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(key for one in stored for key in one.results))


def _side(name: str, kept: Mapping[Job, Result], asked: Sequence[Job], tell: Tell) -> Side:
    missing = [job for job in asked if job not in kept]
    if not missing:
        label = _commit(name)[:8]
        tell(f"{label}: {len(kept)} of {len(asked)} from kept evidence, nothing to compile")
        return Side(label, tuple(kept[job] for job in asked), len(kept))
    if not _has_triton():
        raise ValueError(
            f"{name}: no evidence is kept of {_named(missing)}, and Triton cannot be imported here "
            "to compile it: measure the commit where Triton is"
        )
    with sides.opened(name) as side:
        tell(f"{side.label}: {len(kept)} of {len(asked)} from kept evidence, compiling the rest")
        alone = not all(job.is_workload for job in missing)
        done = {one.job: one for one in jobs.run(missing, side.environment, one_process_each=alone)}
        label = side.label
    return Side(label, tuple({**kept, **done}[job] for job in asked), len(kept))


def _stored(name: str, folder: Path) -> list[Evidence]:
    """All evidence of the commit called ``name``, or of the one its package comes from: commits
    that do not touch the package are not measured. None of the working tree or a Triton version."""
    if not sides.is_commit(name):
        return []
    commit = _commit(name)
    for one in dict.fromkeys((commit, isolation.last_touched(commit))):
        found = _of(one, folder)
        if found:
            return found
    return []


def _of(commit: str, folder: Path) -> list[Evidence]:
    paths = folder.glob(f"{commit[:8]}-*{kept_evidence.SUFFIX}")
    return [kept for kept in map(kept_evidence.read, paths) if kept.commit == commit]


def _results(
    stored: Sequence[Evidence], kind: tuple[str, str], folder: Path, asked: Sequence[Job]
) -> dict[Job, Result]:
    """What is kept of ``asked``, of one Triton and method."""
    found = {}
    for one in stored:
        if (one.triton, one.method) == kind:
            for job in asked:
                row = one.results.get((job.name, job.target))
                if job.is_workload and row is not None:
                    codes = [launch["code"] for launch in kept_evidence.launches(row)]
                    found[job] = Result(
                        job,
                        row["status"],
                        row["detail"],
                        row["values"],
                        row["evidence"],
                        Listings(folder, codes),
                    )
    return found


def _commit(name: str) -> str:
    return isolation.commit_hash(name)


def _named(missing: Sequence[Job]) -> str:
    first = f"{missing[0].name} on {missing[0].target}"
    return first + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")


def _has_triton() -> bool:
    try:
        return importlib.util.find_spec("triton") is not None
    except ImportError:
        return False


def _installed() -> str:
    """The version an import gets, or nothing."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""
