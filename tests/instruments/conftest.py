"""A software card in the place of the one that a commit is measured on."""

from __future__ import annotations

from typing import Any

import pytest

from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import commit, utilization
from warpwatch.session.session import Session
from warpwatch.session.utilization import Readings


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """A GPU is there, its workers follow this script, and counters are read for who was right."""
    scripts: dict[str, dict[str, Any]] = {}

    def make(request: dict[str, Any], **options: Any) -> Session:
        quick = {"warm_up_seconds": 0.002}
        return Session({**request, "scripts": scripts, "limits": quick}, **options)

    def read(names: list[str], *_: object) -> Readings:
        return Readings(
            "ncu", {name: Outcome(name, "ok", samples={"tensor_pipe": (56.6,)}) for name in names}
        )

    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(commit, "Session", make)
    monkeypatch.setattr(utilization, "read", read)
    return scripts
