"""Few queries over many keys: the decoding kernel, which packs heads and splits keys, serves."""

from __future__ import annotations

import torch

from kernels.attention.common.problem import Problem
from kernels.runtime import targets

from . import launch as kvcache_launch
from .cache import Cache

# A tile of queries is a program to the other kernels, whatever it holds, and reads its head's keys
# alone. Below MANY keys that is little.
FEW = 16
MANY = 512
# On Hopper so do up to SOME queries over MANY_FOR_SOME keys where the other kernel's programs, of
# ROWS queries, would leave one multiprocessor of three idle; at head dims above SOME_COLUMNS, whose
# parts cost more, two of three, over KEYS_A_PROGRAM for each of them. The measurements are in
# docs/log/kernels/hopper/decoding.md.
SOME = 256
MANY_FOR_SOME = 1024
ROWS = 64
SOME_COLUMNS = 128
KEYS_A_PROGRAM = 128


def supported(problem: Problem) -> bool:
    """Whether q (batch, seqlen_q, heads, head_dim) is short and k long enough, no sequences are
    packed, and scores have a mask at most."""
    if problem.packed is not None or not problem.options.plain:
        return False
    q, k, v, scale = problem.q, problem.k, problem.v, problem.scale
    batch, seqlen_q, heads, head_dim = q.shape
    if k.shape[1] < MANY or q.dtype.itemsize != 2 or scale <= 0.0:
        return False
    if seqlen_q <= FEW:
        return True
    if seqlen_q > SOME or k.shape[1] < MANY_FOR_SOME:
        return False
    # A window's keys are few.
    if problem.mask.left is not None or not targets.current().has_wgmma:
        return False
    programs, processors = -(-seqlen_q // ROWS) * heads * batch, targets.multiprocessors()
    if head_dim <= SOME_COLUMNS:
        return 3 * programs <= 2 * processors
    fit = 3 * programs <= processors and k.shape[1] >= KEYS_A_PROGRAM * programs
    # Through registers these head dims spill.
    return fit and kvcache_launch.copied_ahead(k) and kvcache_launch.copied_ahead(v)


def launch(problem: Problem, out: torch.Tensor, lse: torch.Tensor) -> None:
    """As ``forward.launch`` without options; k and v are a cache that is full."""
    q, k, v, (causal, offset, left) = problem.q, problem.k, problem.v, problem.mask
    aligned = k.shape[1] - q.shape[1]  # what decoding counts from
    left = None if left is None else left - aligned
    asked = kvcache_launch.Decoding(causal, offset - aligned, left, problem.scale)
    cache = Cache(k, v, None, k.shape[1], None, None, None, None)
    kvcache_launch.launch(q, cache, out, lse, asked)
