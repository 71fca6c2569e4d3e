"""Writes evidence beside result files as the instruments do, for tests of its readers."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpwatch.judge.evidence import compiled as kept_evidence

Places = dict[tuple[str, str], list[str]]


def write_compiled(
    results: Path,
    commit: str,
    triton: str,
    listings: Places,
    advice: Places | None = None,
    statuses: Mapping[tuple[str, str], str] | None = None,
    recorded: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """The machine code of every launch, by workload and target, what each is advised, and what came
    of those that did not go well; ``recorded`` is what evidence holds beside all that. ``more``
    holds for the whole file, but ``values`` and ``details``, which are by workload and target."""
    folder = results / kept_evidence.FOLDER
    entries, values, details = [], more.pop("values", {}), more.pop("details", {})
    for (workload, target), texts in listings.items():
        launches = []
        for text in texts:
            name = hashlib.sha256(text.encode()).hexdigest()
            path = kept_evidence.listing_path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lzma.compress(text.encode()))
            said = (advice or {}).get((workload, target), [])
            launches.append({**launch(name, text), "advisories": said})
        entries.append(
            {
                "workload": workload,
                "target": target,
                "status": (statuses or {}).get((workload, target), "ok"),
                "detail": details.get((workload, target), ""),
                "values": values.get((workload, target), {}),
                "evidence": {
                    "launches": launches,
                    "torch_ops": [],
                    "failures": [],
                    "notes": [],
                    **(recorded or {}),
                },
            }
        )
    content = {"schema": 1, "commit": commit, "triton": triton, "method": "m", "results": entries}
    content |= more
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{commit[:8]}-{triton}{kept_evidence.SUFFIX}"
    path.write_bytes(lzma.compress(json.dumps(content).encode()))
    return path


def write_card(
    results: Path,
    commit: str,
    workload: str,
    mhz: float,
    watts: float,
    detail: str = "",
    **said: object,
) -> Path:
    """The samples of one cold latency, the clocks they were taken at and what is ``said`` of it."""
    samples = [
        {
            "us": 100.0 + i,
            "held": True,
            "spin_mhz": mhz + i,
            "clocks": {"sm_mhz": 1.0, "power_w": watts, "throttled": ["power cap"]},
        }
        for i in range(9)
    ]
    outcome = {
        "workload": workload,
        "status": "ok",
        "detail": detail,
        "evidence": {"latency_cold": {"us": 104.0, "samples": samples, **said}},
    }
    document = {"schema_version": 1, "commit": commit, "card": None, "timed": [outcome]}
    path = results / kept_evidence.FOLDER / f"gpu-{commit[:12]}.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def write_asked(
    results: Path,
    commit: str,
    statuses: dict[str, str],
    instruments: Sequence[str] = ("latency",),
    **more: object,
) -> Path:
    """What a GPU was asked for at a commit, what came of each workload, and ``more`` beside it."""
    document = {
        "schema_version": 1,
        "commit": commit,
        "card": None,
        "methods": dict.fromkeys(instruments, "1"),
        "timed": [
            {"workload": name, "status": status, "detail": "", "samples": {}, "evidence": {}}
            for name, status in statuses.items()
        ],
        "counted": [],
        **more,
    }
    path = results / kept_evidence.FOLDER / f"gpu-{commit[:12]}.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def launch(name: str, text: str = "") -> dict[str, Any]:
    """A launch as evidence describes it; ``name`` is the hash of its code."""
    return {
        "kernel": "_attention",
        "code": name,
        "grid": [1],
        "num_warps": 4,
        "num_stages": 2,
        "num_ctas": 1,
        "constants": {},
        "registers": 64,
        "stack_bytes": 0,
        "spilled_bytes": 0,
        "shared_bytes": 0,
        "code_bytes": 16 * len(text.splitlines()),
        "compile_seconds": 0.5,
        "tensor_core_level": 2,
        "async_copy_level": 2,
        "multiplies": True,
        "advisories": [],
        "unknown_instructions": [],
        "instructions": {"tensor": text.count("MMA"), "special": text.count("MUFU")},
        "hot_loops": [],
        "occupancy": {
            "blocks": 1,
            "limited_by": "registers",
            "limits": {},
            "waves": 1.0,
            "last_wave_fill": 1.0,
        },
        "bound": {
            "us": 1.0,
            "limited_by": "tensor",
            "units_us": {},
            "tensor_utilization": 50.0,
            "repeated_products": 1.0,
            "loop_iterations": [],
            "notes": [],
        },
    }
