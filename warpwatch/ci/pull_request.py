"""The judge of a pull request: artifacts of untrusted jobs in, one verdict out.

Runs on the default branch's code and reads nothing but data. What is better or worse comes from
the trusted results (``benchmarks.json`` of the data branch), which commits count from the event.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from warpwatch.judge.evidence.coverage import lost_at, never_at
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.pairs.commits import WORSE, Comparison, compare
from warpwatch.judge.predicted.verdict import FAILURES
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import Results, joined, read_folder
from warpwatch.judge.results.strict_json import RejectedError

from .artifact import Shard, name_of, parse_name, read_shard, unpack, write_results
from .github import Artifact
from .record import held_against
from .shards import merge

# GitHub lets `neutral` satisfy a required check. So it stands for one thing alone: measured, and
# the difference is within the noise. What was refused fails; what was not measured needs a person.
Conclusion = Literal["success", "failure", "neutral", "action_required"]


_AGAIN = "0" * 40  # stands for the base as the job reports it


@dataclass(frozen=True)
class Judgement:
    """The verdict on a pull request, and all that its author has to know."""

    conclusion: Conclusion
    base: str
    head: str
    comparisons: tuple[Comparison, ...] = ()
    missing_shards: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    refusal: str = "an artifact is not what a measuring job writes"
    """What the refused have in common, in a line."""
    notes: tuple[str, ...] = field(default=())
    lost: tuple[str, ...] = ()
    """Why head lacks compiled values of base, in the words of a compiler: of unknown origin."""
    problem: str = ""
    """Why nothing could be judged at all, which says nothing about the pull request."""


@dataclass(frozen=True)
class Expected:
    """What a lane must deliver; from the default branch, never from an artifact."""

    lane: str
    shards: int
    machine: str


def judge(
    artifacts: Sequence[Artifact],
    download: Callable[[Artifact], bytes],
    expected: Sequence[Expected],
    trusted: Path,
    base: str,
    head: str,
) -> Judgement:
    """Decode what came, hold it against what was to come, and judge head against base."""
    refused: list[str] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="warpwatch-judge-") as folder:
        lanes = []
        for lane in expected:
            shards, problems = _lane(artifacts, download, lane, base, head)
            refused += problems
            arrived = {shard.shard: shard for shard in shards}
            taken, problems = _write(arrived, lane, Path(folder) / "shards" / lane.lane)
            refused += problems
            missing += [
                name_of(lane.lane, number, lane.shards)
                for number in range(1, lane.shards + 1)
                if number not in taken
            ]
            if taken:
                out = Path(folder) / "merged" / lane.lane
                try:
                    merge(taken, lane.shards, out)
                    lanes.append(out)
                except RejectedError as error:
                    refused.append(_relative(error, folder))
        if refused:
            # One bad artifact spoils the run: the rest came from the same hands.
            return Judgement("failure", base, head, (), tuple(missing), tuple(refused))
        machines = {lane.machine for lane in expected}
        return _verdict(lanes, trusted, machines, base, head, tuple(missing))


def could_not_judge(base: str, head: str, error: Exception) -> Judgement:
    """What is said where judging itself fails: not green, and no word against the author."""
    problem = f"{type(error).__name__}: {error}"
    return Judgement("action_required", base, head, problem=problem)


def nothing_to_measure(base: str, head: str, folder: str) -> Judgement:
    """What is said where the measured package is the same at both commits, by git's own hash."""
    note = f"`{folder}` is the same at both commits, so there was nothing to measure"
    return Judgement("success", base, head, notes=(note,))


def _lane(
    artifacts: Sequence[Artifact],
    download: Callable[[Artifact], bytes],
    expected: Expected,
    base: str,
    head: str,
) -> tuple[list[Shard], list[str]]:
    shards: list[Shard] = []
    problems: list[str] = []
    for artifact in sorted(artifacts, key=lambda a: (a.name, a.identity)):
        parsed = parse_name(artifact.name)
        if parsed is None or parsed[0] != expected.lane:
            continue
        try:
            if parsed[2] != expected.shards or parsed[1] > expected.shards:
                raise RejectedError(
                    Path(artifact.name), [f"expected one of {expected.shards} shards"]
                )
            files = unpack(artifact.name, download(artifact))
            shards.append(read_shard(artifact.name, files, expected.lane, base, head))
        except RejectedError as error:
            problems.append(str(error))
    return shards, problems


