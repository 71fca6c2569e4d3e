"""How the shards of one run become one results folder, the same bytes whatever their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch.judge.results.strict_json import RejectedError, load

from .merge_evidence import unite

# Columns that hold one entry for each combination of parameters.
PER_POINT = frozenset(
    (
        "result",
        "samples",
        "stats_ci_99_a",
        "stats_ci_99_b",
        "stats_q_25",
        "stats_q_75",
        "stats_number",
        "stats_repeat",
    )
)
COLUMNS = (
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
)

_LEFT_OUT, _FAILED, NUMBER = range(3)


@dataclass(frozen=True)
class Merged:
    """What was merged: shards that came, shards that should have, files written."""

    present: tuple[int, ...]
    missing: tuple[int, ...]
    files: tuple[str, ...]


def merge(shards: dict[int, Path], expected: int, out: Path) -> Merged:
    """Merge the results folders of ``shards`` (by shard number) into ``out``.

    asv writes NaN for what it was told to leave out, and for what does not apply; null for what
    failed. So a number wins over null and null over NaN, and two shards with different numbers
    for one point are refused. Where a shard is missing, NaN may be its part: it becomes null, so
    that the point is missing and not taken for one that does not apply.
    """
    strangers = sorted(number for number in shards if not 1 <= number <= expected)
    if strangers:
        raise ValueError(f"shards {strangers} are not among 1 to {expected}")
    ordered = [shards[number] for number in sorted(shards)]
    names = sorted({str(p.relative_to(f)) for f in ordered for p in f.rglob("*.json")})
    for name in names:
        sources = [folder / name for folder in ordered if (folder / name).is_file()]
        merged = _merge_files(sources)
        if len(shards) < expected and "results" in merged:
            _distrust(merged)
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(merged, sort_keys=True, separators=(",", ":"))
        target.write_text(text + "\n", encoding="utf-8")
    _copy_evidence(ordered, out)
    present = tuple(sorted(shards))
    missing = tuple(sorted(set(range(1, expected + 1)) - set(present)))
    return Merged(present, missing, tuple(names))


def _copy_evidence(folders: Sequence[Path], out: Path) -> None:
    """What explains the results goes along, all of it: files of one name are united or refused."""
    found: dict[Path, list[Path]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix != ".json":
                found.setdefault(path.relative_to(folder), []).append(path)
    for name, paths in sorted(found.items()):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(unite(paths))


def _merge_files(paths: Sequence[Path]) -> dict[str, Any]:
    documents = [load(path) for path in paths]
    for path, document in zip(paths, documents, strict=True):
        if not isinstance(document, dict):
            raise RejectedError(path, ["expected an object"])
    if paths[0].name in ("machine.json", "benchmarks.json"):
        return _only_one(paths, documents)
    return _merge_results(paths, documents)


def _only_one(paths: Sequence[Path], documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Files that describe: every shard must say the same of what it knows."""
    merged: dict[str, Any] = {}
    for path, document in zip(paths, documents, strict=True):
        differing = [key for key in document if key in merged and merged[key] != document[key]]
        if differing:
            raise RejectedError(
                path,
                [
                    f"{', '.join(differing[:5])}: differs between shards; runners share a machine "
                    "key only if they are of one model, and measure with one harness"
                ],
            )
        merged |= document
    return merged


def _merge_results(paths: Sequence[Path], documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for key in ("commit_hash", "env_name", "params", "python", "requirements", "version"):
        for path, document in zip(paths, documents, strict=True):
            if document.get(key) != documents[0].get(key):
                raise RejectedError(path, [f"{key}: differs between shards of one run"])
    for path, document in zip(paths, documents, strict=True):
        # The strict reader takes other tools' results as well, which have no columns.
        known = (document.get("result_columns"), list), (document.get("results"), dict)
        if not all(isinstance(value, kind) for value, kind in known):
            raise RejectedError(path, ["expected results in asv's own form"])
    rows: dict[str, dict[str, Any]] = {}
    durations: dict[str, float] = {}
    for path, document in zip(paths, documents, strict=True):
        columns = document["result_columns"]
        for name, entries in document["results"].items():
            row = dict(zip(columns, entries, strict=False))
            rows[name] = _merge_rows(path, name, rows[name], row) if name in rows else row
        for name, seconds in _durations(path, document).items():
            durations[name] = max(durations.get(name, 0.0), seconds)
    return {
        **documents[0],
        "date": min(document.get("date", 0) for document in documents),
        "durations": durations,
        "result_columns": list(COLUMNS),
        "results": {name: cells(row) for name, row in rows.items()},
    }


def _durations(path: Path, document: dict[str, Any]) -> dict[str, float]:
    """How long asv took for what; the strict reader of results leaves this field alone."""
    found = document.get("durations", {})
    if not isinstance(found, dict) or not all(type(s) in (int, float) for s in found.values()):
        raise RejectedError(path, ["durations: expected seconds by name"])
    return found


def _merge_rows(path: Path, name: str, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    for key in ("params", "version"):
        if one.get(key) != two.get(key):
            raise RejectedError(path, [f"{name} {key}: differs between shards of one run"])
    size = 1
    for values in one.get("params") or ():
        size *= len(values)
    merged = dict(one)
    first, second = (points(row.get("result"), size) for row in (one, two))
    ranks = [(rank(mine), rank(theirs)) for mine, theirs in zip(first, second, strict=True)]
    for index, (mine, theirs) in enumerate(ranks):
        if mine == theirs == NUMBER and first[index] != second[index]:
            raise RejectedError(path, [f"{name}: two shards measured point {index} differently"])
    for column in PER_POINT & (one.keys() | two.keys()):
        pairs = zip(points(one.get(column), size), points(two.get(column), size), strict=True)
        values = [pair[theirs > mine] for pair, (mine, theirs) in zip(pairs, ranks, strict=True)]
        merged[column] = values if any(value is not None for value in values) else None
    for column, choose in (("started_at", min), ("duration", max)):
        known = [row[column] for row in (one, two) if row.get(column) is not None]
        merged[column] = choose(known) if known else None
    return merged


def rank(value: Any) -> int:
    """Which of two entries for a point counts: a number, then a failure, then what was left out."""
    if value is None:
        return _FAILED
    return _LEFT_OUT if value != value else NUMBER


def _distrust(document: dict[str, Any]) -> None:
    for row in document["results"].values():
        if isinstance(row[0], list):
            row[0] = [None if rank(value) == _LEFT_OUT else value for value in row[0]]


def points(values: Any, size: int) -> list[Any]:
    """The entries of a column, one a point."""
    return list(values) if isinstance(values, list) and len(values) == size else [None] * size


def cells(row: dict[str, Any]) -> list[Any]:
    """A row in asv's own form: the columns in order, trailing nulls dropped."""
    entries = [row.get(column) for column in COLUMNS]
    while entries and entries[-1] is None:
        entries.pop()
    return entries
