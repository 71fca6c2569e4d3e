"""How result folders become a history: which results are one series, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model.benchmark import Benchmark
from warpwatch.judge.model.commits import Commits, branches_with, by_date, files_of, read_commits
from warpwatch.judge.model.core import Commit, SeriesKey
from warpwatch.judge.model.directions import Directions, Meaning
from warpwatch.judge.model.work_done import Work, works_of
from warpwatch.judge.results.result_file import ABSENT, FAILED, Layout, ResultFile

from .asv_results import combinations
from .folders import Results
from .history import History, SeriesInfo, Table, with_borders_of_the_bound, with_short_calls
from .machines import Identity, identified

# Fields of a machine whose change splits no history: a kernel update or more memory is no border.
_ASKED_COMMITS = 5  # newest first, to find the branch that has them
_COLUMNS_AT_ONCE = 16  # of a table that is filled
_NO_BORDER = frozenset(("machine", "os", "ram", "version", "python", "hostname", "node", "release"))


def assemble(
    results: Results,
    repo: Path | None,
    directions: Directions,
    revision: str = "HEAD",
    identity: Identity = "name",
) -> History:
    """The history of all results along the commits of ``repo``, or along dates without one.

    Args:
        results: what was read.
        repo: the repository of the measured commits.
        directions: which way is better, where benchmarks do not say.
        revision: whose history is shown.
        identity: which machines are one, as ``machines.identified`` tells.

    Returns:
        The history; its notices say what is left out.
    """
    notices = list(results.notices)
    commits = _commits(results, repo, revision, notices)
    positions = {commit.hash: commit.position for commit in commits.ordered}
    unknown = sorted({file.commit for _, file in results.files} - positions.keys())
    if unknown:
        shown = " ".join(commit[:10] for commit in unknown[:5])
        notices.append(
            f"{len(unknown)} measured commits are not on the branch and are left out ({shown})"
        )
    kinds = _Kinds(results.benchmarks, directions)
    builders: dict[tuple[str, str], _Builder] = {}
    # Older measurements first: the newest one of a commit is the one that stays.
    files = identified(results.files, positions, identity)
    for machine, file in sorted(files, key=_age):
        position = positions.get(file.commit)
        if position is None:
            continue
        for owner in kinds.owners(file.rows, machine):
            home = (owner, file.environment if owner else compiler_of(file))
            if home not in builders:
                builders[home] = _Builder(*home, results.machines.get(owner, file.machine), kinds)
            builders[home].add(position, file)
    tables = tuple(builders[home].table(commits.ordered) for home in sorted(builders))
    folders = {info.meaning.sources for table in tables for info in table.series} - {""}
    # What a commit changed that git does not have is not known: it may be the cause.
    changed: dict[str, Mapping[str, frozenset[str]]] = {}
    if repo is not None and commits.absent != positions.keys():
        changed = {folder: files_of(repo, folder, revision) for folder in folders}
    touched = {folder: changed.get(folder, {}).keys() | commits.absent for folder in folders}
    return History(commits.ordered, tables, tuple(notices), commits.url, touched, changed)


class _Kinds:
    """What each benchmark is, looked up once."""

    def __init__(self, benchmarks: dict[str, Benchmark], directions: Directions):
        self._benchmarks = benchmarks
        self._directions = directions
        self._known: dict[str, tuple[Benchmark, Meaning]] = {}
        self._works: dict[str, dict[str, Work]] = {}
        self._compiled: dict[int, tuple[bool, bool]] = {}

    def of(self, name: str) -> tuple[Benchmark, Meaning]:
        known = self._known.get(name)
        if known is None:
            benchmark = self._benchmarks.get(name) or Benchmark(name)
            known = self._known[name] = (benchmark, self._directions.of(benchmark))
        return known

    def works(self, name: str) -> dict[str, Work]:
        found = self._works.get(name)
        if found is None:
            found = self._works[name] = works_of(self.of(name)[0])
        return found

    def weight_of(self, workload: str) -> float:
        return self._directions.weight_of(workload)

    def is_compiled(self, name: str) -> bool:
        return self.of(name)[1].instrument == "compiled"

    def owners(self, layout: Layout, machine: str) -> Iterator[str]:
        """Whose tables a file's rows belong to: the machine's, nobody's where compiled, or both."""
        both = self._compiled.get(id(layout))
        if both is None:
            found = {self.is_compiled(row.benchmark) for row in layout}
            both = self._compiled[id(layout)] = (True in found, False in found)
        if both[0]:
            yield ""
        if both[1]:
            yield machine