def _write(
    arrived: dict[int, Shard], lane: Expected, folder: Path
) -> tuple[dict[int, Path], list[str]]:
    taken: dict[int, Path] = {}
    problems: list[str] = []
    for number, shard in arrived.items():
        target = folder / str(number)
        try:
            write_results(shard, target, lane.machine)
        except RejectedError as error:
            problems.append(str(error))
            shutil.rmtree(target, ignore_errors=True)
            continue
        if target.is_dir():  # a shard that wrote no results at all has delivered nothing
            taken[number] = target
    return taken, problems


def _verdict(
    lanes: Sequence[Path],
    trusted: Path,
    machines: set[str],
    base: str,
    head: str,
    missing: tuple[str, ...],
) -> Judgement:
    if not (trusted / "benchmarks.json").is_file():
        note = "the default branch has no results yet: nothing says which way is better"
        return Judgement("action_required", base, head, (), missing, notes=(note,))
    record = read_folder(trusted)
    # Of other lanes' machines no head can be here. What these measured earlier says how far they
    # wander when nothing changes.
    past = replace(record, files=tuple((m, file) for m, file in record.files if m in machines))
    known = any(file.commit == base for _, file in past.files)
    folders = [_stripped(read_folder(lane), set(record.benchmarks)) for lane in lanes]
    notes = []
    held = held_against(past, folders, base, complete=not missing)
    if held.forged:
        return Judgement("failure", base, head, (), missing, held.forged)
    if held.strange_methods:
        return _unknown_methods(base, head, missing, held.strange_methods)
    if held.unknown_points:
        notes.append(
            f"{held.unknown_points} values of base are not on record: they were measured by the "
            "pull request's own job"
        )
    if not known:
        notes.append("the base is not on record: it was measured by the pull request's own job")
    history = assemble(joined([past, *folders]), None, Directions())
    comparisons = compare(history, base, head, Evidence(lanes))
    never, why = unseen(lanes, base, head, comparisons)
    conclusion, note = conclude(comparisons, complete=not missing, never=never)
    notes += [note] if note else []
    odd = _slower_base(past, folders, base)
    if odd and conclusion in ("success", "neutral"):
        conclusion = "action_required"
        notes.append(
            f"{odd} results of base are worse than on record: the machine has changed, or they "
            "were tampered with to make head look better; measure again on a machine at rest"
        )
    why = (*lost(lanes, head, comparisons), *why)
    return Judgement(
        conclusion, base, head, tuple(comparisons), missing, notes=tuple(notes), lost=why
    )


def _unknown_methods(
    base: str, head: str, missing: tuple[str, ...], names: Sequence[str]
) -> Judgement:
    """Nothing that the default branch measured can be held against such values: none is judged."""
    refused = [f"{name}: of a method that the default branch does not know" for name in names[:20]]
    note = (
        "a pull request that changes a method is merged by hand, and the default branch measures "
        "by it afterwards; where the default branch has just changed it, run the job again once "
        "its own results are recorded"
    )
    why = "measured by a method that the default branch does not know"
    return Judgement("failure", base, head, (), missing, tuple(refused), why, (note,))


