"""Keeps results to one definition of each workload: values of another are taken out, and only
their workloads are measured again."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from warpwatch import project
from warpwatch.asv.suite import naming
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.judge.evidence import compiled, measured
from warpwatch.judge.model.benchmark import Benchmark
from warpwatch.judge.results.asv_results import read_benchmarks
from warpwatch.judge.results.strict_json import RejectedError, line
from warpwatch.session import commit as of_commit
from warpwatch.workload.base import Workload

_COMPILED = "compiled"
_NO_RESULTS = ("machine.json", "benchmarks.json")


@dataclass(frozen=True)
class Changed:
    """A workload whose kept values are of another definition.

    Attributes:
        workload: Its name, or that of a peer's call of it.
        before: What it called when it was measured.
        now: What it calls now.
        kinds: The kinds of values that are concerned: ``compiled``, ``host`` or ``gpu``.
    """

    workload: str
    before: str
    now: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class Lacking:
    """What some commits lack.

    Attributes:
        workloads: Their names.
        benchmarks: asv's benchmarks that hold other workloads there.
        classes: Classes that hold no other workload at all.
    """

    workloads: frozenset[str]
    benchmarks: frozenset[str]
    classes: frozenset[str]


def changed() -> tuple[Changed, ...]:
    """Compare what asv keeps of each benchmark with the workloads of today.

    Returns:
        The workloads that have another definition now; none that are gone, or that say none.
    """
    today = {one.name: one for one in load_workloads().all_workloads()}
    found: dict[str, tuple[str, str, set[str]]] = {}
    for benchmark in _described().values():
        kind = _kind(benchmark)
        before = benchmark.attributes[naming.DEFINITIONS]
        for name, text in zip(_names(benchmark.params), before, strict=False):
            workload = today.get(_own(name))
            if workload is None or not workload.definition or not isinstance(text, str):
                continue
            given = naming.definitions([workload], on_gpu=kind == "gpu")
            now = given[naming.DEFINITIONS][0]
            if text and text != now:
                found.setdefault(name, (text, now, set()))[2].add(kind)
    return tuple(
        Changed(name, before, now, frozenset(kinds)) for name, (before, now, kinds) in found.items()
    )


def take_out(those: Sequence[Changed], aside: Path) -> set[str]:
    """Take the values of other definitions out of the results of all machines and commits.

    Args:
        those: Workloads whose definitions changed.
        aside: A folder that gets each file as it was before.

    Returns:
        The first eight digits of the commits that had such values.
    """
    if not those:
        return set()
    results, described = project.results(), _described()
    found: set[str] = set()
    for path in _result_files(results):
        kept = _loaded(path)
        if kept is not None and _without(kept, described, those):
            _put_aside(path, results, aside)
            kept.save(str(results))
            found.add(path.name[:8])
    folder = results / compiled.FOLDER
    names = _of_kind(those, _COMPILED)
    for path in compiled.files(folder) if names else ():
        try:
            compiled.read(path)
        except RejectedError:
            continue  # it is said where it is read for the report
        content = json.loads(lzma.decompress(path.read_bytes()))
        if _drop(content, ("results",), names):
            _put_aside(path, results, aside)
            path.write_bytes(lzma.compress(_compact(content), preset=1))
    names = _of_kind(those, "gpu")
    for path in folder.glob(measured.MEASURED_PATTERN) if names else ():
        content = json.loads(gzip.decompress(path.read_bytes()))
        if _drop(content, ("timed", "counted"), names):
            _put_aside(path, results, aside)
            path.write_bytes(gzip.compress(_compact(content)))
    for path in folder.glob("gpu-*.unfinished") if names else ():
        _put_aside(path, results, aside)
        path.unlink()
    return found


def missing(commits: Sequence[str], machine: str | None, has_gpu: bool) -> dict[Lacking, list[str]]:
    """Find what this machine measured some commits without: asv, which keeps all values of a
    benchmark or none, would leave it out.

    Args:
        commits: Full hashes, newest first.
        machine: asv's name of this machine; by default its own.
        has_gpu: Whether values of a GPU can be measured.

    Returns:
        Commits by what they lack. A benchmark that was not measured at a commit is not named: asv
        does not leave it out.
    """
    described = _described()
    expected = _expected(has_gpu)
    if not described or not any(expected.values()):
        return {}
    from asv.machine import Machine

    folder = project.results() / (machine or Machine.get_unique_machine_name())
    found: dict[Lacking, list[str]] = {}
    for commit in commits:
        lacking: set[str] = set()
        present: set[str] = set()
        for path in sorted(folder.glob(f"{commit[:8]}-*.json")):
            kept = _loaded(path)
            if kept is None or kept.commit_hash != commit or not _made_here(path):
                continue
            there: dict[str, set[str]] = {}
            for key in kept.get_all_result_keys():
                if key in described:
                    present.add(key)
                    names = there.setdefault(_kind(described[key]), set())
                    names |= {_own(one) for one in _names(kept.get_result_params(key))}
            for kind, names in there.items():
                lacking |= expected.get(kind, set()) - names
        if lacking:
            found.setdefault(_lacking(lacking, present), []).append(commit)
    return found


def _lacking(names: Collection[str], present: Collection[str]) -> Lacking:
    members: dict[str, set[str]] = {}
    for one in load_workloads().all_workloads():
        members.setdefault(naming.class_name(one.kernel), set()).add(one.name)
    of_host = _expected(False)["host"]
    members |= dict.fromkeys(("Host", "ColdStart"), of_host) if of_host else {}
    concerned = {name for name, own in members.items() if own & set(names)}
    return Lacking(
        frozenset(names),
        frozenset(one for one in present if one.split(".")[-2] in concerned),
        frozenset(name for name in concerned if members[name] <= set(names)),
    )


def patterns(lacking: Lacking, bench: Sequence[str], has_gpu: bool) -> list[str]:
    """asv's ``--bench`` patterns for what commits lack.

    Args:
        lacking: The workloads, and the benchmarks that can hold them.
        bench: Patterns of the user, one of which a benchmark must match as well.
        has_gpu: Whether benchmarks of a GPU have something to say.

    Returns:
        One for each of the user's.
    """
    either = "|".join(re.escape(one) for one in sorted(lacking.workloads))
    places = [re.escape(one) for one in sorted(lacking.benchmarks)]
    places += [rf"[^(]*\b{re.escape(one)}\.[^.(]*" for one in sorted(lacking.classes)]
    own = rf"(?=(?:{'|'.join(places)})\(.*'(?:{either})[' ])"
    own += "" if has_gpu or bench else r"(?!gpu\.)"
    return [f"^{own}(?=.*(?:{one}))" for one in bench or [""]]


def said(those: Sequence[Changed], commits: Collection[str], aside: Path) -> list[str]:
    """The lines for a reader about values that were taken out."""
    if not commits:
        return []
    lines = [
        f"{line(one.workload)} is another call now: {line(one.before)} became {line(one.now)}"
        for one in those
    ]
    place = aside.relative_to(project.folder())
    plural = "s" if len(commits) > 1 else ""
    return [
        *lines,
        f"values of the earlier calls at {len(commits)} commit{plural} were moved to {place}: "
        "only commits that `history` covers are measured again",
    ]


def _described() -> dict[str, Benchmark]:
    """The benchmarks whose descriptions say what was called; none before anything was measured."""
    path = project.results() / "benchmarks.json"
    if not path.is_file():
        return {}
    return {
        name: one
        for name, one in read_benchmarks(path).items()
        if isinstance(one.attributes.get(naming.DEFINITIONS), list) and one.params
    }


def _kind(benchmark: Benchmark) -> str:
    instrument = benchmark.attributes.get("instrument")
    if instrument == _COMPILED:
        return _COMPILED
    return "host" if instrument in naming.ON_HOST else "gpu"


def _names(params: Sequence[Sequence[str]]) -> list[str]:
    """The workloads of the first parameter, which asv keeps in quotes."""
    return [one[1:-1] for one in params[0]] if params else []


def _own(name: str) -> str:
    """The workload of a peer's call."""
    return name.partition(" @ ")[0]


