"""Recognises a call that is like one of the latest, in less time than its form is written down.

torch has a check of many tensors at once, in C++, which its compiler puts before compiled code:
type, dtype, device, shape, strides, whether gradients are wanted, and every mode that the
dispatcher knows. Where this torch has none, or other arguments, every call's form is looked up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

try:
    from torch._C._dynamo import guards
except ImportError:  # of another torch
    TensorGuards: Any = None
else:
    TensorGuards = getattr(guards, "TensorGuards", None)

# A tensor's address counts modulo this: what a multiprocessor asks memory for at once.
LINE = 128

Given = tuple[list[torch.Tensor], list[int]]


class Latest:
    """A call that was served by ``plan`` while ``state`` held."""

    __slots__ = ("_alike", "_check", "_count", "_names", "_others", "_phases", "_places", "plan")

    def __init__(
        self,
        plan: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        check: Callable[..., bool],
    ) -> None:
        values = (*args, *kwargs.values())
        self.plan = plan
        self._names, self._count = tuple(kwargs), len(values)
        self._places = [i for i, one in enumerate(values) if isinstance(one, torch.Tensor)]
        self._check = check
        self._phases = [values[i].data_ptr() % LINE for i in self._places]
        self._others = [(i, x) for i, x in enumerate(values) if not isinstance(x, torch.Tensor)]

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given | None:
        """Tensors of a call and their addresses, None where it differs from the one served."""
        values = args
        if kwargs:
            values = (*args, *kwargs.values())
            if tuple(kwargs) != self._names:
                return None
        elif self._names:
            return None
        if len(values) != self._count:
            return None
        tensors = [values[i] for i in self._places]
        if not self._check(*tensors):
            return None
        addresses = [one.data_ptr() for one in tensors]
        if [one % LINE for one in addresses] != self._phases:
            return None
        for i, value in self._others:
            given = values[i]
            if given is not value and not _same(given, value):
                return None
        return tensors, addresses


def _same(given: Any, value: Any) -> bool:
    """Whether two plain values make one form: True and 1 do not."""
    return (
        type(given) is type(value)
        and bool(given == value)
        and (type(value) is not tuple or [*map(type, given)] == [*map(type, value)])
    )


def check_of(tensors: list[torch.Tensor]) -> Callable[..., bool] | None:
    """Tells of as many tensors whether they are like these; None where this torch cannot."""
    # In a mode a call may be watched that is not watched without it.
    if TensorGuards is None or torch._C._len_torch_dispatch_stack():
        return None
    first: dict[int, int] = {}
    places = [first.setdefault(id(one), i) for i, one in enumerate(tensors)]
    owners = sorted(set(places))
    unique = [tensors[i] for i in owners]
    try:
        check = TensorGuards(*unique, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        if not check(*unique):
            return None
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None
    if len(unique) == len(tensors):
        return check
    pairs = [(i, of) for i, of in enumerate(places) if i != of]
    take = operator.itemgetter(*owners)
    single = len(owners) == 1

    def alike(*given: torch.Tensor) -> bool:
        """Where one tensor stands twice, so has it to in the call."""
        if not all(given[i] is given[of] for i, of in pairs):
            return False
        return bool(check(take(given)) if single else check(*take(given)))

    return alike
