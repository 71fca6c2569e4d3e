"""On a GPU, whose maxima pass over NaN: NaN and +inf come out where the plain formula's do."""

from __future__ import annotations

import pytest
import torch

from tests.kernels import test_infinities as cases
from tests.kernels.on_card import Made, portable

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", cases.SPOILS)
def test_full_attention_has_the_formulas(name: str, dtype: str) -> None:
    with Made("cuda"), portable():
        found, wanted = cases.run(name, dtype, 40)
    for what, mine, theirs in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        assert torch.equal(mine, theirs), what


@pytest.mark.parametrize("name", cases.ROWS)
def test_a_row_with_an_infinite_score(name: str) -> None:
    with Made("cuda"):
        found = cases.run_row(name)
    cases.check_row(name, *(one.cpu() for one in found))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-nan"])
@pytest.mark.parametrize("head_dim", [16, 128], ids="D{}".format)
@pytest.mark.parametrize(("splits", "sinks"), [(1, False), (3, True)], ids=str)
def test_decoding(splits: int, sinks: bool, head_dim: int, beside: bool) -> None:
    with Made("cuda"):
        found = cases.run_decoding(splits, "bfloat16", sinks, beside, head_dim)
    cases.check_decoded(*(one.cpu() for one in found), beside)


@pytest.mark.parametrize("head_dim", [16, 128], ids="D{}".format)
@pytest.mark.parametrize("splits", [1, 3])
def test_decoding_with_infinite_sinks(splits: int, head_dim: int) -> None:
    with Made("cuda"):
        found = cases.run_infinite_sinks(splits, "bfloat16", head_dim)
    cases.check_infinite_sinks(*(one.cpu() for one in found))
