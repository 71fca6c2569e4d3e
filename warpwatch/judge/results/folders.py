"""Reads results folders, each file once: what is unchanged since the last build is remembered."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpwatch.judge.model.benchmark import Benchmark
from warpwatch.judge.results.result_file import ResultFile, shared

from .asv_results import read_benchmarks, read_machine, read_result
from .processes import Workers
from .store import Read, Store
from .strict_json import RejectedError, shown

_OTHER = ("csv", "xml", "jsonl", "ndjson")  # formats that benchmarks are written in
_BATCH_FILES = 16
_WORTH_BYTES = 4_000_000


@dataclass(frozen=True)
class Results:
    """Everything the folders hold. ``files`` pairs a result with its machine's folder name."""

    benchmarks: dict[str, Benchmark]
    machines: dict[str, dict[str, str]]
    files: tuple[tuple[str, ResultFile], ...]
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Listing:
    """What is in the folders, by name, size and time alone: equal listings mean nothing is new."""

    results: tuple[tuple[str, str, int, int], ...]
    described: tuple[tuple[str, int, int], ...]


def list_folders(folders: Sequence[Path]) -> Listing:
    """Looks at the folders without opening a file; ``ValueError`` for one that is not there."""
    results, described = [], []
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder}: is not a folder of asv results")
        described.append(_stamp(folder / "benchmarks.json"))
        described += [_stamp(path) for path in _passed_over(folder)]
        for machine in sorted(p for p in folder.iterdir() if p.is_dir()):
            described.append(_stamp(machine / "machine.json"))
            for path in sorted(machine.glob("*.json")):
                if path.name != "machine.json":
                    results.append((machine.name, *_stamp(path)))
    return Listing(tuple(results), tuple(described))


def read_folders(
    folders: Sequence[Path], listing: Listing, workers: Workers, store: Store | None = None
) -> Results:
    """Reads the folders; what cannot be read becomes a notice that names file and reason."""
    benchmarks: dict[str, Benchmark] = {}
    machines: dict[str, dict[str, str]] = {}
    notices: list[str] = []
    for folder in folders:
        try:
            # pytest-benchmark keeps none.
            if (folder / "benchmarks.json").exists():
                benchmarks.update(read_benchmarks(folder / "benchmarks.json"))
        except RejectedError as error:
            notices.append(str(error))
        for machine in sorted(folder.glob("*/machine.json")):
            try:
                machines[machine.parent.name] = read_machine(machine)
            except RejectedError as error:
                notices.append(str(error))
        passed = [path.name for path in _passed_over(folder)]
        if passed:
            notices.append(
                f"{folder}: {len(passed)} files are no results of asv or pytest-benchmark in a "
                f"folder of their machine and are passed over ({', '.join(passed[:3])})"
            )
    known = store.load_files() if store else {}
    reads: dict[str, Read] = {}
    new = []
    for _, path, size, mtime_ns in listing.results:
        before = known.get(path)
        if before is not None and (before.size, before.mtime_ns) == (size, mtime_ns):
            reads[path] = before
        else:
            new.append((path, size, mtime_ns))
    batches = [new[i : i + _BATCH_FILES] for i in range(0, len(new), _BATCH_FILES)]
    worth = sum(size for _, size, _ in new) > _WORTH_BYTES
    for batch, found in zip(batches, workers.map(_read_batch, batches, worth=worth), strict=True):
        reads.update(zip((path for path, _, _ in batch), map(_shared, found), strict=True))
    if store and (new or len(known) != len(reads)):
        store.save_files(reads)
    files = []
    for machine_name, path, _, _ in listing.results:
        read = reads[path]
        if read.result is None:
            notices.append(read.rejection)
        else:
            notices.extend(f"{path}: left out {problem}" for problem in read.result.problems)
            files.append((machine_name, read.result))
    notices = [shown(notice, folders) for notice in notices]
    return Results(benchmarks, machines, tuple(files), tuple(notices))


def read_folder(folder: Path) -> Results:
    """One folder, read here and now."""
    with Workers(1) as workers:
        return read_folders([folder], list_folders([folder]), workers)


def joined(parts: Sequence[Results]) -> Results:
    """Several folders' results as one; what a later part says of a benchmark or machine counts."""
    benchmarks: dict[str, Benchmark] = {}
    machines: dict[str, dict[str, str]] = {}
    for part in parts:
        benchmarks |= part.benchmarks
        machines |= part.machines
    return Results(
        benchmarks,
        machines,
        tuple(file for part in parts for file in part.files),
        tuple(notice for part in parts for notice in part.notices),
    )


def _read_batch(batch: list[tuple[str, int, int]]) -> list[Read]:
    # JSON makes no cycles; looking for them takes as long as parsing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return [_read_one(*entry) for entry in batch]
    finally:
        if collecting:
            gc.enable()


def _read_one(path: str, size: int, mtime_ns: int) -> Read:
    try:
        return Read(size, mtime_ns, read_result(Path(path)))
    except RejectedError as error:
        return Read(size, mtime_ns, None, str(error))


def _shared(read: Read) -> Read:
    """With the one object for its layout: each process that reads makes its own."""
    if read.result is None:
        return read
    return replace(read, result=replace(read.result, rows=shared(read.result.rows)))


def _passed_over(folder: Path) -> list[Path]:
    """Measurements, by their suffix, that lie where no result is looked for."""
    here = [path for path in folder.glob("*.json") if path.name != "benchmarks.json"]
    found = (*here, *(path for kind in _OTHER for path in folder.glob(f"*/*.{kind}")))
    return sorted(path for path in found if path.is_file())


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        state = path.lstat() if path.is_symlink() and not path.exists() else path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), state.st_size, state.st_mtime_ns