def _of_kind(those: Sequence[Changed], kind: str) -> set[str]:
    return {one.workload for one in those if kind in one.kinds}


def _expected(has_gpu: bool) -> dict[str, set[str]]:
    """By kind the workloads that have a definition and are to be measured."""
    with_one: list[Workload] = [
        one for one in load_workloads().all_workloads() if one.definition and one.every_commit
    ]
    names = {one.name for one in with_one}
    fixed = {one.name for one, _ in load_workloads().fixed_set()}
    host = set(load_package().sets.host)
    found = {_COMPILED: names & fixed, "host": names if "*" in host else names & host}
    return found | ({"gpu": set(of_commit.wanted(sorted(names)))} if has_gpu else {})


def _made_here(path: Path) -> bool:
    """Whether asv would add to this file: it is of the torch and the Triton of today."""
    made = json.loads(path.read_text(encoding="utf-8"))["requirements"]
    return all(
        made.get(name, "") == metadata.version(name).partition("+")[0]
        for name in ("torch", "triton")
    )


def _result_files(results: Path) -> Iterator[Path]:
    for path in sorted(results.glob("*/*.json")):
        if path.name not in _NO_RESULTS and path.parent.name != compiled.FOLDER:
            yield path


def _loaded(path: Path) -> Any:
    """asv's file of results; None where it is none, which the report says."""
    from asv.results import Results
    from asv.util import UserError

    try:
        return Results.load(str(path))
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _without(kept: Any, described: Mapping[str, Benchmark], those: Sequence[Changed]) -> bool:
    """Take workloads out of one of asv's files of results; whether it had any."""
    any_left_out = False
    for key in list(kept.get_all_result_keys()):
        if key not in described:
            continue
        params = kept.get_result_params(key)
        out = _of_kind(those, _kind(described[key]))
        left = [one for one in params[0] if one[1:-1] not in out] if params else []
        if not params or len(left) == len(params[0]):
            continue
        any_left_out = True
        if not left:
            kept.remove_result(key)
            continue
        now = [left, *params[1:]]
        values = kept.get_result_value(key, now)
        stats = kept.get_result_stats(key, now)
        samples = kept.get_result_samples(key, now)
        kept._results[key], kept._stats[key], kept._samples[key] = values, stats, samples
        kept._benchmark_params[key] = now
    return any_left_out


def _drop(content: dict[str, Any], parts: Sequence[str], names: Collection[str]) -> bool:
    """Take rows of workloads out of a file of evidence; whether it had any."""
    before = {part: content[part] for part in parts}
    content |= {
        part: [one for one in rows if one["workload"] not in names] for part, rows in before.items()
    }
    return any(content[part] != rows for part, rows in before.items())


def _compact(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _put_aside(path: Path, results: Path, aside: Path) -> None:
    copy = aside / path.relative_to(results)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, copy)
