"""Recognises a call that is like one of the latest, in less time than its form is written down.

torch has a check of many tensors at once, in C++, which its compiler puts before compiled code:
type, dtype, device, shape, strides, whether gradients are wanted, and every mode that the
dispatcher knows. Where this torch has none, or other arguments, every call's form is looked up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .source import Names, function, together

try:
    from torch._C._dynamo import guards
except ImportError:  # of another torch
    TensorGuards: Any = None
else:
    TensorGuards = getattr(guards, "TensorGuards", None)

# A tensor's address counts modulo this: what a multiprocessor asks memory for at once.
LINE = 128

# For a call that is another one: a result may be None.
OTHER = object()


def recognised(
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    check: Callable[..., bool],
) -> Callable[..., Any]:
    """``run`` for calls that are like the one of ``args`` and ``kwargs``.

    Args:
        run: Takes tensors and their addresses.
        args: Of the call that was served.
        kwargs: Likewise.
        check: Tells of as many tensors whether they are like those of that call.

    Returns:
        A function of other ``args`` and ``kwargs``: the result, or ``OTHER`` where they differ.
    """
    values, names, split = (*args, *kwargs.values()), Names(), len(args)
    places = [i for i, one in enumerate(values) if isinstance(one, torch.Tensor)]
    other = f"return {names.of(OTHER)}"

    def every(kind: str, numbers: Iterable[int]) -> str:
        return together(f"{kind}{i}" for i in numbers)

    others = f"(*kwargs,) != {names.of(tuple(kwargs))}" if kwargs else "kwargs"
    lines = [f"if len(args) != {names.of(split)} or {others}: {other}"]
    lines.append(f"{every('v', range(split))} = args")
    if kwargs:
        lines.append(f"{every('v', range(split, len(values)))} = kwargs.values()")
    lines.append(f"if not {names.of(check)}{every('v', places)}: {other}")
    lines += [f"a{i} = v{i}.data_ptr()" for i in places]
    phases, within = [values[i].data_ptr() % LINE for i in places], names.of(LINE - 1)
    if any(phases):
        found = [f"a{i} & {within} != {names.of(x)}" for i, x in zip(places, phases, strict=True)]
        lines.append(f"if {' or '.join(found)}: {other}")
    else:
        lines.append(f"if ({' | '.join(f'a{i}' for i in places)}) & {within}: {other}")
    for i, one in enumerate(values):
        if not isinstance(one, torch.Tensor):
            value, same = names.of(one), names.of(_same)
            lines.append(f"if v{i} is not {value} and not {same}(v{i}, {value}): {other}")
    lines.append(f"return {names.of(run)}({every('v', places)}, {every('a', places)})")
    return function("args, kwargs", lines, names)


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
