"""Attention over packed sequences: what it accepts, and its operators for torch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.options import Options, checked
from kernels.attention.operators import fp8 as fp8_interface
from kernels.attention.operators.varlen import ASKED, attend
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared

from . import chunks, wide_values

LAYOUT = "(tokens, heads, head_dim)"


@prepared
def flash_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = None,
    softmax_scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | torch.Tensor | None = None,
    exact_gradients: bool = True,
    return_lse: bool = False,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """``flash_attention`` of every sequence of a packed batch at once.

    Sequences lie one after the other, without padding. Masks and ALiBi are aligned to the bottom
    right of each one. Rows after the last entry of ``cu_seqlens`` are no sequence's and not read:
    their output and gradients are 0, their log-sum-exp is -inf. No entry is checked, which would
    wait for the GPU. Differentiable, with the same bits at every run. On Hopper most gradients up
    to head dim 128 have a kernel of its own, where a NaN or inf in k or v makes dq of all queries
    of its head and sequence NaN (docs/kernels/hopper/backward.md).

    Args:
        q: (tokens_q, heads, head_dim), fp16, bf16, fp32, or e4m3 forward only.
        k: (tokens_k, kv_heads, head_dim), of q's dtype.
        v: (tokens_k, kv_heads, head_dim_v), of q's dtype.
        cu_seqlens_q: int32 (batch + 1,), contiguous, from 0 up to at most tokens_q: sequence i owns
            the rows from entry i up to entry i + 1, and may be empty.
        cu_seqlens_k: The same of the keys.
        max_seqlen_q: The longest sequence of queries; rows of a sequence beyond it are left
            unwritten. In the interpreter one that is too small is an error.
        max_seqlen_k: The longest sequence of keys.
        causal: As in ``flash_attention``, in each sequence.
        window_size: As in ``flash_attention``.
        attention_chunk: As in ``flash_attention``, counted from each sequence's first key.
        softmax_scale: 1 / sqrt(head_dim) by default.
        softcap: As in ``flash_attention``.
        alibi_slopes: (heads,) or (batch, heads).
        sinks: (heads,), with a gradient.
        dropout_p: As in ``flash_attention``.
        dropout_seed: As in ``flash_attention``.
        exact_gradients: As in ``flash_attention``.
        return_lse: Return the log-sum-exp, too.
        seqused_q: int32 (batch,): only the first ``seqused_q[i]`` rows of sequence i are queries.
            Masks are aligned by these. The other rows are like those after the last entry, and the
            longest sequences may be those of used rows.
        seqused_k: The same of the keys.
        q_scale: Of e4m3 only, as in ``flash_attention``; (batch, heads) has a row a sequence.
        k_scale: The same of k.
        v_scale: The same of v.
        out_dtype: Of e4m3 only: bf16 (the default), fp16 or fp32.

    Returns:
        (tokens_q, heads, head_dim_v), of q's dtype; with ``return_lse`` also the log-sum-exp, fp32
        (heads, tokens_q).

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype, device or value does not fit.
        NotImplementedError: An option of scores with e4m3, or forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels import flash_attention_varlen
        >>> q, k, v = torch.randn(3, 48, 2, 32).unbind()  # sequences of 16 and 32 tokens
        >>> at = torch.tensor([0, 16, 48], dtype=torch.int32)
        >>> flash_attention_varlen(q, k, v, at, at, 32, 32, causal=True).shape
        torch.Size([48, 2, 32])
    """
    low: dict[str, Any] = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    low["out_dtype"] = out_dtype
    in_fp8 = fp8_interface.asked(q, **low)
    q, k, v = autocast.lowered(q, k, v)
    _check(q, k, v, cu_seqlens_q, cu_seqlens_k)
    _check_used(q, cu_seqlens_q.numel() - 1, seqused_q=seqused_q, seqused_k=seqused_k)
    max_seqlen_q = shapes.longest("max_seqlen_q", max_seqlen_q)
    max_seqlen_k = shapes.longest("max_seqlen_k", max_seqlen_k)
    causal, right, left = shapes.limits(0, causal, window_size)
    batch = cu_seqlens_q.numel() - 1
    options = checked(
        q,
        (batch, q.shape[1], 0, 0),
        softcap,
        alibi_slopes,
        sinks,
        dropout_p,
        dropout_seed,
        exact_gradients=exact_gradients,
    )
    chunk = chunks.checked(attention_chunk)
    if in_fp8:
        fp8_interface.check_options(q, Options(*options))
        low["softcap"] = options[0]
    scale = checks.softmax_scale(softmax_scale, q.shape[2])
    return_lse = checks.flag("return_lse", return_lse)
    checks.launchable("q", q)
    shapes.check_longest(
        max_seqlen_q=(cu_seqlens_q, seqused_q, max_seqlen_q),
        max_seqlen_k=(cu_seqlens_k, seqused_k, max_seqlen_k),
    )
    sequences: tuple[Any, ...] = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    used: tuple[Any, ...] = (seqused_q, seqused_k)
    scores = list(options[: len(ASKED)])
    if chunk is not None and batch:
        sequences, used, many = chunks.of_packed(chunk, sequences, used, sinks is not None)
        scores[1] = chunks.of_each(scores[1], many)
        if in_fp8:
            low |= {name: chunks.of_each(low[name], many) for name in fp8_interface.SCALES}

    def run(v: torch.Tensor, with_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        given: tuple[Any, ...] = (causal, right, left, scale)
        if in_fp8:
            return fp8_interface.attend(q, k, v, *given, *used, sequences=sequences, **low)
        out, lse, _ = attend(q, k, v, *sequences, *given, *scores, with_lse, *used)
        return out, lse

    out, lse = wide_values.in_parts(run, v, return_lse)
    return (out, lse) if return_lse else out


def _check(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any) -> None:
    for name, value in (("q", q), ("k", k), ("v", v)):
        checks.tensor(name, value, rank=3, layout=LAYOUT)
    spread = (one.unsqueeze(0) for one in (q, k, v))
    dtypes, most_v = fp8_interface.ALL_DTYPES, shapes.MAX_HEAD_DIM_V
    shapes.check(*spread, layout=LAYOUT, head_axis=2, dtypes=dtypes, most_v=most_v)
    shapes.check_lengths(q, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    if cu_q.numel() != cu_k.numel():
        raise ValueError(
            f"cu_seqlens_k: expected {cu_q.numel()} entries as cu_seqlens_q has, got {cu_k.numel()}"
        )


def _check_used(q: torch.Tensor, batch: int, **used: Any) -> None:
    for name, value in used.items():
        if value is None:
            continue
        checks.integers(name, value, rank=1, layout="(batch,)", q=q)
        if value.numel() != batch or not value.is_contiguous():
            raise ValueError(
                f"{name}: expected {batch} contiguous entries, one a sequence of cu_seqlens_q, got "
                f"{value.numel()} with stride {value.stride(0)}"
            )
