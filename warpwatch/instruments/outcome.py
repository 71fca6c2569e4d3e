"""What came of measuring one workload on a GPU, as it travels between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Status = Literal[
    "ok",
    "not applicable",
    "import failed",
    "failed",
    "wrong answer",
    "out of memory",
    "device lost",
    "hung",
    "not tried",
]


@dataclass(frozen=True)
class Outcome:
    """Samples by metric name (one for a metric without noise), and what explains them.

    ``detail`` is one line that says what went wrong, or what speaks against the numbers.
    """

    workload: str
    status: Status
    detail: str = ""
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Strict: a line that is no outcome raises ``ValueError``."""
        data = json.loads(text)
        expected = {"workload", "status", "detail", "samples", "evidence"}
        if not isinstance(data, dict) or set(data) != expected:
            raise ValueError(f"expected an outcome with {sorted(expected)}, got {text[:200]!r}")
        if data["status"] not in get_args(Status):
            raise ValueError(f"unknown status {data['status']!r} of {data['workload']!r}")
        samples = {name: tuple(map(float, row)) for name, row in data.pop("samples").items()}
        return cls(samples=samples, **data)
