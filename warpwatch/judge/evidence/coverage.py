"""How much of what was to be compiled was measured, and why the rest was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from warpwatch.judge.results.strict_json import RejectedError, line

from . import compiled

# Of a workload and a target.
IsWanted = Callable[[str, str], bool]
# Of a file, its commit and a workload.
IsKept = Callable[[Path, str, str], bool]


@dataclass(frozen=True)
class Reason:
    """Why pairs of a workload and a target have no values.

    Attributes:
        status: ``not applicable``, ``import failed``, ``compile failed``, ``call failed`` or
            ``not measured``.
        detail: The error, in one line.
        count: How many pairs of how many commits it concerns.
        example: One of them.
    """

    status: str
    detail: str
    count: int
    example: str

    @property
    def sentence(self) -> str:
        """The reason in one line, with its number and an example."""
        return f"{self.count} {self.status}: {self.detail} (such as {self.example})"


@dataclass(frozen=True)
class Coverage:
    """Pairs of a workload and a target, over all commits that were asked about.

    Attributes:
        measured: Pairs that were compiled and read.
        reasons: Why the others have none, the most frequent first.
        unread: Files of evidence that could not be read, each with what is wrong.
        never: Workloads that have values at none of these commits.
        kept: How many of those without values an earlier run has left so.
    """

    measured: int
    reasons: tuple[Reason, ...]
    unread: tuple[str, ...]
    never: tuple[str, ...]
    kept: int = 0

    @property
    def missing(self) -> int:
        """Pairs without values."""
        return sum(reason.count for reason in self.reasons)

    @property
    def pairs(self) -> int:
        """All pairs that were asked for."""
        return self.measured + self.missing

    def lines(self, most: int = 8) -> list[str]:
        """What a person is told at the end of a run.

        Args:
            most: How many reasons are spelt out.

        Returns:
            A line of counts, then one a reason.
        """
        said = [f"compiled: {self.measured} of {self.pairs} pairs of workload and target measured"]
        for one in self.reasons[:most]:
            said.append(f"  {one.sentence}")
        if len(self.reasons) > most:
            said.append(f"  and {len(self.reasons) - most} more reasons")
        if self.kept:
            all_of_them = "these" if self.kept == self.missing else f"{self.kept} of these"
            said.append(f"  {all_of_them} kept from an earlier run: --again measures once more")
        if self.never:
            more = f" and {len(self.never) - 5} more" if len(self.never) > 5 else ""
            said.append(f"no value at any of these commits: {', '.join(self.never[:5])}{more}")
        return said + [f"not read: {one}" for one in self.unread[:most]]


def missing_at(folders: Iterable[Path], commit: str) -> list[str]:
    """What of one commit has no compiled values.

    Args:
        folders: Folders of results, next to which evidence lies.
        commit: The full hash.

    Returns:
        A line of counts and one a reason; nothing where every pair was measured.
    """
    found = [coverage(folder / compiled.FOLDER, {commit}) for folder in folders]
    # That one commit lacks a workload says nothing of the others.
    found = [replace(one, never=()) for one in found if one.missing or one.unread]
    return [line for one in found for line in one.lines()]


def lost_at(folders: Iterable[Path], commit: str, places: Collection[tuple[str, str]]) -> list[str]:
    """Why a commit lacks the compiled values of some workloads on some targets: the error of the
    compiler, of the import or of the call, in its own words.

    Args:
        folders: Folders of results, next to which evidence lies.
        commit: The full hash.
        places: Each a workload and a target.

    Returns:
        A line a reason.

    Example:
        >>> lost_at([Path("results")], "1f2e", [("add", "sm_90")])
        ['1 compile failed: add_kernel: CompilationError: ... (such as add on sm_90)']
    """

    def wanted(workload: str, target: str) -> bool:
        return (workload, target) in places

    found = [coverage(folder / compiled.FOLDER, {commit}, wanted=wanted) for folder in folders]
    return [reason.sentence for one in found for reason in one.reasons]


def never_at(
    folders: Iterable[Path], commits: Collection[str], newest: str, valued: Collection[str]
) -> tuple[set[str], list[str]]:
    """Workloads that no commit has a value of, as those whose call is mistyped.

    Args:
        folders: Folders of results, next to which evidence lies.
        commits: Full hashes.
        newest: That of which the reasons are.
        valued: Workloads that have a value elsewhere.

    Returns:
        Their names, and a line a reason.

    Example:
        >>> never_at([Path("results")], ["1f2e", "3d4c"], "3d4c", ())
        ({'add'}, ['6 not applicable: ops has no ad; did you mean add? (such as add on sm_80)'])
    """
    names: set[str] = set()
    said = []

    def wanted(workload: str, target: str) -> bool:
        return line(workload) in names

    for folder in folders:
        at = folder / compiled.FOLDER
        if never := set(coverage(at, commits).never) - set(valued):
            names |= never
            said += [one.sentence for one in coverage(at, {newest}, wanted=wanted).reasons]
    return names, said


def coverage(
    folder: Path,
    commits: Collection[str],
    is_kept: IsKept | None = None,
    wanted: IsWanted = lambda workload, target: True,
) -> Coverage:
    """Read what the compiled instrument left of some commits.

    Args:
        folder: The folder of evidence next to results.
        commits: Full hashes; files of other commits are passed over.
        is_kept: Says of a commit's file and a workload whether this run has left it as it was.
        wanted: Which pairs of a workload and a target count; others are passed over.

    Returns:
        How much of it has values, and why the rest has none.
    """
    measured = kept = 0
    missing: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    seen: dict[str, bool] = {}
    unread = []
    short = {commit[:8] for commit in commits}
    for path in compiled.files(folder):
        if path.name[:8] not in short:
            continue
        try:
            found = compiled.read(path)
        except RejectedError as error:
            unread.append(str(error))
            continue
        if found.commit not in commits:
            continue
        for (workload, target), row in found.results.items():
            if not wanted(workload, target):
                continue
            seen[workload] = seen.get(workload, False) or row["status"] == "ok"
            if row["status"] == "ok":
                measured += 1
                continue
            key = (row["status"], line(row["detail"]))
            missing[key] += 1
            kept += is_kept is not None and is_kept(path, found.commit, workload)
            examples.setdefault(key, line(f"{workload} on {target}"))
    reasons = tuple(
        Reason(status, detail, count, examples[status, detail])
        for (status, detail), count in missing.most_common()
    )
    never = tuple(sorted(line(name) for name, once in seen.items() if not once))
    return Coverage(measured, reasons, tuple(unread), never, kept)
