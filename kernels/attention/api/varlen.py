"""Attention over packed sequences: what it accepts, and its operators for torch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.options import Options, checked
from kernels.attention.operators.fp8 import dense as fp8_interface
from kernels.attention.operators.fp8 import varlen as fp8_varlen
from kernels.attention.operators.varlen import ASKED, attend
from kernels.runtime import autocast, checks

LAYOUT = "(tokens, heads, head_dim)"


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

    q: (tokens_q, heads, head_dim), k: (tokens_k, kv_heads, head_dim), v: (tokens_k, kv_heads,
    head_dim_v). ``cu_seqlens_q``, ``cu_seqlens_k``: int32, (batch + 1,), from 0 up to the number of
    tokens: sequence i owns the rows from entry i up to entry i + 1, and may be empty.
    ``max_seqlen_q``, ``max_seqlen_k``: the longest sequence; rows of a sequence beyond it are left
    unwritten. Rows behind the last entry are no sequence's and not read: their output and gradients
    are 0, their log-sum-exp is -inf. No entry is checked, which would wait for the GPU.

    ``seqused_q``, ``seqused_k``: int32, (batch,): of the rows that sequence i owns the first
    ``seqused[i]`` alone are queries, or keys; masks are aligned by these. The other rows are as
    those behind the last entry, and the longest sequences may be those of used rows.

    ``causal``, ``window_size`` and ALiBi are aligned bottom-right in each sequence; ``softcap``,
    ``alibi_slopes``, ``sinks``, dropout and ``exact_gradients`` are as ``flash_attention`` takes
    them. ``return_lse`` adds the log-sum-exp, (heads, tokens_q). Differentiable, with the same bits
    at every run. On Hopper the forward pass has a kernel of its own, and so have most gradients up
    to head dim 128, where a NaN or inf in k or v makes dq of all queries of its head and sequence
    NaN (docs/hopper/backward.md).

    q, k and v may be e4m3, forward alone, with ``q_scale``, ``k_scale``, ``v_scale`` and
    ``out_dtype`` as ``flash_attention`` takes them: scales of (batch, heads) have a row a sequence.
    On Hopper its own kernel serves where it takes ``flash_attention``'s, and scales below 0 are
    what they are there.
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
    if in_fp8:
        fp8_interface.check_options(q, Options(*options))
    scale = checks.softmax_scale(softmax_scale, q.shape[2])
    return_lse = checks.flag("return_lse", return_lse)
    checks.launchable("q", q)
    if in_fp8:
        sequences, masks = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), (right, left)
        used = (seqused_q, seqused_k)
        out, lse = fp8_varlen.attend(q, k, v, *sequences, causal, *masks, scale, *used, **low)
        return (out, lse) if return_lse else out
    out, lse, _ = attend(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        causal,
        right,
        left,
        scale,
        *options[: len(ASKED)],
        return_lse,
        seqused_q,
        seqused_k,
    )
    return (out, lse) if return_lse else out


def _check(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any) -> None:
    for name, value in (("q", q), ("k", k), ("v", v)):
        checks.tensor(name, value, rank=3, layout=LAYOUT)
    spread = (one.unsqueeze(0) for one in (q, k, v))
    shapes.check(*spread, layout=LAYOUT, head_axis=2, dtypes=fp8_interface.ALL_DTYPES)
    shapes.check_lengths(q, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    if cu_q.numel() != cu_k.numel():
        raise ValueError(
            f"cu_seqlens_k: expected {cu_q.numel()} entries as cu_seqlens_q has, got {cu_k.numel()}"
        )


def _check_used(q: torch.Tensor, batch: int, **used: Any) -> None:
    for name, value in used.items():
        if value is None:
            continue
        checks.tensor(name, value, rank=1, layout="(batch,)")
        checks.dtype(name, value, (torch.int32,))
        checks.same_device("q", q, **{name: value})
        if value.numel() != batch or not value.is_contiguous():
            raise ValueError(
                f"{name}: expected {batch} contiguous entries, one a sequence of cu_seqlens_q, got "
                f"{value.numel()} with stride {value.stride(0)}"
            )
