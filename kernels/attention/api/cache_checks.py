"""Checks of attention over a key-value cache: one error says what was expected and what came."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.numerics import e4m3
from kernels.attention.decode.tuning import MAX_SPLITS
from kernels.runtime import checks

LAYOUT = "(batch, seqlen_q, heads, head_dim)"
PACKED_LAYOUT = "(tokens, heads, head_dim)"
CACHE_LAYOUT = "(batch, seqlen_cache, kv_heads, head_dim)"
PAGED_LAYOUT = "(num_pages, page_size, kv_heads, head_dim)"
NEW_LAYOUT = "(batch, seqlen_new, kv_heads, head_dim)"
PACKED_NEW_LAYOUT = "(tokens_new, kv_heads, head_dim)"


def check_packed(q: Any, cu_q: Any, max_q: Any) -> int:
    """``max_q`` as operators take it."""
    if cu_q is None:
        if max_q is not None:
            raise ValueError(
                f"max_seqlen_q: expected None without cu_seqlens_q, got {max_q!r}; of a q that is "
                f"{LAYOUT} the longest sequence has seqlen_q"
            )
        return 0
    checks.tensor("q", q, rank=3, layout=PACKED_LAYOUT)
    shapes.check_lengths(q, cu_seqlens_q=cu_q)
    return shapes.longest("max_seqlen_q", max_q)


def as_sequences(q: Any, cu_q: torch.Tensor | None, in_fp8: bool) -> Any:
    """q as (batch, seqlen_q, heads, head_dim) for checks of shapes, which ask for one dtype."""
    if cu_q is not None:
        q = q.unsqueeze(0).expand(cu_q.shape[0] - 1, -1, -1, -1)
    return q.new_empty((), dtype=torch.bfloat16).expand(q.shape) if in_fp8 else q


def multiplied(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    return a if b is None else b if a is None else a * b


def check_cache(
    q: Any, k: Any, v: Any, seqlens: Any, batch_idx: Any, table: Any, num_splits: Any
) -> tuple[torch.Tensor | int | None, int]:
    """``seqlens`` and ``num_splits`` as operators take them."""
    layout = CACHE_LAYOUT if table is None else PAGED_LAYOUT
    for name, value, shape in (("q", q, LAYOUT), ("k_cache", k, layout), ("v_cache", v, layout)):
        checks.tensor(name, value, rank=4, layout=shape)
    refuse_gradients(q=q, k_cache=k, v_cache=v)
    if table is not None:
        checks.integers("block_table", table, rank=2, layout="(batch, max_pages)", q=q)
        if batch_idx is None:
            _entries("block_table", table, q)
        if not k.shape[1]:
            raise ValueError(
                f"k_cache: expected a page_size of at least 1, got 0; layout is {PAGED_LAYOUT}"
            )
        if not table.shape[0]:
            raise ValueError(
                "block_table: expected a row of pages at least, got none; layout is (batch, "
                "max_pages)"
            )
    if isinstance(seqlens, torch.Tensor):
        of_sequences(q, cache_seqlens=seqlens)
    elif seqlens is not None:
        length = checks.whole(seqlens)
        if length is None or checks.negative(length):
            raise TypeError(
                "cache_seqlens: expected an int32 tensor (batch,), one int for all or None, got "
                f"{seqlens!r}"
            )
        seqlens = length
    of_sequences(q, cache_batch_idx=batch_idx)
    # One row of the cache stands for each sequence: pages and rows are not the batch's own.
    apart = table is not None or batch_idx is not None
    if apart:
        if not 0 < k.shape[0] == v.shape[0]:
            raise ValueError(
                f"v_cache: expected as many pages or rows as k_cache and at least one, got "
                f"{v.shape[0]} and {k.shape[0]}"
            )
        k, v = (one[:1].expand(q.shape[0], -1, -1, -1) for one in (k, v))
    if k.dtype in e4m3.DTYPES:
        checks.same_dtype_and_device("k_cache", k, v_cache=v)
        checks.same_device("q", q, k_cache=k)
        # What follows is about shapes, and asks for one dtype.
        k, v = (q.new_empty(()).expand(one.shape) for one in (k, v))
    elif k.dtype in e4m3.E5M2:
        raise ValueError(
            "k_cache: expected the dtype of q, float8_e4m3fn or float8_e4m3fnuz, got "
            f"{str(k.dtype).removeprefix('torch.')}; convert both caches with "
            "k_cache.float().to(torch.float8_e4m3fn)"
        )
    names = ("q", "k_cache", "v_cache")
    shapes.check(q, k, v, names, layout=layout, head_axis=2, most_v=shapes.MAX_HEAD_DIM_V)
    splits = checks.whole(num_splits)
    if splits is None or not 0 <= splits <= MAX_SPLITS:
        raise ValueError(
            f"num_splits: expected 1 to {MAX_SPLITS}, or 0 to have it chosen, got {num_splits!r}"
        )
    return seqlens, splits


def takes_fp8(q: torch.Tensor, k_cache: Any, q_scale: Any) -> bool:
    """Whether q is e4m3, over a cache that is."""
    if not isinstance(q, torch.Tensor) or q.dtype not in e4m3.DTYPES:
        if q_scale is not None:
            kind = q.dtype if isinstance(q, torch.Tensor) else type(q).__name__
            raise ValueError(
                "q_scale: expected None unless q is float8_e4m3fn or float8_e4m3fnuz, and q is "
                f"{str(kind).removeprefix('torch.')}; multiply q by it"
            )
        return False
    if isinstance(k_cache, torch.Tensor) and k_cache.dtype not in e4m3.DTYPES:
        raise ValueError(
            "q: expected the dtype of k_cache, which is "
            f"{str(k_cache.dtype).removeprefix('torch.')}, got "
            f"{str(q.dtype).removeprefix('torch.')}; multiply it by its scale and convert it with "
            "q.to(k_cache.dtype)"
        )
    return True


def check_qv(q: torch.Tensor, qv: Any, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    if qv is None:
        return
    checks.tensor("qv", qv, rank=q.dim(), layout="as q, of the values' head dim")
    if k_cache.dtype in e4m3.DTYPES:
        raise NotImplementedError(
            "qv: expected None with an fp8 cache, got a tensor; keep the caches in 16 bits"
        )
    checks.same_dtype_and_device("q", q, qv=qv)
    want = (*q.shape[:-1], v_cache.shape[3])
    if tuple(qv.shape) != want:
        raise ValueError(
            f"qv: expected shape {want}, that of q with the head dim of v_cache, got "
            f"{tuple(qv.shape)}"
        )
    refuse_gradients(qv=qv)


def check_new(
    q: Any, dtype: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, seqlens: Any, cu_new: Any
) -> None:
    """Beside q, which is of ``dtype`` or will be."""
    if (k is None) != (v is None):
        raise ValueError(
            f"{'k' if k is None else 'v'}: expected both k and v or neither, got None with the "
            "other"
        )
    if k is None:
        if cu_new is not None:
            raise ValueError(
                "cu_seqlens_k_new: expected None without k and v, got a tensor; it says how these "
                "are packed"
            )
        return
    rank, layout = (4, NEW_LAYOUT) if cu_new is None else (3, PACKED_NEW_LAYOUT)
    if cu_new is not None:
        shapes.check_lengths(q, cu_seqlens_k_new=cu_new)
        if cu_new.shape[0] != q.shape[0] + 1:
            raise ValueError(
                f"cu_seqlens_k_new: expected {q.shape[0] + 1} entries, one more than q has "
                f"sequences, got {cu_new.shape[0]}"
            )
    for name, value, cache in (("k", k, k_cache), ("v", v, v_cache)):
        checks.tensor(name, value, rank=rank, layout=layout)
        checks.same_dtype_and_device("q", q.new_empty((), dtype=dtype), **{name: value})
        want = (*q.shape[: rank - 3], k.shape[-3], *cache.shape[2:])
        if tuple(value.shape) != want:
            raise ValueError(
                f"{name}: expected shape {want} as q and {name}_cache ask for, got "
                f"{tuple(value.shape)}; layout is {layout}"
            )
    refuse_gradients(k=k, v=v)
    checks.writable("k_cache", k_cache)
    checks.writable("v_cache", v_cache)
    if seqlens is None:
        raise ValueError(
            "cache_seqlens: expected how many keys the cache holds where k is given, got None; by "
            "default the cache is full"
        )


def check_rotary(q: Any, k: Any, cos: Any, sin: Any, rows: int) -> None:
    if cos is None and sin is None:
        return
    layout = "(positions, rotary_dim / 2)"
    for name, value in (("rotary_cos", cos), ("rotary_sin", sin)):
        checks.tensor(name, value, rank=2, layout=layout)
        checks.dtype(name, value, shapes.DTYPES)
        checks.same_device("q", q, **{name: value})
        if value.shape[0] < rows or not 1 <= value.shape[1] <= q.shape[3] // 2:
            raise ValueError(
                f"{name}: expected {rows} positions at least, as the cache has room for, and at "
                f"most {q.shape[3] // 2} angles, got {tuple(value.shape)}; layout is {layout}"
            )
    if sin.shape[1] != cos.shape[1]:
        raise ValueError(
            f"rotary_sin: expected {cos.shape[1]} angles as rotary_cos has, got {sin.shape[1]}"
        )
    if k is None:
        raise ValueError(
            "rotary_cos: expected None without new keys, got a tensor; pass k and v, which are "
            "turned as well, or turn q beforehand"
        )


def check_scales(k_cache: torch.Tensor, batch: int, **scales: Any) -> None:
    heads = k_cache.shape[2]

    def expected() -> str:
        shapes = f"(), ({heads},) or ({batch}, {heads})"
        return f"a float32 tensor of shape {shapes}, one value a key head"

    for name, value in scales.items():
        if value is None:
            continue
        if isinstance(value, torch.Tensor) and k_cache.dtype not in e4m3.DTYPES:
            raise ValueError(
                f"{name}: expected None unless the caches are float8_e4m3fn or float8_e4m3fnuz, "
                f"and k_cache is {str(k_cache.dtype).removeprefix('torch.')}"
            )
        known = ((), (1,), (heads,), (batch, heads))
        checks.scale(name, value, expected, *known, k_cache=k_cache)


def refuse_gradients(**values: torch.Tensor | None) -> None:
    checks.no_tangent(**values)
    for name, value in values.items():
        if value is not None and torch.is_grad_enabled() and value.requires_grad:
            raise NotImplementedError(
                f"{name}: expected no gradient to be requested, got requires_grad; decode under "
                "torch.no_grad(), or call flash_attention, which is differentiable"
            )


def of_sequences(q: torch.Tensor, **values: Any) -> None:
    """Of one entry a sequence of ``q`` each, or None."""
    for name, value in values.items():
        if value is not None:
            checks.integers(name, value, rank=1, layout="(batch,)", q=q)
            _entries(name, value, q)


def _entries(name: str, value: torch.Tensor, q: torch.Tensor) -> None:
    if value.shape[0] != q.shape[0]:
        raise ValueError(
            f"{name}: expected {q.shape[0]} entries as q has sequences, got {value.shape[0]}"
        )
