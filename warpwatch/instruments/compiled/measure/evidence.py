"""Keeps beside asv's results what a number cannot hold: readings and code, compressed.

One file a commit and Triton version holds the evidence of all its measurements; listings of machine
code lie beside, named by the hash of the code, so that commits share what did not change and a
difference between any two of them needs no compiler. :mod:`warpwatch.judge.evidence.compiled`
says what a file holds and reads it back.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch import devices
from warpwatch.config import targets
from warpwatch.judge.evidence import compiled as kept_evidence

from .packing import pack
from .workload import Measurement

_COMMIT = re.compile(r"[0-9a-f]{40}")


def store(folder: Path, commit: str, measurements: Iterable[Measurement]) -> Path:
    """Write the evidence of ``commit`` and the code it speaks of; what stood there is replaced."""
    import triton

    from warpwatch.instruments.compiled import METHOD_VERSION

    if not _COMMIT.fullmatch(commit):
        raise ValueError(f"expected the 40 digits of a commit, got {commit!r}")
    results = []
    read = set()
    for one in measurements:
        read.add(one.target)
        results.append(
            {
                "workload": one.workload,
                "target": one.target,
                "status": one.status,
                "detail": one.detail,
                "values": one.values,
                "evidence": one.evidence,
            }
        )
        for name, packed in one.code.items():
            path = kept_evidence.listing_path(folder, name)
            if not path.exists():
                _write(path, packed)
    content = {
        "schema": kept_evidence.SCHEMA,
        "commit": commit,
        "triton": triton.__version__,
        "method": METHOD_VERSION,
        "assembler": assembler(),
        "devices": {
            one.name: devices.load(one.device).title
            for one in targets.KNOWN
            if one.by_default or one.name in read
        },
        "results": results,
    }
    text = json.dumps(_finite(content), separators=(",", ":"), sort_keys=True, allow_nan=False)
    path = folder / f"{commit[:8]}-{triton.__version__}{kept_evidence.SUFFIX}"
    _write(path, pack(text))
    return path


def assembler() -> str:
    """The assembler that Triton calls for NVIDIA's targets; "" where it does not say."""
    try:
        from triton import knobs

        return f"ptxas {knobs.nvidia.ptxas.version}"
    except (ImportError, AttributeError, RuntimeError):
        return ""


def _finite(value: Any) -> Any:
    """JSON has no NaN: a metric that does not apply is ``null``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Survey:
    """What a folder of evidence holds, and which of it nothing refers to."""

    evidence: tuple[Path, ...]
    listings: tuple[Path, ...]
    unwanted: tuple[Path, ...]
    missing: tuple[str, ...]  # code that evidence speaks of and that is not there


def survey(folder: Path, keep: Collection[str]) -> Survey:
    """Unwanted is the evidence of commits not in ``keep`` and code that none of the rest speaks
    of. ``ValueError`` names every file that cannot be read: what it speaks of is not known."""
    wanted, unwanted, spoken, mistakes = [], [], set(), []
    digits = {commit[:8] for commit in keep}
    for path in kept_evidence.files(folder):
        if path.name[:8] not in digits:
            unwanted.append(path)
            continue
        wanted.append(path)
        try:
            results = kept_evidence.read(path).results.values()
        except ValueError as error:
            mistakes.append(str(error))
            continue
        spoken |= {one["code"] for row in results for one in kept_evidence.launches(row)}
    if mistakes:
        raise ValueError("\n".join([*mistakes, "remove them, or measure their commits again"]))
    listings = {path.stem: path for path in (folder / kept_evidence.CODE).glob("*/*.xz")}
    return Survey(
        evidence=tuple(wanted),
        listings=tuple(path for name, path in listings.items() if name in spoken),
        unwanted=(*unwanted, *(path for name, path in listings.items() if name not in spoken)),
        missing=tuple(sorted(spoken - set(listings))),
    )


def _write(path: Path, content: bytes) -> None:
    """In one step, so that a process that is killed leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
