"""Scores of a block become weights in registers: masks, and one step of the online softmax."""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.device.hopper_rings import ROWS

NAN_TOO = gl.constexpr(tl.PropagateNan.ALL)


@gluon.jit
def mask(s, row, i_block, own, problem, LEFT_ALONE: gl.constexpr):
    """Scores without those that a row does not see."""
    LAYOUT: gl.constexpr = s.type.layout
    # A column is what its lane adds (bits 1 and 2) and a constant. Only the constant stays on the
    # left: it becomes part of an instruction, where 32 sums would each take a register.
    o_n = gl.arange(0, problem.BLOCK_N, gl.SliceLayout(0, LAYOUT))
    constant = (o_n & ~6)[None, :]
    last = own.seqlen_k - 1 - i_block * problem.BLOCK_N
    if LEFT_ALONE:
        pass
    elif problem.CAUSAL:
        diagonal = row + own.causal_offset - i_block * problem.BLOCK_N
        last = gl.minimum(diagonal + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)), last)
        s = gl.where(constant <= last[:, None] - (o_n & 6)[None, :], s, float("-inf"))
    else:
        s = gl.where(constant <= last - (o_n & 6)[None, :], s, float("-inf"))
    if problem.WINDOW:
        first = row + own.left_offset - i_block * problem.BLOCK_N
        first = first + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        s = gl.where(constant >= first[:, None] - (o_n & 6)[None, :], s, float("-inf"))
    return s


@gluon.jit
def _larger(a, b):
    """NaN if either is; the instruction is as fast as the one that passes over it."""
    return gl.maximum(a, b, propagate_nan=NAN_TOO)


@gluon.jit
def softmax_step(s, maximum, total, scale_log2, MASKED: gl.constexpr):
    """One step of the online softmax: exponentials, maximum and sum, and the old ones' factor."""
    new = _larger(maximum, gl.reduce(s, 1, _larger))
    shift = new * scale_log2
    if MASKED:
        # A row that has seen no key yet keeps -inf as maximum: subtract 0, or NaN would arise.
        shift = gl.where(new == float("-inf"), 0.0, shift)
    factor = gl.exp2(maximum * scale_log2 - shift)
    p = gl.exp2(s * scale_log2 - shift[:, None])
    return p, new, total * factor + gl.sum(p, 1), factor
