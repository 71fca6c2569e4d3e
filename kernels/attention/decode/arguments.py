"""What the kernels of decoding take together: optional tensors with their strides."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .cache import Cache
from .rotary import Rotary


class Strided(NamedTuple):
    """A tensor with its strides. None of them is None: Triton 3.6 compares no tuple that holds
    one."""

    at: Any
    row: Any
    column: Any = 0


class Given(NamedTuple):
    """Tensors that a call may have besides queries, keys, values and results, as one argument of a
    kernel; None in place of the others. What has strides of its own is ``Strided``; ``end`` as
    ``Layout`` has it."""

    k_scale: Any = None
    v_scale: Any = None
    slopes: Any = None
    sinks: Any = None
    cos: Any = None
    sin: Any = None
    turned_from: Any = None
    seqlens: Any = None
    leftpad: Any = None
    batch_idx: Any = None
    table: Any = None
    cu_q: Any = None
    cu_new: Any = None
    end: Any = None


def given(cache: Cache, rotary: Rotary | None, **others: torch.Tensor | None) -> Given:
    """What ``cache`` and ``rotary`` have, and ``others`` by name."""
    if rotary is not None:
        others |= {"cos": rotary.cos, "sin": rotary.sin, "turned_from": rotary.first}
    names = ("k_scale", "v_scale", "seqlens", "leftpad", "batch_idx", "table")
    others |= {name: getattr(cache, name) for name in names}
    return Given(**{name: _strided(name, one) for name, one in others.items()})


def _strided(name: str, one: torch.Tensor | None) -> Any:
    if one is None or name in ("sinks", "turned_from", "cu_q", "cu_new"):
        return one
    if name in ("k_scale", "v_scale"):
        by_batch = one.stride(0) if one.dim() == 2 else 0
        return Strided(one, by_batch, one.stride(-1) if one.numel() > 1 else 0)
    return Strided(one, *one.stride())
