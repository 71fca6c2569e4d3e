"""Which workloads belong to which shard: the runners of one run share them out by name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

# Set for the processes that measure, which otherwise would measure everything.
VARIABLE = "WARPWATCH_SHARD"
# Set where some workloads of a measured commit are measured again: their names, one a line.
ONLY_VARIABLE = "WARPWATCH_ONLY"


def parse(text: str) -> tuple[int, int]:
    """``I/N`` as numbers with 1 <= I <= N <= 64."""
    match = re.fullmatch(r"([1-9][0-9]?)/([1-9][0-9]?)", text)
    if match is None or not int(match[1]) <= int(match[2]) <= 64:
        raise ValueError(f"--shard: expected I/N with 1 <= I <= N <= 64, got {text!r}")
    return int(match[1]), int(match[2])


def own(names: Sequence[str], shard: int, shards: int) -> list[str]:
    """The names of one shard: every N-th in alphabetical order."""
    return sorted(set(names))[shard - 1 :: shards]


def only() -> frozenset[str]:
    """The workloads that are measured again while others are kept; empty: all are measured."""
    return frozenset(filter(None, os.environ.get(ONLY_VARIABLE, "").split("\n")))


def chosen(names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are not kept from an earlier run, in their order."""
    asked = only()
    return [name for name in names if not asked or _workload(name) in asked]


def measured_here(names: Sequence[str], everything: Sequence[str]) -> list[str]:
    """Those of ``names`` that this process's shard measures, in their order.

    ``everything`` is what the shards share out; a peer (``NAME @ PEER``) goes with its workload.
    """
    names = chosen(names)
    shard, shards = parse(os.environ.get(VARIABLE) or "1/1")
    if shards == 1:
        return list(names)
    mine, known = set(own(everything, shard, shards)), set(everything)
    first = {name for name in names if shard == 1 and _workload(name) not in known}
    return [name for name in names if _workload(name) in mine or name in first]


def patterns(names: Sequence[str], shard: int, shards: int) -> list[str]:
    """asv's ``--bench`` patterns of one shard; none at all means everything.

    A shard takes every N-th workload in alphabetical order, on all its benchmarks and targets;
    what has no workload among its parameters belongs to the first.
    """
    if shards == 1:
        return []
    found = [rf"\(.*'{re.escape(name)}[' ]" for name in own(names, shard, shards)]
    if shard == 1:
        everything = "|".join(re.escape(name) for name in sorted(set(names)))
        found.append(rf"^(?!.*'(?:{everything})[' ])")
    return found


def _workload(name: str) -> str:
    return name.partition(" @ ")[0]
