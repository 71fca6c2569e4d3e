"""What an operation of torch reads and writes of device memory, by its schema.

The rule: every distinct operand is read once if the operation reads it, and written once if it
writes it, however often it is named.

- An operation in place (``add_``) reads and writes its operand. One that only overwrites
  (``copy_``, ``fill_``, random numbers) and an ``out=`` operand are written alone.
- A dimension that was expanded (stride 0) is one piece of memory.
- What looks up (``index_select``, ``embedding``) reads no more of its source than it hands out;
  what puts into places (``index_put_``, ``scatter_``) touches no more of its target than it was
  handed.

Views do neither: see :mod:`.ops`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

# In place, without a look at what was there.
_OVERWRITES = {
    "aten::copy_",
    "aten::fill_",
    "aten::zero_",
    "aten::uniform_",
    "aten::normal_",
    "aten::random_",
    "aten::bernoulli_",
    "aten::exponential_",
    "aten::geometric_",
    "aten::log_normal_",
    "aten::cauchy_",
    "aten::_foreach_copy_",
    "aten::_foreach_zero_",
}
_LOOKS_UP = {"aten::index", "aten::index_select", "aten::gather", "aten::embedding", "aten::take"}
# They take size and dtype from their first operand, and no value.
TEMPLATED = {
    "aten::ones_like",
    "aten::zeros_like",
    "aten::full_like",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
}
# Of these the target is the first operand and what is put the last tensor; those that accumulate
# read the places they write.
_PUTS = {"aten::index_put_", "aten::index_copy_", "aten::scatter_", "aten::_index_put_impl_"}
_ADDS = {"aten::index_add_", "aten::scatter_add_", "aten::scatter_reduce_"}


def tensors(tree: Any) -> list[torch.Tensor]:
    return [one for one in tree_flatten(tree)[0] if isinstance(one, torch.Tensor)]


def operands(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[torch.Tensor, bool, bool]]:
    """Every tensor argument with whether it is read and whether it is written."""
    declared = func._schema.arguments
    name = func._schema.name
    given = list(zip(declared, args, strict=False))
    given += [(one, kwargs[one.name]) for one in declared if one.name in kwargs]
    for argument, value in given:
        written = argument.alias_info is not None and argument.alias_info.is_write
        only = written and (argument.is_out or name in _OVERWRITES)
        for tensor in tensors(value):
            yield tensor, not only, written


def puts_into_places(func: Any) -> bool:
    """Whether it writes some places of its first operand and leaves the others as they were."""
    return func._schema.name in _PUTS | _ADDS


def traffic(func: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, int]:
    """Bytes read and bytes written, by the rule of the module."""
    name = func._schema.name
    read: dict[Any, int] = {}
    written: dict[Any, int] = {}
    found = list(operands(func, args, kwargs))
    for tensor, reads, writes in found:
        key, nbytes = _piece(tensor), distinct_bytes(tensor)
        if reads:
            read[key] = nbytes
        if writes:
            written[key] = nbytes
    for tensor in tensors(result):
        written.setdefault(_piece(tensor), distinct_bytes(tensor))
    if name in _LOOKS_UP and found:
        source = found[0][0]
        handed_out = sum(map(distinct_bytes, tensors(result)))
        read[_piece(source)] = min(read[_piece(source)], handed_out)
    if puts_into_places(func) and found:
        target, put = _piece(found[0][0]), found[-1][0]
        touched = distinct_bytes(put) if put.numel() > 1 else written[target]
        written[target] = min(written[target], touched)
        accumulates = name in _ADDS or True in args[3:] or kwargs.get("accumulate", False)
        read[target] = written[target] if accumulates else 0
    return sum(read.values()), sum(written.values())


def products(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Floating-point operations of an operation that multiplies matrices; 0 of any other."""
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except Exception:  # torch's formulas know torch's own calls; a bound may lack a product
        return 0


def _piece(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Its bytes, a dimension that was expanded counted once."""
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count
