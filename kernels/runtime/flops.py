"""What ``torch.utils.flop_counter`` counts for each operator: what it counts for torch's own of the
same shapes, masks left out of account. No value is read, which would wait for the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils import flop_counter


def _attention(of: Callable[..., int], q: Any, k: Any, v: Any, **_: Any) -> int:
    batch, rows, heads, head_dim = q.shape
    return of(batch * heads * rows * k.shape[1], head_dim, v.shape[3])


def _varlen(of: Callable[..., int], q: Any, v: Any, **given: Any) -> int:
    return of(q.shape[1] * _pairs(q, **given), q.shape[2], v.shape[2])


def _pairs(q: Any, k: Any, cu_q: Any, max_q: int, max_k: int, **_: Any) -> int:
    """Of queries and keys of one sequence: as many as there are where all are alike, else the most
    there can be for these shapes. torch reads the lengths; fake ones it takes for the longest."""
    longest = (cu_q.shape[0] - 1) * max_q * max_k
    return min(longest, q.shape[0] * max_k, k.shape[0] * max_q)


def _kvcache(q: Any, k_cache: Any, v_cache: Any, length: int, added: int, **given: Any) -> int:
    """Over all keys there is room for, or as many as the one length that the host knows; packed
    queries, too."""
    *queries, heads, head_dim = q.shape
    table = given["table"]
    room = k_cache.shape[1] * (1 if table is None else table.shape[1])
    known = given["seqlens"] is None and given.get("cu_new") is None
    keys = min(length + added, room) if known else room
    if given.get("qv") is not None:  # values are keys, too
        head_dim += v_cache.shape[3]
    return _forward(math.prod(queries) * heads * keys, head_dim, v_cache.shape[3])


def _forward(scores: int, head_dim: int, head_dim_v: int) -> int:
    return 2 * scores * (head_dim + head_dim_v)


def _backward(scores: int, head_dim: int, head_dim_v: int) -> int:
    """Scores once more, then the gradients of weights, v, q and k."""
    return 2 * scores * (3 * head_dim + 2 * head_dim_v)


def _product(a: Any, **given: Any) -> int:
    """Of rows in groups too: each is multiplied by one matrix."""
    other = given["dout" if "dout" in given else "b"]
    return 2 * a.shape[0] * a.shape[1] * other.shape[-1]


FORMULAS: dict[str, Callable[..., int]] = {
    "flash_attention": partial(_attention, _forward),
    "flash_attention_fp8": partial(_attention, _forward),
    "flash_attention_backward": partial(_attention, _backward),
    "flash_attention_varlen": partial(_varlen, _forward),
    "flash_attention_varlen_fp8": partial(_varlen, _forward),
    "flash_attention_varlen_backward": partial(_varlen, _backward),
    "flash_attention_kvcache": _kvcache,
    "matmul": _product,
    "matmul_into": _product,
    "matmul_fp8": _product,
    "matmul_fp8_into": _product,
    "grouped_matmul": _product,
    "grouped_matmul_weights": _product,
}


def _named(operator: Any, formula: Callable[..., int]) -> Callable[..., int]:
    """``formula``, of arguments by their names, as torch calls it: in the operator's order."""
    names = [one.name for one in operator.default._schema.arguments]

    def count(*arguments: Any, **named: Any) -> int:
        return formula(**dict(zip(names, arguments, strict=False)), **named)

    return count


def register() -> None:
    """Tells torch of the formulas. A counter copies those it finds when it is made: one at work
    gets ours now."""
    for name, formula in FORMULAS.items():
        operator = getattr(torch.ops.warpwatch, name)
        if operator not in flop_counter.flop_registry:
            flop_counter.register_flop_formula(operator, get_raw=True)(_named(operator, formula))
    ours = {getattr(torch.ops.warpwatch, name) for name in FORMULAS}
    for i in range(torch._C._len_torch_dispatch_stack()):
        counter = getattr(torch._C._get_dispatch_stack_at(i), "counter", None)
        if isinstance(counter, flop_counter.FlopCounterMode):
            counter.flop_registry |= {one: flop_counter.flop_registry[one] for one in ours}
