"""The public attention operations: what they accept and which kernel runs them."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.numerics.heavy_rows import all_marked
from kernels.attention.common.options import Options, checked
from kernels.attention.operators import dense as operators
from kernels.attention.operators import fp8 as fp8_interface
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared

from . import chunks, wide_values


@prepared
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = None,
    softmax_scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_size: tuple[int, int] = (128, 128),
    exact_gradients: bool = True,
    return_lse: bool = False,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention, ``softmax(q @ k^T * softmax_scale) @ v``, with no score matrix in memory.

    One launch. Rows that see no key give 0, and -inf as log-sum-exp. Outputs and gradients are the
    same bits at every run. Portable kernels serve every option; on Hopper others take over where
    they are faster. Up to 16 queries of 16 bits over 512 keys or more, without an option of scores,
    are decoded: heads packed, keys split over the device, two launches. On Hopper so are up to 256
    over 1024 keys, where their tiles would leave much of the device idle.

    A score goes through the options in this order: softcap, ALiBi, bias. docs/kernels/attention.md
    has an example of each.

    Args:
        q: (batch, seqlen_q, heads, head_dim), fp16, bf16 or fp32, with any strides: a transposed
            view costs no copy. Or e4m3 in the flavour of the hardware, forward only: float8_e4m3fn
            on sm_89 and later, gfx950 and gfx12, float8_e4m3fnuz on gfx942. head_dim is 1 to 256.
        k: (batch, seqlen_k, kv_heads, head_dim), of q's dtype. ``heads`` is a multiple of
            ``kv_heads``: query head h reads key head h // (heads // kv_heads).
        v: (batch, seqlen_k, kv_heads, head_dim_v), of q's dtype. head_dim_v may differ from
            head_dim, and be up to 512: above 256 some columns are attended to at a time.
        causal: Query i sees key j where j <= i + seqlen_k - seqlen_q: aligned to the bottom right,
            so that the last query sees every key.
        window_size: (left, right), the keys before and after its own that a query sees; -1 for all.
            Keys that no query sees are not read, forward or backward.
        attention_chunk: Keys a chunk has, counted from the first key. A query sees only the keys of
            its own chunk; query i is in that of key i + seqlen_k - seqlen_q. Not with a bias or
            block mask. Whole chunks of as many queries as keys are entries of a batch, others
            packed sequences: dropout draws by chunk, and a batch whose rows do not follow one
            another is copied.
        softmax_scale: 1 / sqrt(head_dim) by default.
        softcap: Above 0 a score becomes softcap * tanh(score / softcap).
        alibi_slopes: (heads,) or (batch, heads). A score loses slope * |i + seqlen_k - seqlen_q -
            j|. They get no gradient. fp16 and bf16 are converted to fp32 by a small launch.
        sinks: (heads,), one more score of every row, without a value. It takes weight, counts in
            the log-sum-exp, which is the sink where a row sees no key, and gets a gradient.
        bias: Broadcasts to (batch, heads, seqlen_q, seqlen_k) and is read as it lies. fp16, bf16 or
            fp32 is added; bool hides a key where it is false. Its gradient is written for every
            score, in its dtype or, where it broadcasts, in fp32 to be summed by torch.
        dropout_p: This share of the weights is dropped, the others are divided by 1 - dropout_p.
        dropout_seed: An int, or an int64 tensor of one number on the device. It decides with batch,
            head, query and key which weights are dropped. By default drawn from torch's generator.
        block_mask: bool (batch or 1, heads or 1, ceil(seqlen_q / block_size[0]), ceil(seqlen_k /
            block_size[1])). Blocks of scores where it is false are hidden and not read.
        block_size: (queries, keys) of a block of ``block_mask``, multiples of 128.
        exact_gradients: Take the rounding of the output from 16-bit gradients, by a launch that
            works where a row has one heavy weight. Without it they keep it, as in FlashAttention.
        return_lse: Return the log-sum-exp, too. It is differentiable.
        q_scale: Of e4m3 only, as the next two: the fp32 factor of q. One value, one a head, or one
            a sequence and head (batch, heads); of q also (batch, kv_heads), which a launch repeats.
            1 by default. On Hopper, where its own kernel serves, a head whose q_scale times k_scale
            is below 0 is NaN, and so is its log-sum-exp.
        k_scale: The factor of k.
        v_scale: The factor of v.
        out_dtype: Of e4m3 only: bf16 (the default), fp16 or fp32. Weights are rounded to e4m3.

    Returns:
        (batch, seqlen_q, heads, head_dim_v), of q's dtype; with ``return_lse`` also the
        log-sum-exp, fp32 (batch, heads, seqlen_q). Under ``torch.autocast`` q, k and v are cast to
        its dtype first.

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype, device or value does not fit. The message names the argument,
            the expected value, the value that came, and the remedy.
        NotImplementedError: An option of scores with e4m3, or forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels import flash_attention
        >>> q, k, v = torch.randn(3, 1, 64, 2, 32).unbind()
        >>> out, lse = flash_attention(q, k, v, causal=True, return_lse=True)
        >>> out.shape, lse.shape
        (torch.Size([1, 64, 2, 32]), torch.Size([1, 2, 64]))
        >>> torch.equal(out[:, 0], v[:, 0])  # the first query sees the first key only
        True
    """
    low: dict[str, Any] = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    low["out_dtype"] = out_dtype
    in_fp8 = fp8_interface.asked(q, **low)
    q, k, v = autocast.lowered(q, k, v)
    shapes.check(
        q,
        k,
        v,
        layout="(batch, seqlen, heads, head_dim)",
        head_axis=2,
        dtypes=fp8_interface.ALL_DTYPES,
        most_v=shapes.MAX_HEAD_DIM_V,
    )
    chunk = chunks.checked(attention_chunk, bias=bias, block_mask=block_mask)
    if chunk is not None:
        k, v, chunk = chunks.seen(chunk, q, k, v)
    reach = shapes.limits(k.shape[1] - q.shape[1], causal, window_size)
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    options = checked(
        q,
        scores,
        softcap,
        alibi_slopes,
        sinks,
        dropout_p,
        dropout_seed,
        bias,
        block_mask=block_mask,
        block_size=block_size,
        exact_gradients=exact_gradients,
    )
    if in_fp8:
        fp8_interface.check_options(q, Options(*options))
    scale = checks.softmax_scale(softmax_scale, q.shape[3])
    return_lse = checks.flag("return_lse", return_lse)
    checks.launchable("q", q)
    near = (*shapes.limits(0, causal, window_size), scale)  # from a chunk's own lengths

    def run(v: torch.Tensor, with_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        if chunk is not None:
            given = low if in_fp8 else None
            return chunks.attend(q, k, v, chunk, near, options, given, with_lse)
        if in_fp8:
            return fp8_interface.attend(q, k, v, *reach, scale, softcap=options[0], **low)
        return operators.flash_attention(q, k, v, *reach, scale, *options, return_lse=with_lse)

    out, lse = wide_values.in_parts(run, v, return_lse)
    return (out, lse) if return_lse else out


@prepared
def flash_attention_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softmax_scale: float | None = None,
    exact_gradients: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v for ``out, lse = flash_attention(..., return_lse=True)``.

    For callers who keep outputs themselves; autograd does the same for the others. It knows masks
    and no option of scores. The gradients are the same bits at every run and have no gradients of
    their own. Where k or v holds NaN or inf, dq is NaN: on Hopper at head dims 33 to 128 for all
    queries of its head (from 65 on where they see above 768 keys in the mean, in a window 1,536),
    elsewhere for those that see it.

    Args:
        dout: The gradient of ``out``, of its shape and dtype.
        q: (batch, seqlen_q, heads, head_dim), fp16, bf16 or fp32.
        k: (batch, seqlen_k, kv_heads, head_dim).
        v: (batch, seqlen_k, kv_heads, head_dim_v).
        out: (batch, seqlen_q, heads, head_dim_v), as ``flash_attention`` returned it.
        lse: fp32 (batch, heads, seqlen_q), contiguous, as ``flash_attention`` returned it.
        causal: As in the forward pass, like the next two.
        window_size: As in the forward pass.
        softmax_scale: As in the forward pass.
        exact_gradients: Take the rounding of ``out`` from the gradients of all rows. This ``lse``
            does not say which rows have a heavy weight.

    Returns:
        dq, dk and dv, with the shapes and dtypes of q, k and v. Under ``torch.autocast`` all but
        lse are cast to its dtype first.

    Raises:
        TypeError: An argument is no tensor.
        ValueError: A shape, dtype or device does not fit.
        NotImplementedError: Forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels import flash_attention, flash_attention_backward
        >>> q, k, v = torch.randn(3, 1, 64, 2, 32).unbind()
        >>> out, lse = flash_attention(q, k, v, return_lse=True)
        >>> dq, dk, dv = flash_attention_backward(torch.ones_like(out), q, k, v, out, lse)
        >>> torch.allclose(dv.sum(1), torch.full((1, 2, 32), 64.0), atol=1e-3)
        True
    """
    layout = "(batch, seqlen, heads, head_dim)"
    dout, q, k, v, out = autocast.lowered(dout, q, k, v, out)
    shapes.check(q, k, v, layout=layout, head_axis=2)
    checks.tensor("out", out, rank=4, layout=layout)
    checks.tensor("dout", dout, rank=4, layout=layout)
    checks.same_dtype_and_device("q", q, out=out, dout=dout)
    checks.tensor("lse", lse, rank=3, layout="(batch, heads, seqlen)")
    checks.dtype("lse", lse, (torch.float32,))
    checks.no_tangent(dout=dout, out=out, lse=lse)
    checks.same_device("q", q, lse=lse)
    for name, value in (("out", out), ("dout", dout)):
        if tuple(value.shape) != (*q.shape[:3], v.shape[3]):
            raise ValueError(
                f"{name}: expected shape {(*q.shape[:3], v.shape[3])} as q and v ask for, got "
                f"{tuple(value.shape)}"
            )
    rows = (q.shape[0], q.shape[2], q.shape[1])
    if tuple(lse.shape) != rows or not lse.is_contiguous():
        raise ValueError(
            f"lse: expected contiguous {rows} as flash_attention returns it, got "
            f"{tuple(lse.shape)} with strides {lse.stride()}"
        )
    reach = shapes.limits(k.shape[1] - q.shape[1], causal, window_size)
    scale = checks.softmax_scale(softmax_scale, q.shape[3])
    exact = checks.flag("exact_gradients", exact_gradients)
    checks.launchable("q", q)
    lse = all_marked(lse) if exact and q.dtype.itemsize == 2 else lse
    options = (*[None] * 5, exact)
    dq, dk, dv = operators.differentiate(
        dout, None, out, lse, False, q, k, v, *reach, scale, *options
    )
    return dq, dk, dv
