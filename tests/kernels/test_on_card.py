"""What runs the kernels' tests on a GPU: which kernels serve."""

from __future__ import annotations

import pytest

from kernels import specialised
from tests.kernels.on_card import portable


def test_portable_means_no_kernel_of_one_architecture() -> None:
    kept = specialised.load
    with portable():
        for name in ("attention.hopper", "attention.hopper_backward_launch", "matmul.hopper"):
            assert specialised.load(name) is None
    assert specialised.load is kept


def test_a_kernel_that_is_given_up_is_told() -> None:
    before = set(specialised._given_up)
    told = pytest.raises(RuntimeError, match=r"kernels\.matmul\.hopper")
    with pytest.warns(RuntimeWarning), told, portable(False):
        specialised.give_up("matmul.hopper", ValueError("no registers"))
    assert specialised._given_up == before
