"""What the kernels of decoding take together: optional tensors, and the strides of all."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from kernels.attention.common.addressing import HeadStrides, Strides

from .cache import Cache
from .rotary import Rotary


class Given(NamedTuple):
    """Tensors that a call may have besides queries, keys, values and results, as one argument of a
    kernel; None in place of the others."""

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


class MatrixStrides(NamedTuple):
    """From a row to the next, and from a column."""

    row: Any
    column: Any


class GivenStrides(NamedTuple):
    """Strides of tensors by their names, as one argument of a kernel. Those of a scale have none of
    the batch where all sequences share it. ``end`` as ``Layout`` has it."""

    q: Any = None
    qv: Any = None
    k: Any = None
    v: Any = None
    k_cache: Any = None
    v_cache: Any = None
    out: Any = None
    seqlens: Any = None
    batch_idx: Any = None
    table: Any = None
    k_scale: Any = None
    v_scale: Any = None
    leftpad: Any = None
    slopes: Any = None
    cos: Any = None
    sin: Any = None
    end: Any = None


def given(cache: Cache, rotary: Rotary | None, **others: torch.Tensor | None) -> Given:
    """What ``cache`` and ``rotary`` have, and ``others`` by name."""
    if rotary is not None:
        others |= {"cos": rotary.cos, "sin": rotary.sin, "turned_from": rotary.first}
    names = ("k_scale", "v_scale", "seqlens", "leftpad", "batch_idx", "table")
    return Given(**{name: getattr(cache, name) for name in names}, **others)


def strides_of(given: Given, **rows: torch.Tensor | None) -> GivenStrides:
    """Those of ``given``, and of (batch, rows, heads, dim) by name."""
    found: dict[str, Any] = {
        name: Strides(*one.stride()) for name, one in rows.items() if one is not None
    }
    for name, one in given._asdict().items():
        if one is None:
            continue
        if name in ("seqlens", "batch_idx", "leftpad"):
            found[name] = one.stride(0)
        elif name in ("table", "cos", "sin"):
            found[name] = MatrixStrides(*one.stride())
        elif name in ("k_scale", "v_scale"):
            by_batch = one.stride(0) if one.dim() == 2 else None
            found[name] = HeadStrides(by_batch, one.stride(-1) if one.numel() > 1 else 0)
        elif name == "slopes":
            found[name] = HeadStrides(*one.stride())
    return GivenStrides(**found)
