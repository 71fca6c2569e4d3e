"""On a GPU, whose products and differences are rounded once: rows that a finite mask hides."""

from __future__ import annotations

import pytest

from tests.kernels import test_far_scores as cases
from tests.kernels.on_card import Made

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("rows", "keys", "head_dim"), [(80, 70, 16), (80, 20, 16), (300, 640, 64)])
@pytest.mark.parametrize(
    ("dtype", "bias_dtype"),
    [
        ("float16", "float32"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
    ],
    ids=lambda one: one,
)
@pytest.mark.parametrize("value", cases.VALUES, ids="{:.3g}".format)
def test_finite_masks_hide_as_the_formulas_do(
    value: float, dtype: str, bias_dtype: str, rows: int, keys: int, head_dim: int
) -> None:
    if bias_dtype == "bfloat16":
        value = max(value, cases.VALUES[-3])
    with Made("cuda"):
        errors = cases.run(value, dtype, bias_dtype, keys, rows, head_dim)
    for name, one in zip(cases.NAMES, errors, strict=True):
        one.check(name)


@pytest.mark.parametrize(("rows", "keys", "head_dim"), [(80, 70, 16), (300, 640, 64)])
@pytest.mark.parametrize("beside", ["window", "block_mask", "sinks"])
def test_so_they_do_beside_what_has_loops_of_its_own(
    beside: str, rows: int, keys: int, head_dim: int
) -> None:
    with Made("cuda"):
        errors = cases.run(-1e9, "bfloat16", "float32", keys, rows, head_dim, beside)
    for name, one in zip(cases.NAMES, errors, strict=True):
        one.check(name)
