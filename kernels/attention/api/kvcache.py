"""Attention of few queries over a key-value cache: what it accepts."""

from __future__ import annotations

import torch

from kernels.attention.common import options, shapes
from kernels.attention.operators import kvcache as operators
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared

from . import chunks
from .cache_checks import (
    as_sequences,
    check_cache,
    check_new,
    check_packed,
    check_qv,
    check_rotary,
    check_scales,
    multiplied,
    of_sequences,
    refuse_gradients,
    takes_fp8,
)


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
    max_seqlen_q = check_packed(q, cu_seqlens_q, max_seqlen_q)
    in_fp8 = takes_fp8(q, k_cache, q_scale)
    by_sequence = as_sequences(q, cu_seqlens_q, in_fp8)
    cache_seqlens, num_splits = check_cache(
        by_sequence, k_cache, v_cache, cache_seqlens, cache_batch_idx, block_table, num_splits
    )
    of_sequences(by_sequence, cache_leftpad=cache_leftpad, rotary_seqlens=rotary_seqlens)
    batch, most, heads = by_sequence.shape[:3]
    check_scales(k_cache, batch, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    check_new(by_sequence, q.dtype, k_cache, v_cache, k, v, cache_seqlens, cu_seqlens_k_new)
    check_qv(q, qv, k_cache, v_cache)
    rows = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    check_rotary(by_sequence, k, rotary_cos, rotary_sin, rows)
    rotary_seqlens = None if rotary_seqlens is None else rotary_seqlens.contiguous()
    by_scores = (batch, heads, most, rows)
    scores = options.checked(q, by_scores, softcap, alibi_slopes, sinks)[:3]
    refuse_gradients(alibi_slopes=alibi_slopes, sinks=sinks, k_scale=k_scale, v_scale=v_scale)
    refuse_gradients(q=q, q_scale=q_scale, rotary_cos=rotary_cos, rotary_sin=rotary_sin)
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
        q, scales = q.bfloat16(), (multiplied(q_scale, k_scale), v_scale)  # exact
    masks = (causal, right, left, scale, *scores)
    apart = (cu_seqlens_q, max_seqlen_q, cache_leftpad, cu_seqlens_k_new, chunk, qv, rotary_seqlens)
    out, lse = operators.attend(
        q, k_cache, v_cache, *where, *scales, added, *turned, *masks, num_splits, *apart
    )
    return (out, lse) if return_lse else out
