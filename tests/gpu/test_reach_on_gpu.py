"""On a GPU: views whose rows lie 17 to 40 million elements apart, in up to 45 GB of NaN."""

from __future__ import annotations

import pytest

from tests.gpu.far_rows import CASES, problems

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        *((name, True) for name in CASES),
        *((name, False) for name, case in CASES.items() if case.special),
    ],
)
def test_far_rows_are_as_near_ones(name: str, portable: bool) -> None:
    assert not problems(name, "cuda", portable)
