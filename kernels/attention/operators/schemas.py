"""How torch knows attention's operators: each option of scores is written once, in ``Options``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch

from kernels.attention.common.options import NAMES, Options

Body = TypeVar("Body", bound=Callable[..., Any])

MASK = "bool causal, SymInt causal_offset, SymInt? left_offset, float scale"
IN_SEQUENCES = "bool causal, SymInt right, SymInt? left, float scale"
SEQUENCES = "Tensor cu_q, Tensor cu_k, SymInt max_q, SymInt max_k"
SCALES = "Tensor? q_scale, Tensor? k_scale, Tensor? v_scale"
QKV = "Tensor q, Tensor k, Tensor v"
_KINDS = {"float | None": "float?", "int | None": "SymInt?", "torch.Tensor | None": "Tensor?"}


def scores(names: Sequence[str] = NAMES, *, exact: bool = True) -> str:
    """``Options`` of these names; ``exact`` is what ``exact_gradients`` are by default."""
    kinds = {one.name: _KINDS.get(str(one.type), "bool") for one in fields(Options)}
    return ", ".join(
        f"{kinds[name]} {name}={exact if name == 'exact_gradients' else None}" for name in names
    )


def options_of(
    arguments: Sequence[Any], names: Sequence[str] = NAMES, **named: Any
) -> tuple[Options, bool]:
    """Options, and whether the log-sum-exp is wanted, of what torch hands to a forward pass: it
    leaves out what stands last and is a default."""
    known = (*names, "return_lse")
    given = dict(zip(known, arguments, strict=False))
    given |= {name: one for name, one in named.items() if name in known}
    return_lse = given.pop("return_lse", True)
    return Options(**{"exact_gradients": True, **given}), return_lse


def operator(
    name: str, *takes: str, returns: str = "(Tensor, Tensor)", mutates: Sequence[str] = ()
) -> Callable[[Body], Any]:
    """Make an operator of torch of a function."""
    schema = f"({', '.join(takes)}) -> {returns}"
    return torch.library.custom_op(name, mutates_args=mutates, schema=schema)
