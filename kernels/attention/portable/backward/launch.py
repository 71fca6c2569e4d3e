"""The backward pass every target runs: rows, then queries, then keys and values; no atomics.

Scores are computed twice instead of adding into the queries' gradient from many programs, so the
gradients are the same bits at every run.
"""

from __future__ import annotations

import torch
import triton

from kernels.attention.common.addressing import near, refuse_wide
from kernels.attention.common.columns import columns
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.numerics.exactness import (
    is_exact,
    keys_seen,
    sums_over_keys,
    sums_over_rows,
)
from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed.sequences import Packed, describable_as, described
from kernels.attention.common.program_order import together
from kernels.attention.portable.tuning.choose import choose_backward, measured, most_seen
from kernels.attention.portable.tuning.plain import DELTA_APART, NARROW
from kernels.runtime import targets
from kernels.runtime.descriptors import TensorDescriptor
from kernels.runtime.launch import noted

from .far_rows import FarRows, find
from .key_grads import attention_backward_kv
from .query_grads import attention_backward_q
from .row_stats import attention_backward_delta, attention_backward_rows


def launch(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    packed: Packed | None = None,
    options: Options = PLAIN,
    bias_grad: bool = False,
    far: FarRows | None = None,
    corrected: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Gradients of q, k and v, contiguous, for what ``forward.launch`` filled; of packed sequences
    without the batch axis, unwritten behind the last, and as exact as the longest one asks
    (portable/backward/short_sequences.py does the rest). After them those of the sinks, if there
    are any, and with ``bias_grad`` of the bias. With ``far`` what its rows give is added to what
    was found. ``corrected`` is what portable/backward/heavy_rows.py has in dlse's place, for
    kernels that are not exact; delta may overwrite it."""
    q, k, v, out, dout = (near(one) for one in (q, k, v, out, dout))
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    bias, scores = options.bias, (batch, heads, seqlen_q, seqlen_k)
    dbias = None
    if far is not None:
        dq, dk, dv, dbias = far.found
    else:
        dq, dk, dv = (
            torch.empty_like(
                one if packed is None else one[0], memory_format=torch.contiguous_format
            )
            for one in (q, k, v)
        )
    if far is None and bias_grad and bias is not None:
        refuse_wide("its gradient", scores)
        # What no query sees is not visited. Blocks of one head meet no other's: no atomics.
        kind = bias.dtype if tuple(bias.shape) == scores else torch.float32
        dbias = torch.zeros(scores, dtype=kind, device=bias.device)
    if not out.numel() or not k.numel():
        gradients = [dq.zero_(), dk.zero_(), dv.zero_()]
        if options.sinks is not None:
            # A row without a key weighs its sink alone.
            delta = torch.zeros_like(lse) if dlse is None else -dlse
            gradients.append(_of_sinks(options.sinks, lse, delta, unseen=lse == float("-inf")))
        if bias is not None and bias_grad:
            gradients.append(torch.zeros_like(bias, memory_format=torch.contiguous_format))
        return gradients
    tokens = q.shape[1] if packed else None
    sequences = (packed.queries, packed.keys) if packed else (None, None)
    if packed is not None:
        seqlen_q, seqlen_k = packed.max_q, packed.max_k
    head_dim_v = v.shape[3]
    with targets.on_device_of(q, "q"):
        target = targets.current()
        block_d, block_dv = columns(target, q.dtype, head_dim, head_dim_v)
        most = most_seen(seqlen_k, causal_offset if causal else None, left_offset)
        # Packed sequences' offsets count from the end of each.
        ends = 0 if packed is None else seqlen_k - seqlen_q
        left = None if left_offset is None else left_offset + ends
        seen = keys_seen(seqlen_k, causal, causal_offset + ends, left, seqlen_q)
        # Summed over the keys of a row, a bias's gradient vanishes but for dlse.
        over_keys = dbias is not None and sums_over_keys(bias, seqlen_k)
        # Summed over queries, the rounding of out in delta adds up, which dp's does not.
        over_rows = dbias is not None and sums_over_rows(bias, seqlen_q)
        exact = is_exact(q.dtype, seen, q.shape[:3].numel()) or over_keys or far is not None
        by_values = bias is not None and bias.dtype != torch.bool
        corrected = None if exact else corrected
        less = dlse if corrected is None else corrected
        given, far_ends = lse, None
        if by_values and not exact:
            lse, far_ends = find(lse)
        elif bias is not None and far is None:
            # A row whose scores are all -inf has weights of 0, not NaN.
            lse = lse.masked_fill(lse == float("-inf"), torch.finfo(lse.dtype).max)
        other = not measured(target, head_dim, head_dim_v)
        fits = describable_as(packed, q, k, v, dout) and not (other and packed is not None)
        config = choose_backward(
            target,
            max(head_dim, head_dim_v),
            q.dtype,
            exact=exact,
            packed=packed is not None,
            describable=fits,
            other=other,
            narrow=most <= NARROW,
            windowed=left_offset is not None,
            grouped=heads > kv_heads,
            scored=not options.plain,
            crowded=options.crowded,
            biased_blocks=options.biased_blocks,
            uneven=options.uneven(scores),
            alone=None
            if left_offset is not None or dbias is not None
            else options.alone_in_gradients(scores),
        )
        values = {"HEAD_DIM_V": head_dim_v, "BLOCK_DV": block_dv}
        shape = {"HEAD_DIM": head_dim, "BLOCK_D": block_d, **values}
        strides = (*q.stride(), *k.stride(), *v.stride(), *dout.stride())
        asked = options.arguments(scale, scores)
        seen_until = causal_offset if causal else None
        own_queries = options.listed(seen_until, left_offset)
        own_keys = options.listed(seen_until, left_offset, owns_keys=True)
        limits = (causal_offset, left_offset, scale, *asked)
        lengths = (heads, heads // kv_heads, seqlen_q, seqlen_k, tokens)
        rows = config.q
        # What the kernels keep in fp64 they hand on in fp64.
        wide = torch.float64 if q.dtype == torch.float32 and target.adds_fp64 else torch.float32
        # The queries' kernel comes first and finds delta, where its registers were seen to suffice.
        apart = less is not None and max(head_dim, head_dim_v) > DELTA_APART.get(target.name, 256)
        with_delta = options.plain and not (exact or other or apart)
        kv = config.kv
        # Then it writes what the weights of rows are made of in whole blocks, which need no masks.
        # Rows of a batch that fill blocks need none either, and four bytes each instead of eight.
        uneven = packed is not None or seqlen_q % kv.block_m != 0
        padded = kv.block_m if with_delta and uneven and rows.block_m % kv.block_m == 0 else 0
        exponent, per_head = None, seqlen_q if packed is None else tokens
        marked = corrected is not None
        if padded:
            in_one = triton.cdiv(seqlen_q, padded)
            per_head = padded * (in_one if packed is None else q.shape[1] // padded + batch)
            of_all = heads * (batch if packed is None else 1)
            exponent, delta = lse.new_empty((2, of_all, per_head))
        else:
            delta = torch.empty_like(lse, dtype=wide) if corrected is None else corrected
        total, shift = (torch.empty_like(delta), torch.empty_like(lse)) if exact else (None, lse)
        if far is not None and total is not None and options.block_mask is not None:
            # Lists of blocks lead to rows that the next launch leaves out: without weights.
            shift.fill_(float("inf"))
            total.fill_(1.0)
            delta.zero_()
        if not (exact or with_delta or over_rows):
            # A row alone tells its delta: packed sequences are one to this kernel.
            count, length = (batch, seqlen_q) if packed is None else (1, q.shape[1])
            noted(
                attention_backward_delta, (triton.cdiv(length, config.delta_rows) * count * heads,)
            )(
                out,
                dout,
                given,
                less,
                delta,
                *out.stride(),
                *dout.stride(),
                heads,
                length,
                BLOCK_M=config.delta_rows,
                MARKED=marked,
                **values,
            )
        blocks = triton.cdiv(seqlen_q, rows.block_m)
        if not exact:
            early = seqlen_q if over_rows else 0
            if causal and packed is None and not options.plain:
                early = max(early, EARLY_KEYS - causal_offset)
            blocks = min(blocks, triton.cdiv(early, rows.block_m))
        if blocks:
            noted(attention_backward_rows, (blocks * batch * heads,))(
                q,
                k,
                v,
                out,
                dout,
                None if exact else dlse,
                lse,
                None if far is None else far.ends,
                shift if exact else None,
                delta,
                total,
                *sequences,
                *strides,
                *out.stride(),
                blocks,
                *lengths,
                *limits,
                *own_queries,
                BLOCK_M=rows.block_m,
                BLOCK_N=rows.block_n,
                CAUSAL=causal,
                **shape,
                **rows.options(),
            )
        tma = config.tma and fits
        masked = causal or left_offset is not None or options.bias is not None
        branch = options.block_mask is None and masked
        # Where the place of a block tells how long it takes, and registers were seen to suffice.
        ordered = causal and left_offset is None and options.plain and not exact
        common = shape | {"CAUSAL": causal, "TMA": tma}

        # What a program owns comes through pointers: wgmma then reads it from shared memory, where
        # a tile out of a rank-4 descriptor would occupy registers for the whole loop.
        def walked(tensor: torch.Tensor, rows: int, block: int) -> torch.Tensor | TensorDescriptor:
            return described(packed, tensor, rows, block) if tma else tensor

        # rowsum(out * dout) holds out's rounding, most of what a sink's gradient would be off by.
        dots = None if exact or options.sinks is None else torch.empty_like(lse)
        dots = dots if far is None else far.dots
        noted(attention_backward_q, (triton.cdiv(seqlen_q, rows.block_m) * batch * heads,))(
            q,
            walked(k, rows.block_n, block_d),
            walked(v, rows.block_n, block_dv),
            dout,
            shift,
            delta,
            total,
            less if exact or with_delta else None,
            dots,
            dq,
            dbias,
            out if with_delta else None,
            exponent,
            None if far is None else far.ends,
            *sequences,
            *strides,
            *out.stride(),
            *lengths,
            per_head,
            *limits,
            *own_queries,
            BLOCK_M=rows.block_m,
            BLOCK_N=rows.block_n,
            EVEN=packed is None and seqlen_k % rows.block_n == 0,
            ROWS=padded,
            **common,
            BRANCH=branch and rows.branch,
            MARKED=marked and with_delta,
            TOGETHER=together(batch * heads) if ordered and packed is None else 0,
            **rows.options(),
        )
        flat = kv.flat and options.plain and heads > kv_heads
        # Packed sequences' kernel has no registers for the order where the loops are nested.
        noted(attention_backward_kv, (triton.cdiv(seqlen_k, kv.block_n) * batch * kv_heads,))(
            walked(q, kv.block_m, block_d),
            k,
            v,
            walked(dout, kv.block_m, block_dv),
            exponent if padded else shift,
            delta,
            total,
            dlse if exact else None,
            dk,
            dv,
            None if far is None else far.ends,
            *sequences,
            *strides,
            kv_heads,
            *lengths[1:-1],
            per_head,
            *limits,
            *own_keys,
            BLOCK_M=kv.block_m,
            BLOCK_N=kv.block_n,
            EVEN=packed is None and options.block_mask is None and seqlen_q % kv.block_m == 0,
            ROWS=padded,
            **common,
            BRANCH=kv.branch and options.block_mask is None,
            FLAT=flat,
            TOGETHER=together(batch * kv_heads) if ordered and (packed is None or flat) else 0,
            **kv.options(),
        )
    gradients = [dq, dk, dv]
    if far is not None:
        return gradients
    if far_ends is not None:
        launch(
            dout,
            dlse,
            q,
            k,
            v,
            out,
            lse,
            causal=causal,
            causal_offset=causal_offset,
            left_offset=left_offset,
            scale=scale,
            options=options,
            far=FarRows(far_ends, (dq, dk, dv, dbias), dots),
        )
    if options.sinks is not None:
        if exact or dots is not None:
            delta = (delta if dots is None else dots).double()
            delta = delta if dlse is None else delta - dlse
        unseen = given == float("-inf")
        unit = 1.0 if by_values else LOG2_E
        shift = shift if exact else given
        gradients.append(_of_sinks(options.sinks, shift, delta, total, unseen=unseen, unit=unit))
    if bias is not None and dbias is not None:
        gradients.append(dbias.sum_to_size(bias.shape).to(bias.dtype))
    return gradients


def _of_sinks(
    sinks: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    total: torch.Tensor | None = None,
    *,
    unseen: torch.Tensor,
    unit: float = LOG2_E,
) -> torch.Tensor:
    """(heads,): the weight of a row's sink times -delta, whose dp is 0, summed over rows. With
    ``total`` lse is the shift of portable/backward/row_stats.py, in which a score is ``unit``.
    ``unseen`` rows, which sum up nothing or lie behind the last of packed sequences, add nothing,
    whatever delta and total are there."""
    if total is None:
        weights = torch.exp(sinks[:, None] - lse)
    else:  # fp32: not a rounding more than the formula has
        exponents = (sinks.double()[:, None] * unit - lse) * (LOG2_E / unit)
        weights = torch.exp2(exponents) / total
    rows = -(weights * delta).masked_fill_(unseen, 0.0).sum(-1)
    return (rows if rows.dim() == 1 else rows.sum(0)).float()


# The first rows of a causal problem see as few. Their weights are near 1, where the rounding of out
# in delta is all in the scores' gradients: in a bias's, that of rows which saw under 64 keys was up
# to 1.8 times what it may be, beside a bias that hid a third of them.
EARLY_KEYS = 64
