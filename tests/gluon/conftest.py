"""One process in which Triton interprets, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels.interpreted import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()