def compiler_of(file: ResultFile) -> str:
    """What a compiled value depends on: the version of Triton, of whichever machine."""
    version = file.requirements.get("triton") or file.machine.get("triton")
    return f"triton {version}" if version else file.environment


def _age(item: tuple[str, ResultFile]) -> tuple[int, int, str]:
    machine, file = item
    return file.started_ms, file.date_ms, machine


def _commits(results: Results, repo: Path | None, revision: str, notices: list[str]) -> Commits:
    dates = {file.commit: file.date_ms for _, file in results.files}
    if repo is None:
        return by_date(dates)
    commits = read_commits(repo, revision)
    if dates and not any(commit.hash in dates for commit in commits.ordered):
        newest = sorted(dates, key=lambda commit: -dates[commit])[:_ASKED_COMMITS]
        elsewhere = branches_with(repo, newest)
        if elsewhere:
            notices.append(
                f"no measured commit is on {revision}, but {', '.join(elsewhere[:3])} has them: "
                f"give `--branch {elsewhere[0]}`; they stand in the order of their dates"
            )
            return by_date(dates)
        notices.append(
            f"the repository {repo.resolve().name} knows none of the measured commits (another "
            "clone may): they stand in the order of their dates, without author and subject"
        )
        return by_date(dates)
    return _with_earlier(commits, dates, notices)


def _with_earlier(commits: Commits, dates: dict[str, int], notices: list[str]) -> Commits:
    """The branch behind the measured commits that are older than all of it.

    A shallow clone begins where it was cut, and a history that was begun anew has lost what came
    before; results outlive both.
    """
    if not commits.ordered:
        return commits
    known = commits.by_hash()
    begins_ms = 1000 * min(commit.time_s for commit in commits.ordered)
    before = by_date({k: v for k, v in dates.items() if k not in known and v < begins_ms})
    if not before.ordered:
        return commits
    notices.append(
        f"{len(before.ordered)} measured commits are older than the first commit of this clone and "
        "stand before it in the order of their dates; where it is a shallow one, "
        "`git fetch --unshallow` brings their subjects and authors"
    )
    behind = (replace(c, position=c.position + len(before.ordered)) for c in commits.ordered)
    return Commits((*before.ordered, *behind), commits.url, before.absent)


def _platform(machine: dict[str, str], result: ResultFile) -> str:
    """What a series depends on besides the code: a change of this text is a border."""
    fields = {k: v for k, v in result.machine.items() if k not in _NO_BORDER}
    fields |= {f"{k} package": v for k, v in result.requirements.items()}
    return ", ".join(f"{k} {v}" for k, v in sorted(fields.items()) if v)


