"""What was read before: parsed result files, so that a build reads only what is new.

The store is a folder of plain arrays and one JSON index, no pickles: reading one that somebody
else wrote can give wrong numbers at worst. Anything odd about it makes the build read afresh.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warpwatch.judge.model import thresholds
from warpwatch.judge.results.result_file import Floats, Layout, Narrow, ResultFile, Row, shared

VERSION = 2
_MOST_CHUNKS = 32  # more are written as one


@dataclass(frozen=True)
class Read:
    """A result file as it was when it was read; ``result`` is ``None`` where it was rejected."""

    size: int
    mtime_ns: int
    result: ResultFile | None
    rejection: str = ""


def code_version() -> str:
    """Changes with what judges and draws, and with Python: an older store is then not used."""
    digest = hashlib.sha256(f"{VERSION} {sys.version}".encode())
    package = Path(__file__).parents[2]
    files = [one for part in ("judge", "report") for one in (package / part).rglob("*")]
    for path in sorted(files):
        if path.suffix in (".py", ".html", ".css", ".js"):
            digest.update(path.read_bytes())
    digest.update(thresholds.default_file().read_bytes())
    return digest.hexdigest()


class Store:
    """A folder that remembers; every part of it may be missing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.code = code_version()
        self._loaded: dict[str, tuple[Any, Read]] = {}

    def load_json(self, name: str) -> Any:
        """What ``save_json`` wrote with the same code, else ``None``."""
        try:
            document = json.loads((self.folder / name).read_bytes())
            return document["content"] if document["code"] == self.code else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save_json(self, name: str, content: Any) -> None:
        self._prepare()
        text = json.dumps({"code": self.code, "content": content}, separators=(",", ":"))
        self._replace(name, text.encode())

    def load_files(self) -> dict[str, Read]:
        """The parsed files by path; empty where the store is absent, older or broken."""
        self._loaded = {}
        index = self.load_json("files.json")
        if index is None:
            return {}
        try:
            chunks = {stamp: self._arrays(stamp) for stamp in index["chunks"]}
            layouts = [_layout(rows) for rows in index["layouts"]]
            for path, entry in index["files"].items():
                self._loaded[path] = entry, _entry(path, entry, layouts, chunks)
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            self._loaded = {}
        return {path: read for path, (_, read) in self._loaded.items()}

    def save_files(self, files: dict[str, Read]) -> None:
        """Remembers these files. What was loaded and is among them stays where it lies: only new
        files are written, to a chunk of their own, until there are many chunks.

        Arrays are written under a new name first: a torn save leaves an index that fits none.
        """
        self._prepare()
        kept = {
            path: entry
            for path, (entry, read) in self._loaded.items()
            if files.get(path) is read and "chunk" in entry
        }
        if len({entry["chunk"] for entry in kept.values()}) >= _MOST_CHUNKS:
            kept = {}
        # By identity: files of one history share their layout, and to hash one takes long.
        layouts: dict[int, tuple[int, Layout]] = {}
        entries: dict[str, Any] = {}
        offset = 0
        parts: list[ResultFile] = []
        for path, read in files.items():
            entry: dict[str, Any] = {"at": [read.size, read.mtime_ns], "rejection": read.rejection}
            result = read.result
            if result is not None:
                rows = result.rows
                entry |= {
                    "layout": layouts.setdefault(id(rows), (len(layouts), rows))[0],
                    "count": len(result.values),
                    "fields": [
                        result.commit,
                        result.environment,
                        result.date_ms,
                        result.machine,
                        result.python,
                        result.requirements,
                        result.started_ms,
                        list(result.problems),
                    ],
                }
                if path in kept:
                    entry |= {name: kept[path][name] for name in ("chunk", "offset")}
                else:
                    parts.append(result)
                    entry |= {"chunk": "", "offset": offset}
                    offset += len(result.values)
            entries[path] = entry
        new = {path: entry for path, entry in entries.items() if entry.get("chunk") == ""}
        named = repr((self.code, sorted(new.items()))).encode()
        fresh = hashlib.sha256(named).hexdigest()[:16]
        for entry in new.values():
            entry["chunk"] = fresh
        if parts:
            self._write_chunk(fresh, parts, offset)
        stamps = sorted({entry["chunk"] for entry in entries.values() if "chunk" in entry})
        laid = [
            [[row.benchmark, row.params, row.offset, row.size, row.version] for row in layout]
            for _, layout in layouts.values()
        ]
        self.save_json("files.json", {"chunks": stamps, "layouts": laid, "files": entries})
        for old in self.folder.glob("*.npy"):
            if old.stem.partition("-")[2] not in stamps:
                old.unlink()

    def _arrays(self, stamp: str) -> tuple[Floats, Narrow]:
        """A chunk. Plain views of the mapped files: slices of ``memmap`` take ten times as long."""
        values = np.load(self.folder / f"values-{stamp}.npy", mmap_mode="r")
        bounds = np.load(self.folder / f"bounds-{stamp}.npy", mmap_mode="r")
        return np.asarray(values), np.asarray(bounds)

    def _write_chunk(self, stamp: str, parts: list[ResultFile], count: int) -> None:
        for name, dtype, shape in (
            (f"values-{stamp}.npy", np.float64, (max(count, 1),)),
            (f"bounds-{stamp}.npy", np.float32, (2, max(count, 1))),
        ):
            # A new file, not an old one changed: `files` may still be looking at that one.
            fresh = self.folder / f"{name}.new"
            array = np.lib.format.open_memmap(fresh, "w+", dtype, shape)  # type: ignore[no-untyped-call]
            at = 0
            for result in parts:
                end = at + len(result.values)
                if dtype is np.float64:
                    array[at:end] = result.values
                else:
                    array[0, at:end], array[1, at:end] = result.low, result.high
                at = end
            del array
            fresh.replace(self.folder / name)

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def _replace(self, name: str, content: bytes) -> None:
        fresh = self.folder / f"{name}.new"
        fresh.write_bytes(content)
        fresh.replace(self.folder / name)


def _layout(rows: list[Any]) -> Layout:
    return shared(
        tuple(
            Row(benchmark, tuple(map(tuple, params)), offset, size, version)
            for benchmark, params, offset, size, version in rows
        )
    )


def _entry(
    path: str, entry: Any, layouts: list[Layout], chunks: dict[str, tuple[Floats, Narrow]]
) -> Read:
    size, mtime_ns = entry["at"]
    if "layout" not in entry:
        return Read(size, mtime_ns, None, entry["rejection"])
    values, bounds = chunks[entry["chunk"]]
    start, end = entry["offset"], entry["offset"] + entry["count"]
    if not 0 <= start <= end <= len(values) or bounds.shape != (2, len(values)):
        raise ValueError(f"{path}: its values lie outside the store")
    commit, environment, date_ms, machine, python, requirements, started, problems = entry["fields"]
    low: Narrow = bounds[0, start:end]
    return Read(
        size,
        mtime_ns,
        ResultFile(
            Path(path),
            commit,
            environment,
            date_ms,
            machine,
            python,
            requirements,
            started,
            layouts[entry["layout"]],
            values[start:end],
            low,
            bounds[1, start:end],
            tuple(problems),
        ),
    )
