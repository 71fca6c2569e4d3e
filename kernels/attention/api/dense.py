"""The public attention operations: what they accept and which kernel runs them."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.numerics.heavy_rows import all_marked
from kernels.attention.common.options import PLAIN, Options, checked
from kernels.attention.dispatch import backward as gradients
from kernels.attention.operators import dense as operators
from kernels.attention.operators.fp8 import dense as fp8_interface
from kernels.runtime import autocast, checks

from . import chunks


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
    """``softmax(q @ k^T * softmax_scale) @ v``, no score matrix in memory; one launch.

    q: (batch, seqlen_q, heads, head_dim); k: (batch, seqlen_k, kv_heads, head_dim) and v: (batch,
    seqlen_k, kv_heads, head_dim_v) of the same dtype, fp16, bf16 or fp32, with any strides: a
    transposed view costs no copy. ``heads`` is a multiple of ``kv_heads``: query head h reads key
    head h // (heads // kv_heads). Up to 16 queries of 16 bits over 512 keys or more, whose scores
    go through nothing else, are decoded: heads packed, keys split over the device, two launches;
    on Hopper up to 256 over 1024 keys, where their tiles would leave most of the device idle.

    ``causal`` is aligned bottom-right: the last query sees every key, so query i sees key j when
    j <= i + seqlen_k - seqlen_q. A row that sees no key gives 0, and -inf as log-sum-exp.
    ``window_size`` (left, right) lets it see that many keys before and after its own alone, -1 for
    all of them; what no query sees is not read, forward or backward. ``attention_chunk`` lets it
    see keys of its own chunk alone (Llama 4): chunks are so many keys each from the first key on,
    and query i is in that of key i + seqlen_k - seqlen_q. Without a bias and a block mask. Several
    chunks are entries of a batch where they are whole and queries are as many as keys, else packed
    sequences (``flash_attention_varlen``): dropout draws by chunk, and a batch whose rows do not
    follow one another is copied.
    ``softmax_scale`` is 1 / sqrt(head_dim) by default.

    What else a score goes through, in this order, on portable kernels: ``softcap`` above 0 makes
    it softcap * tanh(score / softcap) (Gemma 2). ``alibi_slopes``, (heads,) or (batch, heads),
    takes slope * |i + seqlen_k - seqlen_q - j| away (ALiBi, bottom-right as in FlashAttention-2);
    they get no gradient, as there. ``bias``, fp16, bf16 or fp32 that broadcasts to (batch, heads,
    seqlen_q, seqlen_k), is added; bool hides a key where it is false. It is read as it lies, with
    any strides. Its gradient is written for every score, in its dtype or, where it broadcasts, in
    fp32 to be summed by torch: that takes as much memory. ``sinks``, (heads,), is one more score of
    every row that has no value (gpt-oss): it takes weight, counts in the log-sum-exp, which is the
    sink where a row sees no key, and gets a gradient. Slopes and sinks are read in fp32; of fp16 or
    bf16 they are converted by a small launch. With ``dropout_p`` that part of the weights is
    dropped and the rest divided by 1 - dropout_p; which ones follows from ``dropout_seed``, an int
    or an int64 tensor of one number on the device, and from batch, head, query and key alone.
    Without a seed one is drawn from torch's generator. ``block_mask``, bool (batch or 1, heads or
    1, ceil(seqlen_q / block_size[0]), ceil(seqlen_k / block_size[1])), hides blocks of scores where
    it is false, forward and backward: what is hidden is not read. Block sizes are multiples of 128.

    ``return_lse`` adds the log-sum-exp of every row: (batch, heads, seqlen_q), fp32. Both are
    differentiable; gradients are the same bits at every run. Those of 16 bits would hold the
    rounding of the output, which in rows of one heavy weight is most of what they are: a launch
    takes it from them in blocks that have such rows, which the forward pass tells; where all have,
    gradients took 1.3 to 1.7 times as long on an H200 (docs/attention.md). Without
    ``exact_gradients`` they keep it, as FlashAttention has it. Under ``torch.autocast`` q, k and v
    are cast to its dtype.

    q, k and v may also be e4m3 in the flavour of the hardware (float8_e4m3fn on sm_89 and later
    and gfx950, float8_e4m3fnuz on gfx942), forward alone. ``q_scale``, ``k_scale`` and ``v_scale``
    are then what they are multiplied by, fp32 tensors of one value, of one a head of theirs or of
    one a sequence and head, (batch, heads), 1 by default; ``q_scale`` also of one a sequence and
    key head, (batch, kv_heads), as FlashAttention-3 has it, which a small launch repeats.
    ``out_dtype`` is bf16 by default. Weights are rounded to e4m3. Scales below 0 are right but on
    Hopper, where its own kernel serves (docs/attention.md): there a head whose ``q_scale`` times
    ``k_scale`` is below 0 is NaN, also its log-sum-exp.
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
    if chunk is not None:
        near = shapes.limits(0, causal, window_size)  # from a chunk's own lengths
        if in_fp8:
            out, lse = chunks.attend_fp8(q, k, v, chunk, near, scale, return_lse, **low)
        else:
            out, lse = chunks.attend(q, k, v, chunk, near, scale, options, return_lse)
    elif in_fp8:
        out, lse = fp8_interface.attend(q, k, v, *reach, softmax_scale, **low)
    else:
        out, lse = attend(q, k, v, *reach, scale, *options, return_lse=return_lse)
    return (out, lse) if return_lse else out


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

    What autograd runs, for who keeps outputs himself; without softcap and the like. This lse does
    not tell which rows have a heavy weight: ``exact_gradients`` takes all for such. The same bits
    at every run. Under ``torch.autocast`` all but lse are cast to its dtype first. The results have
    no gradients of their own: where an input requires one, asking for it is an error. Where k or v
    holds NaN or inf, those of q are NaN: on Hopper at head dims 33 to 128 of all queries of its
    heads (from 65 on where they see above 1,024 keys in the mean), else of those that see it.
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
    causal, causal_offset, left_offset = shapes.limits(k.shape[1] - q.shape[1], causal, window_size)
    scale = checks.softmax_scale(softmax_scale, q.shape[3])
    exact = checks.flag("exact_gradients", exact_gradients)
    checks.launchable("q", q)
    lse = all_marked(lse) if exact and q.dtype.itemsize == 2 else lse
    given = (dout, q, k, v, out, lse)
    if checks.traced(*given) or (
        torch.is_grad_enabled() and any(one.requires_grad for one in given)
    ):
        masks = (causal, causal_offset, left_offset)
        options = (*[None] * 5, exact)
        dq, dk, dv = operators.differentiate(
            dout, None, out, lse, False, q, k, v, *masks, scale, *options
        )
        return dq, dk, dv
    dq, dk, dv = gradients.launch(
        dout,
        None,
        q,
        k,
        v,
        out,
        lse,
        causal=causal,
        causal_offset=causal_offset,
        left_offset=left_offset,
        scale=scale,
        options=Options(exact_gradients=True) if exact else PLAIN,
    )
    return dq, dk, dv


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float | None,
    *options: Any,
    return_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    scale = checks.softmax_scale(scale, q.shape[3])
    mask = (causal, causal_offset, left_offset)
    return operators.flash_attention(q, k, v, *mask, scale, *options, return_lse=return_lse)
