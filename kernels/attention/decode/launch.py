"""How decoding over a key-value cache is cut, and its launches: the kernel, then what combines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels.attention.common.addressing import Layout, spans
from kernels.attention.common.columns import columns
from kernels.attention.common.numerics import e4m3
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.runtime import targets
from kernels.runtime.launch import noted
from kernels.runtime.targets import Target

from . import combine as kvcache_combine
from .arguments import given
from .cache import Cache
from .kernel import attention_kvcache
from .rotary import Rotary
from .tuning import KvcacheConfig, alone, choose, choose_splits


@dataclass(frozen=True, eq=False)
class Decoding:
    """The options of queries over a cache: ``added`` keys more than it holds, with ``cu_new`` as
    many in all, ``rotary`` for the queries, masks and options as decode/kernel.py has them, and
    into how many parts keys are split, 0 for a choice. With ``cu_q`` queries are packed, and no
    sequence has more than ``max_q``."""

    causal: bool
    right: int
    left: int | None
    scale: float
    added: int = 0
    rotary: Rotary | None = None
    softcap: float | None = None
    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    num_splits: int = 0
    cu_q: torch.Tensor | None = None
    max_q: int = 0
    cu_new: torch.Tensor | None = None
    chunk: int | None = None
    qv: torch.Tensor | None = None


@dataclass(frozen=True)
class _Cut:
    """How programs share it: ``batch`` sequences of ``seqlen_q`` queries, or ``tokens`` in all,
    ``tiles`` of ``rows``, in blocks, each in parts of keys. ``way`` is how a cache of fp8 is
    read."""

    config: KvcacheConfig
    num_splits: int
    seqlen_q: int
    tokens: int | None
    kv_heads: int
    rows: int
    tiles: int
    block_m: int
    way: str
    in_pairs: bool


def _cut(q: torch.Tensor, cache: Cache, asked: Decoding, target: Target, many: int) -> _Cut:
    """For ``many`` processors of ``target``."""
    batch, seqlen_q, heads, head_dim = q.shape
    tokens = None
    if asked.cu_q is not None:
        # Programs, parts and tiles are chosen by it: a bound far above the tokens costs nothing.
        batch, seqlen_q, tokens = asked.cu_q.numel() - 1, min(asked.max_q, seqlen_q), seqlen_q
    kv_heads, head_dim_v = cache.v.shape[2:]
    rows, tiles = seqlen_q * (heads // kv_heads), batch * kv_heads
    way = e4m3.way(cache.k.dtype, target)
    in_pairs = way != "" and cache.has_pairs
    widest = max(head_dim, head_dim_v)
    config = choose(target, widest, q.dtype, rows, way != "", in_pairs, tokens is not None)
    if asked.qv is not None:
        config = replace(config, turned=False)
    if target.has_wgmma and copied_ahead(cache.v) and not copied_ahead(cache.k):
        # Keys through registers next to values copied ahead: ptxas 12.8 (triton 3.6 and 3.7)
        # takes half of the keys' addresses from what nothing wrote (configs.columns).
        config = replace(config, num_stages=1, alone=0)
    block_m, in_pairs = config.block_m(rows), in_pairs and config.turned
    left, chunk, num_splits = asked.left, asked.chunk, asked.num_splits
    # Lengths that are known to be the same, of caches that were measured so.
    known = cache.seqlens is None and cache.leftpad is None and asked.cu_new is None
    equal = known and left is None and chunk is None and not way
    if not num_splits and equal and copied_ahead(cache.k) and copied_ahead(cache.v):
        whole = alone(config, tiles, rows, cache.page_size, many)
        if whole is not None:
            config, num_splits = whole, 1
    if not num_splits:
        right = asked.right
        seen = cache.capacity if left is None else min(cache.capacity, seqlen_q + right - left)
        seen = seen if chunk is None else min(seen, chunk + seqlen_q)
        programs = tiles * -(-rows // block_m)
        num_splits = choose_splits(programs, -(-seen // config.block_n), many * config.per_sm)
    return _Cut(config, num_splits, seqlen_q, tokens, kv_heads, rows, tiles, block_m, way, in_pairs)


def launch(
    q: torch.Tensor, cache: Cache, out: torch.Tensor, lse: torch.Tensor, asked: Decoding
) -> None:
    """Fill ``out`` and ``lse`` for checked arguments. Of packed queries q, ``asked.qv`` and
    out are (1, tokens, ...), lse is (heads, tokens)."""
    heads, head_dim = q.shape[2:]
    head_dim_v, rotary, qv = cache.v.shape[3], asked.rotary, asked.qv
    group, natural = heads // cache.k.shape[2], q.dtype == torch.float32
    unit = 1.0 if natural else LOG2_E
    names = ("slopes", "sinks", "cu_q", "cu_new")
    more = given(cache, rotary, **{name: getattr(asked, name) for name in names})
    with targets.on_device_of(q, "q"):
        target = targets.current()
        cut = _cut(q, cache, asked, target, targets.multiprocessors())
        config, part, stats = cut.config, None, None
        if cut.num_splits > 1:
            # Packed by the tokens there are and not by the longest sequence.
            shape = (cut.tiles, cut.num_splits, cut.rows)
            if cut.tokens is not None:
                shape = (cut.kv_heads, cut.num_splits, cut.tokens * group)
            part = q.new_empty((*shape, head_dim_v), dtype=torch.float32)
            stats = q.new_empty((2, *shape), dtype=torch.float32)
        k, v = cache.bits if cut.way in ("fn", "fnuz") else (cache.k, cache.v)
        k, v = cache.pairs if cut.in_pairs else (k, v)
        block_d, block_dv = columns(target, q.dtype, head_dim, head_dim_v)
        far = any(spans(one, config.block_n) for one in (k, v))
        far = far or any(spans(one, 0) for one in (q, qv) if one is not None)
        after = bool(asked.added) and target.overlaps_launches
        noted(attention_kvcache, (-(-cut.rows // cut.block_m) * cut.num_splits * cut.tiles,))(
            q=q,
            qv=qv,
            k=k,
            v=v,
            out=out,
            lse=lse,
            part=part,
            stats=stats,
            given=more,
            length=cache.length,
            added=asked.added,
            strides=Layout.of(q=q, qv=qv, k=k, v=v, out=out),
            positions=rotary.positions if rotary else None,
            kv_heads=cut.kv_heads,
            splits=cut.num_splits,
            seqlen_q=cut.seqlen_q,
            tokens=cut.tokens,
            capacity=cache.capacity,
            sight=(asked.right, asked.left, asked.chunk),
            scale=asked.scale * unit,
            softcap=None if asked.softcap is None else asked.softcap * unit,
            GROUP=group,
            HEAD_DIM=head_dim,
            HEAD_DIM_V=head_dim_v,
            BLOCK_M=cut.block_m,
            BLOCK_N=config.block_n,
            BLOCK_D=block_d,
            BLOCK_DV=block_dv,
            PAGE_SIZE=cache.page_size,
            CAUSAL=asked.causal,
            NATURAL=natural,
            ROTARY=rotary.columns if rotary else 0,
            INTERLEAVED=rotary is not None and rotary.interleaved,
            FP8=cut.way,
            PAIRS=cut.in_pairs,
            TURNED=config.turned,
            EARLY=part is not None and target.overlaps_launches,
            AFTER=after,
            FAR=far,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
            **({"launch_pdl": True} if after else {}),
        )
        if part is not None and stats is not None:
            sizes = {"tiles": cut.tiles, "rows": cut.rows, "group": group}
            kvcache_combine.launch(part, stats, out, lse, asked.sinks, asked.cu_q, **sizes)


def copied_ahead(x: torch.Tensor) -> bool:
    """Whether Triton knows that rows begin at multiples of 16 elements, and copies them into shared
    memory while it computes."""
    return x.stride(-1) == 1 and all(stride % 16 == 0 for stride in x.stride()[:-1])
