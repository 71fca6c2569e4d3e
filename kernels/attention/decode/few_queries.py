"""Few queries over many keys: the decoding kernel, which packs heads and splits keys, serves."""

from __future__ import annotations

import torch

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


def supported(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, left_offset: int | None
) -> bool:
    """Whether q (batch, seqlen_q, heads, head_dim) is short and k long enough."""
    batch, seqlen_q, heads, head_dim = q.shape
    if k.shape[1] < MANY or q.dtype.itemsize != 2 or scale <= 0.0:
        return False
    if seqlen_q <= FEW:
        return True
    if seqlen_q > SOME or k.shape[1] < MANY_FOR_SOME:
        return False
    # A window's keys are few.
    if left_offset is not None or not targets.current().has_wgmma:
        return False
    programs, processors = -(-seqlen_q // ROWS) * heads * batch, targets.multiprocessors()
    if head_dim <= SOME_COLUMNS:
        return 3 * programs <= 2 * processors
    fit = 3 * programs <= processors and k.shape[1] >= KEYS_A_PROGRAM * programs
    # Through registers these head dims spill.
    return fit and kvcache_launch.copied_ahead(k) and kvcache_launch.copied_ahead(v)


def launch(
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
) -> None:
    """As ``forward.launch`` without options; k and v are a cache that is full."""
    aligned = k.shape[1] - q.shape[1]  # what decoding counts from
    left = None if left_offset is None else left_offset - aligned
    asked = kvcache_launch.Decoding(causal, causal_offset - aligned, left, scale)
    cache = Cache(k, v, None, k.shape[1], None, None, None, None)
    kvcache_launch.launch(q, cache, out, lse, asked)
