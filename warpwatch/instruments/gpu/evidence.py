"""What a number cannot hold, kept beside it: raw samples, clocks, power, each launch's counters.

One compressed file a measured commit, in ``evidence`` of asv's results folder, so that it goes
where they go. A commit that is measured again replaces its file; the folder can be removed at any
time.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warpwatch import devices
from warpwatch.config import isolation, sharding
from warpwatch.instruments.outcome import Outcome

SCHEMA_VERSION = 1
MOST_WHY = 1_000  # characters


def folder() -> Path | None:
    """Where this process's evidence belongs; ``None`` outside asv."""
    results = os.environ.get(isolation.RESULTS_VARIABLE)
    return Path(results) / "evidence" if results else None


def write(
    timed: Mapping[str, Outcome],
    counted: Mapping[str, Outcome],
    card: Mapping[str, Any] | None,
    versions: Mapping[str, str],
    tier: str = "",
    why: str = "",
    ceilings: devices.Ceilings | None = None,
) -> Path | None:
    """Keep the outcomes of the commit this process measures; ``tier`` gave the counters (nothing
    where none were asked for), ``why`` no better one did. ``ceilings`` are what shares of peak are
    of on a card without a datasheet."""
    measured, where = isolation.measured(), folder()
    if measured is None or where is None:
        return None
    file = where / f"gpu-{measured.commit[:12].replace(' ', '-')}.json.gz"
    before = _kept(file, measured.commit, versions)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "commit": measured.commit,
        "tree": measured.tree,
        "card": card,
        "methods": dict(versions),
        "timed": [*before["timed"], *(asdict(outcome) for outcome in timed.values())],
        "counted": [*before["counted"], *(asdict(outcome) for outcome in counted.values())],
    }
    if tier:
        document["counters"] = {"tier": tier, "why": why[:MOST_WHY]}
    if ceilings is not None:
        document["ceilings"] = ceilings.to_json()
    where.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".new")
    with gzip.open(unfinished, "wt", encoding="utf-8") as out:
        json.dump(document, out)
    unfinished.replace(file)
    return file


def _kept(file: Path, commit: str, versions: Mapping[str, str]) -> dict[str, list[Any]]:
    """The outcomes of workloads that are not measured again, if some are, by the same methods."""
    found: dict[str, list[Any]] = {"timed": [], "counted": []}
    asked = sharding.only()
    if not asked or not file.is_file():
        return found
    with gzip.open(file, "rt", encoding="utf-8") as text:
        before = json.load(text)
    if before["commit"] != commit or before["methods"] != dict(versions):
        return found
    for part, rows in found.items():
        rows += [one for one in before[part] if not sharding.chosen([one["workload"]])]
    return found
