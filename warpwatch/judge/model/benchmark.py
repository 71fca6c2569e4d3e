"""What asv's ``benchmarks.json`` says of one benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Benchmark:
    """What ``benchmarks.json`` says of one benchmark; ``attributes`` are the author's own."""

    name: str
    params: tuple[tuple[str, ...], ...] = ()
    param_names: tuple[str, ...] = ()
    unit: str = ""
    version: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


def unquoted(representation: str) -> str:
    """A repr of a plain string without its quotes; any other repr as it stands."""
    if len(representation) >= 2 and representation[0] == representation[-1]:
        inner = representation[1:-1]
        quote = representation[0]
        if quote in "'\"" and quote not in inner and "\\" not in inner:
            return inner
    return representation
