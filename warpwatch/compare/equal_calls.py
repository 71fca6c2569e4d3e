"""Workloads whose calls are the same at base and head: a card can only tell noise of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpwatch import devices
from warpwatch.config import targets
from warpwatch.instruments.gpu.card import clocks

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]

# What compiling took, not what it made.
_NO_CALL = frozenset({"compile_seconds"})


def target_here() -> str | None:
    """The target whose recorded calls are those of this machine's cards.

    A recording stands for the card that its target is judged on. Host code may choose otherwise on
    another card of the same architecture, so there is none for such a card.

    Returns:
        The target, None where cards are unknown, are several kinds, or are another than that.
    """
    names = {one.name for one in clocks.cards()}
    known = devices.identify(names.pop()) if len(names) == 1 else None
    if known is None:
        return None
    return next((one.name for one in targets.KNOWN if one.device == known.name), None)


def find(base: Rows, head: Rows, target: str | None) -> dict[str, tuple[str, ...]]:
    """The workloads whose recorded calls on ``target`` are equal, with the hashes of their code.

    Equal are the machine code of each launch, its grid and arguments, and torch's own operations
    between them, copies among them. A number that host code makes of an address may differ between
    two recordings of one call: such a workload is measured.

    Args:
        base: The compiled measurements of one version, by workload and target.
        head: Those of the other.
        target: What this machine's cards are, None where nothing is known.

    Returns:
        The hash of each launch's machine code, by workload.
    """
    found: dict[str, tuple[str, ...]] = {}
    for (workload, on), before in base.items():
        after = head.get((workload, on))
        if on != target or after is None:
            continue
        one, other = _call(before), _call(after)
        if one is not None and one == other:
            found[workload] = tuple(str(launch["code"]) for launch in one["launches"])
    return found


def _call(row: Row) -> dict[str, Any] | None:
    """What one call does, None where that is not known wholly."""
    evidence: Mapping[str, Any] = row.get("evidence", {})
    if row["status"] != "ok" or not evidence.get("launches") or not evidence.get("arguments"):
        return None
    if evidence.get("failures") or evidence.get("tuned"):
        return None  # who tunes on the card may choose otherwise there
    launches = [
        {key: value for key, value in one.items() if key not in _NO_CALL}
        for one in evidence["launches"]
    ]
    return {
        "launches": launches,
        "arguments": evidence["arguments"],
        "torch_ops": evidence.get("torch_ops"),
    }
