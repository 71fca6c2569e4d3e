"""What lies beside results: how the evidence of shards, or of two runs, becomes one file."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.compiled import SCHEMA, SUFFIX, launches
from warpwatch.judge.evidence.measured import MEASURED_PATTERN, read_measured
from warpwatch.judge.results.strict_json import RejectedError


def unite(paths: Sequence[Path]) -> bytes:
    """One file from those of one name, the same bytes for the same ``paths``.

    Equal files are one. Of what GPU instruments keep every workload is kept, that of the first path
    where several measured it. Of compiled evidence every pair of workload and target is kept: one
    that went well before one that did not, then that of the first path; compile seconds apart, two
    that went well must speak of the same code. ``RejectedError`` where content would be lost.
    """
    contents = [path.read_bytes() for path in paths]
    if all(content == contents[0] for content in contents):
        return contents[0]
    if paths[0].match(MEASURED_PATTERN):
        return _unite_measured(paths)
    if not paths[0].name.endswith(SUFFIX):
        raise RejectedError(paths[-1], ["is there twice with different content"])
    found = [kept_evidence.read(path) for path in paths]
    results: dict[tuple[str, str], Mapping[str, Any]] = {}
    for path, evidence in zip(paths, found, strict=True):
        for key in ("commit", "triton", "method"):
            if getattr(evidence, key) != getattr(found[0], key):
                raise RejectedError(path, [f"{key}: differs between files of one name"])
        for pair, result in evidence.results.items():
            known = results.setdefault(pair, result)
            if result["status"] != "ok" or known is result:
                continue
            if known["status"] != "ok":
                results[pair] = result
            elif _codes(known) != _codes(result):
                raise RejectedError(path, [f"{' on '.join(pair)}: compiled to different code"])
    document = {
        "schema": SCHEMA,
        "commit": found[0].commit,
        "triton": found[0].triton,
        "method": found[0].method,
        "assembler": found[0].assembler,
        "devices": {name: title for one in found for name, title in one.devices.items()},
        "results": [results[pair] for pair in sorted(results)],
    }
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return lzma.compress(text.encode(), preset=6)


def _unite_measured(paths: Sequence[Path]) -> bytes:
    merged: dict[str, Any] = {}
    for path in paths:
        document = read_measured(path)
        for key in ("schema_version", "commit", "tree", "methods"):
            if key in merged and merged[key] != document.get(key):
                raise RejectedError(path, [f"{key}: differs between files of one name"])
        for key, value in document.items():
            if key not in ("timed", "counted"):
                merged.setdefault(key, value)
                continue
            if not isinstance(value, list) or not all(_names_a_workload(one) for one in value):
                raise RejectedError(path, [f"{key}: expected a list of outcomes of workloads"])
            outcomes = merged.setdefault(key, {})
            for outcome in value:
                outcomes.setdefault(outcome["workload"], outcome)
    for key in {"timed", "counted"} & merged.keys():
        merged[key] = [merged[key][workload] for workload in sorted(merged[key])]
    text = json.dumps(merged, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def _names_a_workload(outcome: Any) -> bool:
    return isinstance(outcome, dict) and isinstance(outcome.get("workload"), str)


def _codes(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(one["kernel"], one["code"]) for one in launches(result)]
