"""Attention of few queries over a key-value cache: what it accepts."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import options, shapes
from kernels.attention.common.numerics import e4m3
from kernels.attention.decode.tuning import MAX_SPLITS
from kernels.attention.operators import kvcache as operators
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared

from . import chunks

LAYOUT = "(batch, seqlen_q, heads, head_dim)"
PACKED_LAYOUT = "(tokens, heads, head_dim)"
CACHE_LAYOUT = "(batch, seqlen_cache, kv_heads, head_dim)"
PAGED_LAYOUT = "(num_pages, page_size, kv_heads, head_dim)"
NEW_LAYOUT = "(batch, seqlen_new, kv_heads, head_dim)"
PACKED_NEW_LAYOUT = "(tokens_new, kv_heads, head_dim)"


@prepared
def flash_attention_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    *,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = None,
    softcap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    num_splits: int = 0,
    return_lse: bool = False,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    rotary_seqlens: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of the newest tokens over the keys a cache holds, for decoding.

    It has the arguments of FlashAttention's ``flash_attn_with_kvcache``. Nothing waits for the
    device, so CUDA graphs can hold it. Not differentiable. All query heads that share a key head
    are one program's: keys are read once. Neither pages nor rows are checked against the cache,
    which would wait for the GPU; lengths are held within its room.

    Args:
        q: (batch, seqlen_q, heads, head_dim), fp16, bf16 or fp32; usually 1 to 16 tokens. With
            ``cu_seqlens_q`` (tokens, heads, head_dim). Over an fp8 cache also e4m3, which is
            widened to bf16: the output is bf16 then.
        k_cache: (cache_batch, seqlen_cache, kv_heads, head_dim), or with ``block_table`` pages of
            any size, (num_pages, page_size, kv_heads, head_dim). Any strides. Of q's dtype, or
            float8_e4m3fn or float8_e4m3fnuz: then widened as it is read, to fp16 (fp32 where q is),
            by the hardware where it has that flavour, else by its bits, on every target.
        v_cache: The same of the values, whose head dim may differ, and be up to 512.
        k: (batch, seqlen_new, kv_heads, head_dim), written in place after the keys the cache holds
            and then seen like them; keys that find no room are not written. With
            ``cu_seqlens_k_new`` (tokens_new, kv_heads, head_dim). Into an fp8 cache rounded to
            nearest even, and to the largest where they are too large. Where q is e4m3 so are they,
            in units of the scales: they are written as they are.
        v: The same of the values.
        rotary_cos: (positions, rotary_dim / 2), a position for each key there is room for. It turns
            the first rotary_dim columns: of k at the positions it is written to; of q from
            cache_seqlens on, one position a token if ``causal`` or with a window or chunks, else
            all at that one.
        rotary_sin: The same of the sines.
        cache_seqlens: Keys in the cache, int32 (batch,) on the device, or one int for all; the
            whole room by default. It is not changed.
        cache_batch_idx: int32 (batch,), the row of the cache, or with pages of ``block_table``,
            that is each sequence's.
        cache_leftpad: int32 (batch,) on the device: rows at the front of each sequence's cache that
            are not its own. They are not read, nor is a page of only these. ``cache_seqlens``
            counts them, and so do rotary positions, as in FlashAttention-3.
        block_table: int32 (batch, max_pages), the pages of each sequence in order; entries beyond
            its keys are not read. With ``cache_batch_idx`` it has any number of rows.
        cu_seqlens_q: int32 (batch + 1,) on the device: sequences have queries of their own number,
            packed as in ``flash_attention_varlen``. Rows after the last entry give 0, and -inf.
        cu_seqlens_k_new: int32 (batch + 1,) on the device: new keys of their own number, packed;
            those after the last entry are not read.
        max_seqlen_q: The most queries of a sequence, with ``cu_seqlens_q``; rows beyond it are left
            unwritten.
        softmax_scale: 1 / sqrt(head_dim) by default, with ``qv`` of both head dims added.
        causal: Aligned to the bottom right: the last query sees all keys.
        window_size: As in ``flash_attention``.
        attention_chunk: As in ``flash_attention``, counted from a sequence's own first key.
        softcap: As in ``flash_attention``.
        alibi_slopes: (heads,) or (batch, heads).
        sinks: (heads,).
        rotary_interleaved: Pair columns 2i and 2i + 1, else i and i + rotary_dim / 2.
        num_splits: Into how many parts the keys of a sequence are split, each a program; 0 for a
            number that fills the device, chosen from the shapes and whether one length is given for
            all. Partial results are fp32.
        return_lse: Return the log-sum-exp, too.
        q_scale: Of an e4m3 q only: what it is multiplied by, in shapes of ``k_scale``. One value
            serves all query heads that share a key head.
        k_scale: Of fp8 caches only: keys are held divided by it. fp32 on the device, (), (1,),
            (kv_heads,) or (batch, kv_heads), 1 by default. Those of scale 0 are read as 0.
        v_scale: The same of the values.
        qv: (batch, seqlen_q, heads, head_dim_v), packed as q is, of its dtype: a score is q k + qv
            v, as in MLA, whose values are also keys. Not over an fp8 cache.
        rotary_seqlens: int32 (batch,): the position of the first new token of each sequence,
            ``cache_seqlens`` by default.

    Returns:
        The shape of q with the values' head dim, of q's dtype; with ``return_lse`` also the
        log-sum-exp, fp32 (batch, heads, seqlen_q), or packed (heads, tokens). No key gives 0, and
        -inf. Under ``torch.autocast`` those of q, k and v are cast to its dtype that the cache is
        not of.

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype, device or value does not fit, or arguments exclude each other.
        NotImplementedError: A gradient is needed of an argument.

    Examples:
        >>> import torch
        >>> from kernels import flash_attention_kvcache
        >>> k_cache, v_cache = torch.randn(2, 1, 64, 2, 32).unbind()
        >>> q, k, v = torch.randn(3, 1, 1, 2, 32).unbind()  # one new token
        >>> out = flash_attention_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=40, causal=True)
        >>> out.shape, torch.equal(k_cache[:, 40], k[:, 0])
        (torch.Size([1, 1, 2, 32]), True)
    """
    q, k, v, qv = autocast.lowered(q, k, v, qv, but=getattr(k_cache, "dtype", None))
    max_seqlen_q = _check_packed(q, cu_seqlens_q, max_seqlen_q)
    in_fp8 = _in_fp8(q, k_cache, q_scale)
    by_sequence = _by_sequence(q, cu_seqlens_q, in_fp8)
    cache_seqlens, num_splits = _check(
        by_sequence, k_cache, v_cache, cache_seqlens, cache_batch_idx, block_table, num_splits
    )
    if cache_leftpad is not None:
        integers("cache_leftpad", cache_leftpad, by_sequence, rank=1, layout="(batch,)")
    batch, most, heads = by_sequence.shape[:3]
    _check_scales(k_cache, batch, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    _check_new(by_sequence, q.dtype, k_cache, v_cache, k, v, cache_seqlens, cu_seqlens_k_new)
    _check_qv(q, qv, k_cache, v_cache)
    rows = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    _check_rotary(by_sequence, k, rotary_cos, rotary_sin, rows)
    rotary_seqlens = _positions(by_sequence, rotary_seqlens)
    by_scores = (batch, heads, most, rows)
    scores = options.checked(q, by_scores, softcap, alibi_slopes, sinks)[:3]
    _without_gradient(alibi_slopes=alibi_slopes, sinks=sinks, k_scale=k_scale, v_scale=v_scale)
    _without_gradient(q=q, q_scale=q_scale, rotary_cos=rotary_cos, rotary_sin=rotary_sin)
    causal, right, left = shapes.limits(0, causal, window_size)
    chunk = chunks.checked(attention_chunk)
    scale = checks.softmax_scale(softmax_scale, q.shape[-1] + (0 if qv is None else qv.shape[-1]))
    return_lse = checks.flag("return_lse", return_lse)
    rotary_interleaved = checks.flag("rotary_interleaved", rotary_interleaved)
    if k is not None:
        checks.apart("v_cache", v_cache, k_cache=k_cache)
    checks.launchable("q", q)
    shapes.check_longest(max_seqlen_q=(cu_seqlens_q, None, max_seqlen_q))
    seqlens = cache_seqlens if isinstance(cache_seqlens, torch.Tensor) else None
    length = rows if seqlens is not None or cache_seqlens is None else cache_seqlens
    where = (seqlens, length, cache_batch_idx, block_table)
    added, scales = 0, (k_scale, v_scale)
    turned = (rotary_cos, rotary_sin, rotary_interleaved)
    if k is not None and v is not None:
        added = k.shape[-3]
        # In e4m3 they are in units of the scales.
        written = (k.bfloat16(), v.bfloat16(), None, None) if in_fp8 else (k, v, *scales)
        places = (*where, *written[2:], *turned, cu_seqlens_k_new, rotary_seqlens)
        operators.append(*written[:2], k_cache, v_cache, *places)
    if in_fp8:
        q, scales = q.bfloat16(), (_product(q_scale, k_scale), v_scale)  # exact
    masks = (causal, right, left, scale, *scores)
    apart = (cu_seqlens_q, max_seqlen_q, cache_leftpad, cu_seqlens_k_new, chunk, qv, rotary_seqlens)
    out, lse = operators.attend(
        q, k_cache, v_cache, *where, *scales, added, *turned, *masks, num_splits, *apart
    )
    return (out, lse) if return_lse else out


def _check_packed(q: Any, cu_q: Any, max_q: Any) -> int:
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


def _by_sequence(q: Any, cu_q: torch.Tensor | None, in_fp8: bool) -> Any:
    """q as (batch, seqlen_q, heads, head_dim) for checks of shapes, which ask for one dtype."""
    if cu_q is not None:
        q = q.unsqueeze(0).expand(cu_q.shape[0] - 1, -1, -1, -1)
    return q.new_empty((), dtype=torch.bfloat16).expand(q.shape) if in_fp8 else q


def _positions(q: torch.Tensor, seqlens: Any) -> torch.Tensor | None:
    """``rotary_seqlens`` as operators take them."""
    if seqlens is None:
        return None
    integers("rotary_seqlens", seqlens, q, rank=1, layout="(batch,)")
    found: torch.Tensor = seqlens.contiguous()
    return found


def _product(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    return a if b is None else b if a is None else a * b


def _check(
    q: Any, k: Any, v: Any, seqlens: Any, batch_idx: Any, table: Any, num_splits: Any
) -> tuple[torch.Tensor | int | None, int]:
    """``seqlens`` and ``num_splits`` as operators take them."""
    layout = CACHE_LAYOUT if table is None else PAGED_LAYOUT
    for name, value, shape in (("q", q, LAYOUT), ("k_cache", k, layout), ("v_cache", v, layout)):
        checks.tensor(name, value, rank=4, layout=shape)
    _without_gradient(q=q, k_cache=k, v_cache=v)
    if table is not None:
        pages = q if batch_idx is None else None
        integers("block_table", table, pages, rank=2, layout="(batch, max_pages)")
        checks.same_device("q", q, block_table=table)
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
        integers("cache_seqlens", seqlens, q, rank=1, layout="(batch,)")
    elif seqlens is not None:
        length = checks.whole(seqlens)
        if length is None or checks.negative(length):
            raise TypeError(
                "cache_seqlens: expected an int32 tensor (batch,), one int for all or None, got "
                f"{seqlens!r}"
            )
        seqlens = length
    if batch_idx is not None:
        integers("cache_batch_idx", batch_idx, q, rank=1, layout="(batch,)")
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


def _in_fp8(q: torch.Tensor, k_cache: Any, q_scale: Any) -> bool:
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


def _check_qv(q: torch.Tensor, qv: Any, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
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
    _without_gradient(qv=qv)


def _check_new(
    q: Any, dtype: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, seqlens: Any, cu_new: Any
) -> None:
    """Beside q, which is of ``dtype`` or will be."""
    if (k is None) != (v is None):
        raise ValueError(
            f"{'k' if k is None else 'v'}: expected both k and v or neither, got None beside the "
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
    _without_gradient(k=k, v=v)
    checks.writable("k_cache", k_cache)
    checks.writable("v_cache", v_cache)
    if seqlens is None:
        raise ValueError(
            "cache_seqlens: expected how many keys the cache holds where k is given, got None; by "
            "default the cache is full"
        )


def _check_rotary(q: Any, k: Any, cos: Any, sin: Any, rows: int) -> None:
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


def _check_scales(k_cache: torch.Tensor, batch: int, **scales: Any) -> None:
    heads = k_cache.shape[2]
    for name, value in scales.items():
        if value is None:
            continue
        # Filled in where it is asked for: in a text dynamo makes a constant of a symbol.
        expected = "a float32 tensor of shape (), ({0},) or ({1}, {0}), one value a key head"
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{name}: expected {expected.format(heads, batch)}, got {type(value).__name__}; "
                f"torch.tensor({name}, device=q.device) makes one"
            )
        if k_cache.dtype not in e4m3.DTYPES:
            raise ValueError(
                f"{name}: expected None unless the caches are float8_e4m3fn or float8_e4m3fnuz, "
                f"and k_cache is {str(k_cache.dtype).removeprefix('torch.')}"
            )
        checks.dense(name, value)
        known = ((), (1,), (heads,), (batch, heads))
        if value.dtype != torch.float32 or not checks.shaped(value, *known):
            got = f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
            raise ValueError(f"{name}: expected {expected.format(heads, batch)}, got {got}")
        checks.same_device("k_cache", k_cache, **{name: value})


def _without_gradient(**values: torch.Tensor | None) -> None:
    checks.no_tangent(**values)
    for name, value in values.items():
        if value is not None and torch.is_grad_enabled() and value.requires_grad:
            raise NotImplementedError(
                f"{name}: expected no gradient to be asked for, got requires_grad; decode under "
                "torch.no_grad(), or call flash_attention, which is differentiable"
            )


def integers(name: str, value: Any, q: torch.Tensor | None, *, rank: int, layout: str) -> None:
    """Of one entry, or row, a sequence of ``q``, or where it is None of any number."""
    checks.tensor(name, value, rank=rank, layout=layout)
    checks.dtype(name, value, (torch.int32,))
    if q is None:
        return
    checks.same_device("q", q, **{name: value})
    if value.shape[0] != q.shape[0]:
        raise ValueError(
            f"{name}: expected {q.shape[0]} entries as q has sequences, got {value.shape[0]}"
        )
