"""The function that a repeated call is written as names the values that were recorded."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.runtime.launch.source import Names, _code, function
from kernels.runtime.launch.steps import Described, Slot


class Pair(NamedTuple):
    tensor: Any
    width: int


def filled(template: Any, tensor: torch.Tensor) -> Any:
    names = Names()
    return function("t3", [f"return {names.filled(template)}"], names)(tensor)


def test_a_template_comes_back_as_it_was_with_the_tensor_in_it() -> None:
    slot, tensor = Slot(3, 3, 0), torch.zeros(2)
    kinds: list[Any] = [slot, (slot,), [slot, 1], Pair(slot, 2), (Pair((slot, None), 4), True), 1.5]
    for template in kinds:
        found = filled(template, tensor)
        assert type(found) is (torch.Tensor if template is slot else type(template))
    assert filled((Pair((slot, None), 4), True), tensor) == (Pair((tensor, None), 4), True)
    assert filled([slot, 1], tensor) == [tensor, 1]


def test_a_descriptor_is_laid_over_the_tensor_of_the_call() -> None:
    old, new = torch.zeros(4, 16), torch.zeros(4, 16)
    descriptor = TensorDescriptor.from_tensor(old, [2, 16])
    found = filled(Pair(Described(descriptor, Slot(3, 3, 0), old.data_ptr()), 2), new)
    assert type(found) is Pair
    assert found.tensor.base is new
    assert found.tensor.block_shape == [2, 16]
    assert descriptor.base is old


def test_calls_that_differ_in_values_only_are_compiled_once() -> None:
    before = _code.cache_info().misses
    found = []
    for value in (7, 8):
        names = Names()
        found.append(function("", [f"kept = {names.of(value)}", "return kept"], names))
    assert [one() for one in found] == [7, 8]
    assert _code.cache_info().misses <= before + 1
