"""What lies behind the last of packed sequences: zeros, in outputs and gradients.

A buffer of fixed size may hold fewer tokens than it has rows, and only the device knows. What
follows the attention reads all rows: a NaN there, times a gradient of 0, is a NaN in the gradient
of a weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import targets

AT_ONCE = 2048
MOST_PROGRAMS = 256  # which have nothing to do where sequences fill the buffer


@triton.jit
def _fill(x, first, end, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    for i in range(first + tl.program_id(0) * BLOCK, end, tl.num_programs(0) * BLOCK):
        tl.store(x + i + o, tl.zeros([BLOCK], x.dtype.element_ty), mask=i + o < end)


@triton.jit(do_not_specialize=["batch", "tokens_q", "tokens_k", "width_q", "width_k", "width_v"])
def clear_behind(
    q, k, v, lse, cu_q, cu_k, batch, heads, tokens_q, tokens_k, width_q, width_k, width_v,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Zeros in q (tokens_q, width_q) from row ``cu_q[batch]`` on, and in k and v, unless None, from
    ``cu_k[batch]``; -inf in lse (heads, tokens_q), unless that is None."""
    o_q = tl.load(cu_q + batch)
    _fill(q, o_q.to(tl.int64) * width_q, tokens_q.to(tl.int64) * width_q, BLOCK)
    if k is not None:
        o_k = tl.load(cu_k + batch).to(tl.int64)
        _fill(k, o_k * width_k, tokens_k.to(tl.int64) * width_k, BLOCK)
        _fill(v, o_k * width_v, tokens_k.to(tl.int64) * width_v, BLOCK)
    if lse is not None:
        o = tl.arange(0, BLOCK)
        rest = (tokens_q - o_q).to(tl.int64)
        for i in range(tl.program_id(0) * BLOCK, rest * heads, tl.num_programs(0) * BLOCK):
            row = (i + o) // rest * tokens_q.to(tl.int64) + o_q + (i + o) % rest
            tl.store(lse + row, float("-inf"), mask=i + o < rest * heads)


def clear_outputs(out: torch.Tensor, lse: torch.Tensor, cu_q: torch.Tensor) -> None:
    """``out`` (tokens, heads, head_dim) and ``lse`` (heads, tokens), contiguous."""
    _launch(out, None, None, lse, cu_q, cu_q)


def clear_gradients(
    dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor
) -> None:
    """(tokens, heads, head_dim) each, contiguous."""
    _launch(dq, dk, dv, None, cu_q, cu_k)


def programs_for(*tensors: torch.Tensor | None) -> int:
    """How many programs clear what may lie behind in these."""
    most = max(one.numel() for one in tensors if one is not None)
    return max(1, min(MOST_PROGRAMS, triton.cdiv(most, AT_ONCE)))


def _launch(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    lse: torch.Tensor | None,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
) -> None:
    widths = (0 if one is None else one.shape[1] * one.shape[2] for one in (q, k, v))
    with targets.on_device_of(q, "q"):
        clear_behind[(programs_for(q, k, v),)](
            q, k, v, lse, cu_q, cu_k, cu_q.numel() - 1, q.shape[1], q.shape[0],
            0 if k is None else k.shape[0], *widths, BLOCK=AT_ONCE,
        )  # fmt: skip
