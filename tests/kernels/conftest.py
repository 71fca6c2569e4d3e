"""The interpreter's process, started once and only when a test asks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.configuration import CACHE_VARIABLE
from tests.kernels.interpreted import Worker


@pytest.fixture(autouse=True)
def compiled_by_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of one target reads what the processes of the fixed set have compiled for it: they
    keep each target's kernels in a folder of its own."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    target = getattr(parameters.get("target"), "name", parameters.get("target"))
    if isinstance(target, str) and re.fullmatch(r"(sm_|gfx)\w+", target):
        monkeypatch.setenv(CACHE_VARIABLE, str(Path(os.environ[CACHE_VARIABLE], target)))


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()
