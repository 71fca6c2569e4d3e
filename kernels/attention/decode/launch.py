"""How decoding over a key-value cache is cut, and its launches: the kernel, then what combines."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.attention.common.addressing import spans
from kernels.attention.common.columns import columns
from kernels.attention.common.numerics import e4m3
from kernels.runtime import targets
from kernels.runtime.launch import noted

from . import combine as kvcache_combine
from .cache import Cache
from .kernel import attention_kvcache
from .rotary import Rotary
from .tuning import alone, choose, choose_splits

LOG2_E = 1.4426950408889634


def launch(
    q: torch.Tensor,
    cache: Cache,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    added: int,
    rotary: Rotary | None,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    softcap: float | None,
    slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
    num_splits: int,
    cu_q: torch.Tensor | None = None,
    max_q: int = 0,
    cu_new: torch.Tensor | None = None,
    chunk: int | None = None,
) -> None:
    """Fill ``out`` and ``lse`` for checked arguments. Behind the lengths of ``cache`` are ``added``
    keys more, with ``cu_new`` as many in all, and ``rotary`` turns the queries. With ``cu_q`` q and
    out are (1, tokens, ...), lse is (heads, tokens), and no sequence has more than ``max_q``."""
    batch, seqlen_q, heads, head_dim = q.shape
    tokens = None
    if cu_q is not None:
        # Programs, parts and tiles are chosen by it: a bound far above the tokens costs nothing.
        batch, seqlen_q, tokens = cu_q.numel() - 1, min(max_q, seqlen_q), seqlen_q
    kv_heads, head_dim_v = cache.v.shape[2:]
    group = heads // kv_heads
    rows = seqlen_q * group
    natural = q.dtype == torch.float32
    unit = 1.0 if natural else LOG2_E
    with targets.on_device_of(q, "q"):
        target = targets.current()
        way = e4m3.way(cache.k.dtype, target)
        in_pairs = way != "" and cache.has_pairs
        widest = max(head_dim, head_dim_v)
        many = targets.multiprocessors()
        config = choose(target, widest, q.dtype, rows, way != "", in_pairs, tokens is not None)
        in_pairs = in_pairs and config.turned
        k, v = cache.bits if way in ("fn", "fnuz") else (cache.k, cache.v)
        if in_pairs:
            k, v = cache.pairs
        if target.has_wgmma and copied_ahead(cache.v) and not copied_ahead(cache.k):
            # Keys through registers beside values copied ahead: ptxas 12.8 (triton 3.6 and 3.7)
            # takes half of the keys' addresses from what nothing wrote (configs.columns).
            config = replace(config, num_stages=1, alone=0)
        block_m = config.block_m(rows)
        block_d, block_dv = columns(target, q.dtype, head_dim, head_dim_v)
        blocks = -(-rows // block_m)
        tiles = batch * kv_heads
        # Lengths that are known to be the same, of caches that were measured so.
        known = cache.seqlens is None and cache.leftpad is None and cu_new is None
        equal = known and left is None and chunk is None and not way
        if not num_splits and equal and copied_ahead(cache.k) and copied_ahead(cache.v):
            whole = alone(config, tiles, rows, cache.page_size, many)
            if whole is not None:
                config, num_splits = whole, 1
        if not num_splits:
            seen = cache.capacity if left is None else min(cache.capacity, seqlen_q + right - left)
            seen = seen if chunk is None else min(seen, chunk + seqlen_q)
            num_splits = choose_splits(
                tiles * blocks, -(-seen // config.block_n), many * config.per_sm
            )
        after = bool(added) and target.overlaps_launches
        part = stats = None
        if num_splits > 1:
            # Packed, by the tokens there are and not by the longest sequence.
            shape = (tiles, num_splits, rows)
            if tokens is not None:
                shape = (kv_heads, num_splits, tokens * group)
            part = q.new_empty((*shape, head_dim_v), dtype=torch.float32)
            stats = q.new_empty((2, *shape), dtype=torch.float32)
        noted(attention_kvcache, (blocks * num_splits * tiles,))(
            q,
            k,
            v,
            out,
            lse,
            part,
            stats,
            cache.k_scale,
            cache.v_scale,
            slopes,
            sinks,
            *(rotary.tables if rotary else (None, None)),
            cache.seqlens,
            cache.leftpad,
            cache.batch_idx,
            cache.table,
            cu_q,
            cu_new,
            cache.length,
            added,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            *out.stride(),
            *cache.strides,
            *cache.scale_strides,
            None if cache.leftpad is None else cache.leftpad.stride(0),
            *((None, None) if slopes is None else slopes.stride()),
            *(rotary.strides if rotary else (None,) * 4),
            rotary.positions if rotary else None,
            kv_heads,
            num_splits,
            seqlen_q,
            tokens,
            cache.capacity,
            right,
            left,
            chunk,
            scale * unit,
            None if softcap is None else softcap * unit,
            GROUP=group,
            HEAD_DIM=head_dim,
            HEAD_DIM_V=head_dim_v,
            BLOCK_M=block_m,
            BLOCK_N=config.block_n,
            BLOCK_D=block_d,
            BLOCK_DV=block_dv,
            PAGE_SIZE=cache.page_size,
            CAUSAL=causal,
            NATURAL=natural,
            ROTARY=rotary.columns if rotary else 0,
            INTERLEAVED=rotary is not None and rotary.interleaved,
            FP8=way,
            PAIRS=in_pairs,
            TURNED=config.turned,
            EARLY=part is not None and target.overlaps_launches,
            AFTER=after,
            FAR=spans(k, config.block_n) or spans(v, config.block_n) or spans(q, 0),
            **config.options(),
            **({"launch_pdl": True} if after else {}),
        )
        if part is None or stats is None:
            return
        kvcache_combine.launch(
            part,
            stats,
            out,
            lse,
            sinks,
            cu_q,
            tiles=tiles,
            rows=rows,
            group=group,
            natural=natural,
            after=target.overlaps_launches,
            programs=many,
        )


def copied_ahead(x: torch.Tensor) -> bool:
    """Whether Triton knows that rows begin at multiples of 16 elements, and copies them into shared
    memory while it computes."""
    return x.stride(-1) == 1 and all(stride % 16 == 0 for stride in x.stride()[:-1])