def conclude(
    comparisons: Sequence[Comparison], *, complete: bool = True, never: int = 0
) -> tuple[Conclusion, str]:
    """The check's conclusion, with a note where it needs one; nothing is green unmeasured, such as
    the ``never`` workloads that have a value at neither commit."""
    judged = [c for c in comparisons if c.series.meaning.role == "verdict"]
    verdicts = {"unchanged" if c.accepted else c.verdict for c in judged}
    if verdicts & {"regressed", "missing"}:
        return "failure", ""
    # asv's word for "not applicable" is NaN, and a kernel that breaks can say it of itself; an
    # artifact without the head, or of another environment, has nothing to hold the base against.
    gone = sum(c.before is not None and c.after is None and not c.accepted for c in judged)
    if gone and not complete:
        return "action_required", (
            f"{gone} results of base have no counterpart at head, as not all of it was measured: "
            "the log of the job that delivered nothing says why; mend that, and run it again"
        )
    if gone:
        return "action_required", (
            f"{gone} results of base have no counterpart at head: a kernel is gone, refuses its "
            "inputs or was measured in another environment; if that is meant, say so by hand"
        )
    if not verdicts & {"unchanged", "improved"}:
        return (
            "action_required",
            "nothing that was measured at both commits is surely different or surely equal",
        )
    if "mixed" in verdicts:
        return (
            "action_required",
            "kernels got better and worse at once, and which weighs more is not known: measure "
            "them on a card, or accept it by hand",
        )
    if not complete:
        return "action_required", "not all of it was measured: run the missing shards again"
    if never:
        which = "1 workload has" if never == 1 else f"{never} workloads have"
        return "action_required", (
            f"{which} no value at either commit: mend the call, or take it out of the configuration"
        )
    return ("neutral" if "inconclusive" in verdicts else "success"), ""


def lost(folders: Sequence[Path], head: str, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Why head lacks compiled values that base has, in the words of whatever stopped it.

    Args:
        folders: Folders of results, next to which evidence lies.
        head: The full hash.
        comparisons: What was compared.

    Returns:
        A line a reason, of unknown origin.

    Example:
        >>> lost([Path("results")], "3d4c", comparisons)
        ('1 compile failed: add_kernel: CompilationError: ... (such as add on sm_90)',)
    """
    places = {
        (one.series.workload, one.series.target)
        for one in comparisons
        if (one.before is not None and one.after is None)
        or (one.verdict in WORSE and one.series.meaning.metric == FAILURES)
    }
    return tuple(lost_at(folders, head, places)) if places else ()


def unseen(
    folders: Sequence[Path], base: str, head: str, comparisons: Sequence[Comparison]
) -> tuple[int, tuple[str, ...]]:
    """How many workloads were requested and have a value at neither commit, and why.

    Both commits are measured by head's configuration, so a call that is mistyped there leaves
    nothing to compare.

    Args:
        folders: Folders of results, next to which evidence lies.
        base: The full hash.
        head: The full hash.
        comparisons: What was compared.

    Returns:
        Their number, and a line a reason, of unknown origin.

    Example:
        >>> unseen([Path("results")], "1f2e", "3d4c", comparisons)
        (1, ('6 not applicable: ops has no ad; did you mean add? (such as add on sm_80)',))
    """
    valued = {
        one.series.workload
        for one in comparisons
        if one.before is not None or one.after is not None
    }
    names, reasons = never_at(folders, (base, head), head, valued)
    return len(names), tuple(reasons)


def _stripped(folder: Results, known: set[str]) -> Results:
    """Without what an artifact may not decide: directions, and benchmarks nobody knows yet."""
    files = tuple(
        (machine, replace(result, rows=tuple(r for r in result.rows if r.benchmark in known)))
        for machine, result in folder.files
    )
    return replace(folder, benchmarks={}, files=files)


def _slower_base(past: Results, claims: Sequence[Results], base: str) -> int:
    """How many noisy results of the base the job reports worse than they are on record.

    Head is held against the base of the same run, which a lie about the base would flatter.
    """
    again = tuple(
        (machine, replace(file, commit=_AGAIN))
        for folder in claims
        for machine, file in folder.files
        if file.commit == base
    )
    history = assemble(joined([past, Results({}, {}, again, ())]), None, Directions())
    return sum(
        c.verdict == "regressed"
        and c.series.meaning.role == "verdict"
        and not c.series.meaning.exact
        for c in compare(history, base, _AGAIN)
    )


def _relative(error: RejectedError, folder: str) -> str:
    return str(error).replace(folder, "").lstrip("/")