class _Builder:
    """Collects one table."""

    def __init__(
        self, machine: str, environment: str, machine_fields: dict[str, str], kinds: _Kinds
    ):
        self._home = (machine, environment)
        self._fields = machine_fields
        self._kinds = kinds
        self._rows: dict[tuple[str, tuple[str, ...]], int] = {}
        self._series: list[SeriesInfo] = []
        self._versions: dict[str, int] = {}
        self._places: dict[int, _Places] = {}
        self._files: list[tuple[int, ResultFile, _Places]] = []

    def add(self, position: int, file: ResultFile) -> None:
        places = self._places.get(id(file.rows))
        if places is None:
            places = self._places[id(file.rows)] = self._place(file.rows)
        self._files.append((position, file, places))

    def table(self, commits: tuple[Commit, ...]) -> Table:
        columns = sorted({position for position, _, _ in self._files})
        column_of = {position: column for column, position in enumerate(columns)}
        shape = (len(self._series), len(columns))
        values = np.full(shape, ABSENT)
        low = np.full(shape, np.nan, dtype=np.float32)
        high = np.full(shape, np.nan, dtype=np.float32)
        methods = np.full(shape, -1, dtype=np.int32)
        platforms = np.zeros(len(columns), dtype=np.int32)
        started = np.zeros(len(columns), dtype=np.int64)
        names: dict[str, int] = {}
        files: dict[int, list[Path]] = {}
        for together, at in self._runs(column_of):
            rows, parts = at.rows, at.parts
            held = _straight(np.array([column for column, _ in together]))
            if not (isinstance(rows, slice) and isinstance(held, slice)):
                rows = np.arange(len(self._series))[rows][:, None]
                held = np.arange(len(columns))[held]
            found = np.array([file.values for _, file in together]).T[parts]
            lows = np.array([file.low for _, file in together]).T[parts]
            highs = np.array([file.high for _, file in together]).T[parts]
            said = np.broadcast_to(at.versions[:, None], found.shape)
            # What a later run left out, or says does not apply, replaces no value of the commit.
            old = values[rows, held]
            stays = (old != ABSENT) & np.isnan(found)
            if stays.any():
                found, lows = np.where(stays, old, found), np.where(stays, low[rows, held], lows)
                highs = np.where(stays, high[rows, held], highs)
                said = np.where(stays, methods[rows, held], said)
            values[rows, held], low[rows, held], high[rows, held] = found, lows, highs
            methods[rows, held] = said
        for position, file, _ in self._files:
            files.setdefault(position, []).append(file.path)
            column = column_of[position]
            # A compiled value depends on the compiler alone, and that is the table's name.
            platform = _platform(self._fields, file) if self._home[0] else ""
            platforms[column] = names.setdefault(platform, len(names))
            started[column] = max(started[column], file.started_ms)
        # A combination that was skipped wherever it was tried is no series.
        real = np.flatnonzero((np.isfinite(values) | (values == FAILED)).any(axis=1))
        table = Table(
            *self._home,
            tuple(self._series),
            tuple(commits[position] for position in columns),
            values,
            low,
            high,
            methods,
            platforms,
            tuple(names),
            started,
            self._fields,
            {commits[position].hash: tuple(paths) for position, paths in files.items()},
        )
        taken = table if len(real) == len(self._series) else table.take(real.tolist())
        return (with_short_calls if self._home[0] else with_borders_of_the_bound)(taken)

    def _runs(self, column_of: dict[int, int]) -> Iterator[tuple[list[Placed], _Places]]:
        """The files in their order, those of one layout and of different commits together: a table
        is filled far faster by several columns than by one."""
        run: list[Placed] = []
        last: _Places | None = None
        for position, file, places in self._files:
            column = column_of[position]
            full = len(run) == _COLUMNS_AT_ONCE or any(column == held for held, _ in run)
            if last is not None and (full or places is not last):
                yield run, last
                run = []
            run.append((column, file))
            last = places
        if last is not None:
            yield run, last

    def _place(self, layout: Layout) -> _Places:
        rows: list[int] = []
        parts: list[int] = []
        versions: list[int] = []
        for row in layout:
            if self._kinds.is_compiled(row.benchmark) == bool(self._home[0]):
                continue
            version = self._versions.setdefault(row.version, len(self._versions))
            rows += [self._row(row.benchmark, values) for values in combinations(row.params)]
            parts += range(row.offset, row.offset + row.size)
            versions += [version] * row.size
        where, which = np.array(rows, np.intp), np.array(parts, np.intp)
        return _Places(_straight(where), _straight(which), np.array(versions, np.int32))

    def _row(self, name: str, values: tuple[str, ...]) -> int:
        row = self._rows.get((name, values))
        if row is None:
            row = self._rows[name, values] = len(self._series)
            benchmark, meaning = self._kinds.of(name)
            workload, target = _workload(benchmark, values)
            key = SeriesKey(*self._home, name, values)
            work = self._kinds.works(name).get(workload)
            weight = self._kinds.weight_of(workload)
            self._series.append(SeriesInfo(key, meaning, workload, target, work, weight))
        return row


Placed = tuple[int, ResultFile]  # and its column


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the values of a layout go: rows of the table, parts of the file's arrays."""

    rows: NDArray[np.intp] | slice
    parts: NDArray[np.intp] | slice
    versions: NDArray[np.int32]


def _straight(indexes: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """The same as a slice, which copies far faster, where they follow each other."""
    if len(indexes) and (np.diff(indexes) == 1).all():
        return slice(int(indexes[0]), int(indexes[-1]) + 1)
    return indexes


def _workload(benchmark: Benchmark, values: tuple[str, ...]) -> tuple[str, str]:
    """Workload and target of a series, where its benchmark names them so."""
    named = dict(zip(benchmark.param_names, values, strict=False))
    if "workload" in named and "target" in named:
        return named["workload"], named["target"]
    for value in values:
        workload, separator, target = value.partition(" @ ")
        if separator:
            return workload, target
    if "workload" in named:
        return named["workload"], ""
    return benchmark.name, ""
