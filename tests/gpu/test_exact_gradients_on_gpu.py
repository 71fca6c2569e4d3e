"""On a GPU, whose kernels add products in other orders than the launch that corrects gradients:
rows of one heavy weight. On Hopper its own kernels serve where no more is asked than a mask."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.kernels import scores_cases
from tests.kernels import test_exact_gradients as cases
from tests.kernels import test_marks as marks
from tests.kernels import test_one_key as one_key
from tests.kernels import test_packed_few as packed
from tests.kernels.interpreted import Errors, judge, numbers
from tests.kernels.on_card import Made, portable
from tests.kernels.test_exact_gradients import Case, Packed

pytestmark = pytest.mark.gpu

LONG = Case(S=512, KV=512, H=4)
SERVED = [
    *(
        replace(LONG, D=D, causal=causal, G=G)
        for D in (64, 128, 256)
        for causal, G in ((False, 4), (True, 2))
    ),
    replace(LONG, B=2, H=8, S=300, KV=700, causal=True),
    # Of 512 keys the heavy one were a power of two, by which the formula's dq needs no rounding.
    replace(LONG, steep=0.0, D=128, KV=700),
    replace(LONG, steep=1.0, S=2048, KV=2048, H=2),
    replace(LONG, window=(200, -1), causal=True),
]
IN_PACKS = [
    Packed(q=(0, 512, 9, 300, 0, 90), k=(0, 512, 9, 400, 40, 60), H=4, D=D, causal=causal)
    for D in (64, 128, 256)
    for causal in (False, True)
]


@pytest.mark.parametrize("only", [False, True], ids=["served", "portable"])
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("case", SERVED, ids=str)
def test_long_sequences_keep_the_bar(case: Case, dtype: str, only: bool) -> None:
    with Made("cuda"), portable(only):
        judge(lambda draw: _drawn(draw, replace(case, dtype=dtype)))


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("case", [*cases.CASES, *cases.PACKED, *IN_PACKS], ids=str)
def test_they_keep_it_beside_all_that_may_be_asked(case: Case | Packed, dtype: str) -> None:
    with Made("cuda"), portable(False):
        judge(lambda draw: _drawn(draw, replace(case, dtype=dtype)))


def _drawn(draw: int, case: Case | Packed) -> dict[str, Errors]:
    with numbers(draw):
        return packed.run(case) if isinstance(case, Packed) else scores_cases.run(case)


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("case", cases.PLAIN, ids=str)
def test_without_them_they_do_not(case: Case, dtype: str) -> None:
    with Made("cuda"):
        found = scores_cases.run(replace(case, dtype=dtype, exact=False))
    assert all(found[name].rms > 1.3 * found[name].plain_rms for name in ("dq", "dk"))


@pytest.mark.parametrize("only", [False, True], ids=["served", "portable"])
@pytest.mark.parametrize("D", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("case", marks.CASES)
def test_rows_of_one_heavy_weight_are_marked(case: str, D: int, only: bool) -> None:
    with Made("cuda"), portable(only):
        marks.judge(case, *marks.run(**marks.CASES[case], head_dim=D))


# A compiler may fuse a product into a subtraction, which the interpreter does not.
@pytest.mark.parametrize("name", one_key.CASES)
def test_fp32_of_one_key_is_its_value(name: str) -> None:
    with Made("cuda"):
        out, value = one_key.run(name)
    assert torch.equal(out, value)
