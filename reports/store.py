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

from reports import thresholds
from reports.result_file import Layout, Narrow, ResultFile, Row

VERSION = 1


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
    package = Path(__file__).parent
    for path in sorted(package.rglob("*")):
        code = path.suffix in (".py", ".html", ".css", ".js") and "published" not in path.parts
        if code or path == thresholds.DEFAULT_FILE:
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Store:
    """A folder that remembers; every part of it may be missing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.code = code_version()

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
        index = self.load_json("files.json")
        if index is None:
            return {}
        try:
            values = np.load(self.folder / f"values-{index['stamp']}.npy", mmap_mode="r")
            bounds = np.load(self.folder / f"bounds-{index['stamp']}.npy", mmap_mode="r")
            layouts = [_layout(rows) for rows in index["layouts"]]
            return {
                path: _entry(path, entry, layouts, values, bounds)
                for path, entry in index["files"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return {}

    def save_files(self, files: dict[str, Read]) -> None:
        """Writes the arrays under a new name first: a torn save leaves an index that fits none."""
        self._prepare()
        layouts: dict[Layout, int] = {}
        entries: dict[str, Any] = {}
        offset = 0
        parts: list[ResultFile] = []
        for path, read in files.items():
            entry: dict[str, Any] = {"at": [read.size, read.mtime_ns], "rejection": read.rejection}
            result = read.result
            if result is not None:
                parts.append(result)
                entry |= {
                    "layout": layouts.setdefault(result.rows, len(layouts)),
                    "offset": offset,
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
                offset += len(result.values)
            entries[path] = entry
        stamp = hashlib.sha256(repr(sorted(entries.items())).encode()).hexdigest()[:16]
        for name, dtype, shape in (
            (f"values-{stamp}.npy", np.float64, (max(offset, 1),)),
            (f"bounds-{stamp}.npy", np.float32, (2, max(offset, 1))),
        ):
            # A new file, not the old one changed: `files` may still be looking at that one.
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
        rows = [
            [[row.benchmark, row.params, row.offset, row.size, row.version] for row in layout]
            for layout in layouts
        ]
        self.save_json("files.json", {"stamp": stamp, "layouts": rows, "files": entries})
        for old in self.folder.glob("*.npy"):
            if stamp not in old.name:
                old.unlink()

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
    return tuple(
        Row(benchmark, tuple(map(tuple, params)), offset, size, version)
        for benchmark, params, offset, size, version in rows
    )


def _entry(path: str, entry: Any, layouts: list[Layout], values: Any, bounds: Any) -> Read:
    size, mtime_ns = entry["at"]
    if "layout" not in entry:
        return Read(size, mtime_ns, None, entry["rejection"])
    start, end = entry["offset"], entry["offset"] + entry["count"]
    if not 0 <= start <= end <= len(values):
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
