"""What lies behind the last of packed sequences, and behind the rows of each that are used: zeros,
in outputs and gradients.

A buffer of fixed size may hold fewer tokens than it has rows, and only the device knows. What
follows the attention reads all rows: a NaN there, times a gradient of 0, is a NaN in the gradient
of a weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.runtime import targets
from kernels.runtime.launch import noted

from .sequences import Begins, begins, behind, bounds

AT_ONCE = tl.constexpr(2048)
MOST_PROGRAMS = 256  # which have nothing to do where sequences fill the buffer


@triton.jit
def _zeros(x, first, end, part, parts):
    o = tl.arange(0, AT_ONCE)
    for i in range(first + part * AT_ONCE, end, parts * AT_ONCE):
        tl.store(x + i + o, tl.zeros([AT_ONCE], x.dtype.element_ty), mask=i + o < end)


@triton.jit
def _fill(x, y, lse, first, end, heads, tokens, width_x, width_y, part, parts):
    """A part of zeros in rows from ``first`` up to ``end`` of x (tokens, width_x) and, unless None,
    of y, and of -inf in those of lse (heads, tokens), unless that is None."""
    o_first, o_end = first.to(tl.int64), end.to(tl.int64)
    _zeros(x, o_first * width_x, o_end * width_x, part, parts)
    if y is not None:
        _zeros(y, o_first * width_y, o_end * width_y, part, parts)
    if lse is not None:
        o = tl.arange(0, AT_ONCE)
        rest = (end - first).to(tl.int64)
        for i in range(part * AT_ONCE, rest * heads, parts * AT_ONCE):
            row = (i + o) // rest * tokens.to(tl.int64) + first + (i + o) % rest
            tl.store(lse + row, float("-inf"), mask=i + o < rest * heads)


@triton.jit
def _clear(x, y, lse, cu, batch, heads, tokens, width_x, width_y):
    """``_fill`` of all rows that no sequence of ``cu`` uses."""
    last = tl.load(begins(cu) + batch)
    program, programs = tl.program_id(0), tl.num_programs(0)
    _fill(x, y, lse, last, tokens, heads, tokens, width_x, width_y, program, programs)
    if not isinstance(cu, tl.tensor):
        # Programs share out sequences, and of each its rows where there are more programs.
        parts = tl.maximum(programs // tl.maximum(batch, 1), 1)
        for i_b in range(program // parts, batch, programs // parts):
            o_first, rows = bounds(cu, i_b)
            end = behind(cu, i_b, o_first, rows)
            _fill(
                x, y, lse, o_first + rows, end, heads, tokens, width_x, width_y,
                program % parts, parts,
            )  # fmt: skip


@triton.jit(do_not_specialize=["batch", "tokens_q", "tokens_k", "width_q", "width_k", "width_v"])
def clear_behind(
    q, k, v, lse, cu_q, cu_k, batch, heads, tokens_q, tokens_k, width_q, width_k, width_v
):  # fmt: skip
    """Zeros in what no sequence uses of q (tokens_q, width_q) and, unless None, of k and v, as
    ``cu_q`` and ``cu_k`` tell (``Begins`` in common/packed/sequences.py); -inf there in lse (heads,
    tokens_q), unless that is None."""
    _clear(q, None, lse, cu_q, batch, heads, tokens_q, width_q, None)
    if k is not None:
        _clear(k, v, None, cu_k, batch, heads, tokens_k, width_k, width_v)


def programs_for(*tensors: torch.Tensor | None) -> int:
    """How many programs clear what may lie behind in these."""
    most = max(one.numel() for one in tensors if one is not None)
    return max(1, min(MOST_PROGRAMS, triton.cdiv(most, AT_ONCE.value)))


def clear(
    q: torch.Tensor,
    cu_q: Begins,
    *,
    lse: torch.Tensor | None = None,
    keys: tuple[torch.Tensor, torch.Tensor] | None = None,
    cu_k: Begins | None = None,
) -> None:
    """Of outputs or gradients (tokens, heads, head_dim), ``keys`` those of keys and values, and of
    ``lse`` (heads, tokens), all contiguous."""
    k, v = keys or (None, None)
    batch = (cu_q if isinstance(cu_q, torch.Tensor) else cu_q[0]).numel() - 1
    widths = (0 if one is None else one.shape[1] * one.shape[2] for one in (q, k, v))
    with targets.on_device_of(q, "q"):
        noted(clear_behind, (programs_for(q, k, v),))(
            q, k, v, lse, cu_q, cu_q if cu_k is None else cu_k, batch, q.shape[1], q.shape[0],
            0 if k is None else k.shape[0], *widths,
        )  # fmt: skip
