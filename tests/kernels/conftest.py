"""The interpreter's process, started once and only when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels.interpreted import Worker


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()
