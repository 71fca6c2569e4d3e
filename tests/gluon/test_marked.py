"""Delta of rows of one heavy weight by Hopper's own kernel, interpreted: whichever rows have marks.

Programs look for marks 32 blocks of 128 rows at a time, and each half of a block has a consumer.
"""

from __future__ import annotations

import pytest

from tests.gluon import marked_cases
from tests.gluon.marked_cases import Case
from tests.kernels.interpreted import Worker

CASES = [
    Case(q=(300,), k=(300,), causal=True, H=2, G=1),
    Case(q=(150,), k=(333,), D=40, marks=(1, 0, 0), lse_too=False, dtype="float16"),
    Case(q=(128,), k=(64,), causal=True, marks=(0, 1, 1), D=128),
    # One consumer passes over more blocks than there are stages.
    Case(q=(120,), k=(900,), D=128, H=2, marks=(1, 0, 0)),
    Case(q=(256,), k=(700,), D=72, marks=(0, 1, 0)),
    Case(q=(384,), k=(384,), causal=True, window=257, D=96, marks=2),
    Case(q=(260,), k=(260,), causal=True, window=100, D=192, H=2, dtype="float16"),
    Case(q=(140,), k=(300,), D=256, G=2, H=4, marks=1),
    # Three rounds: numbers of 32 blocks, few of which have marks.
    Case(q=(64,) * 2, k=(64,) * 2, H=40, marks=1, multiprocessors=1),
    Case(q=(1, 0, 300, 130, 9), k=(3, 5, 300, 0, 150), causal=True, packed=True, H=2),
    Case(q=(130, 200), k=(270, 64), packed=True, D=128, H=2, G=2, marks=3, multiprocessors=3),
    Case(q=(256,), k=(200,), marks=0),
    Case(q=(150,), k=(170,), D=72, H=4, G=2, causal=True, apart=True),
    Case(
        q=(90, 5, 200), k=(150, 5, 330), D=192, H=2, causal=True, window=70, packed=True, apart=True
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_with_marks_have_delta(worker: Worker, case: Case) -> None:
    assert worker.run(marked_cases.run, case) <= 1.0
