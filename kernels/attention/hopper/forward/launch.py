"""Which attention problems Hopper's forward pass takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Problem
from kernels.attention.hopper.descriptors import columns, copyable, described
from kernels.attention.hopper.packed.tiles import listed
from kernels.attention.hopper.problem import BEYOND
from kernels.attention.hopper.tile_order import heads_together
from kernels.device import hopper_rings as ring
from kernels.device.configurations import constants
from kernels.runtime import targets
from kernels.runtime.launch import noted

from . import tail_cut
from .kernel import attention_forward_hopper

ROWS = ring.ROWS.value  # of Q that one warpgroup owns
# Up to head dim 128 the portable kernel's smaller blocks are as fast where packed sequences, or any
# in a window, have no more queries than this, or a window fewer keys.
FEW_ROWS, NARROW = 64, 256
# Up to so many causal rows pairs are faster than groups of heads above head dim 128. At head dims
# 65 to 128 all blocks come in pairs up to there.
FEW_FOR_PAIRS = 1024
# Keys of a window from which groups of heads are faster above head dim 128, where heads share keys.
FAR = 4096
# Keys of a window up to which blocks of 64 keys, of which fewer are hidden, are faster.
FEW_KEYS = 256
# Rows from which full attention at head dims 65 to 128 is faster cut as hopper/forward/tail_cut.py
# does.
FEWEST_FOR_TAILS = 1024


@dataclass(frozen=True)
class HopperConfig:
    """``64 * consumers`` query rows a program, keys a block, and the ring that brings them.

    ``in_turns`` is described in hopper/forward/kernel.py; ``pairs`` and ``last_alone``, of the
    last of them, in hopper/tile_order.py; ``by_head``, which only packed sequences have, in
    hopper/packed/tiles.py; ``tails``, of full attention over a plain batch, in
    hopper/forward/tail_cut.py. With ``once``, where a plain batch has no more tiles than there are
    multiprocessors, a program requests its tile's first copies before its warps part; pairs and
    tails have nothing of it. With ``ahead`` programs of many tiles of a plain batch find the next
    one's place while values are multiplied.
    """

    consumers: int = field(metadata={"values": (1, 2, 3)})
    block_n: int = field(metadata={"values": (64, 128, 256)})
    stages: int = field(metadata={"values": (2, 3, 4)})
    in_turns: bool = field(default=True, metadata={"values": (False, True)})
    pairs: bool = field(default=False, metadata={"values": (False, True)})
    last_alone: bool = field(default=False, metadata={"values": (False, True)})
    q_stages: int = field(default=1, metadata={"values": (1, 2)})
    skip: bool = field(default=False, metadata={"values": (False, True)})
    by_head: bool = False
    tails: bool = field(default=False, metadata={"values": (False, True)})
    once: bool = field(default=False, metadata={"values": (False, True)})
    ahead: bool = field(default=False, metadata={"values": (False, True)})


def choose(
    head_dim: int,
    seqlen_q: int,
    causal: bool,
    *,
    seqlen_k: int,
    n_heads: int,
    multiprocessors: int,
    packed: bool = False,
    window: int | None = None,
    sharing: int = 1,
) -> HopperConfig:
    """The cut of a problem; docs/log/kernels/hopper/forward.md has the measurements.

    ``n_heads`` counts those of all entries of the batch, ``window`` the keys before the last of a
    row that it sees, None for all; ``sharing`` heads have the same keys.
    """
    windowed = window is not None

    def at_once(rows: int, turns: int = 1) -> bool:
        """Whether the multiprocessors have no more than so many blocks of rows each."""
        return not packed and triton.cdiv(seqlen_q, rows) * n_heads <= turns * multiprocessors

    # Causal blocks differ: the second of a program is the shorter, the longer the first.
    halves = causal and not windowed and 64 < head_dim <= 128 and seqlen_k <= seqlen_q
    plain = not (packed or windowed)
    once = plain and head_dim <= 64 and at_once(2 * ROWS)
    if at_once(ROWS, 2 if halves else 1):
        return HopperConfig(
            1, block_n=128 if head_dim <= 128 else 64, stages=2, in_turns=False, once=once
        )
    # A program that walks a pair leaves another idle where each could have one.
    pairs = not at_once(2 * ROWS)
    few = seqlen_q <= FEW_FOR_PAIRS
    if head_dim > 128:
        far = window is not None and window >= FAR and sharing > 1 and not packed
        pairs = pairs and (few or not (plain or far))
        # Skipping knows blocks that only later rows see, a window has others too.
        return HopperConfig(
            2,
            block_n=64,
            stages=2,
            pairs=causal and pairs,
            q_stages=1,
            skip=not windowed,
            by_head=packed,
        )
    full = plain and not causal
    if full and 16 < head_dim <= 64 and 128 < seqlen_k <= 256:
        return HopperConfig(2, block_n=256, stages=2, q_stages=2, once=once, ahead=True)
    if plain and causal and 32 < head_dim <= 64 and seqlen_q <= 256:
        return HopperConfig(
            2, block_n=64, stages=4, q_stages=2, skip=True, in_turns=False, once=once
        )
    if head_dim > 64 or windowed:
        three = False
    elif full:
        three = tail_cut.three_are_faster(seqlen_q, n_heads, multiprocessors)
    else:
        three = seqlen_q >= (2048 if causal else 512)
    if three:
        return HopperConfig(3, block_n=128, stages=2, q_stages=1, skip=True, tails=full)
    pairs = causal and pairs and (packed or (head_dim > 64 and not windowed))
    few_keys = window is not None and window <= FEW_KEYS and not packed
    return HopperConfig(
        2,
        block_n=64 if few_keys else 128,
        stages=4 if few_keys else 2,
        pairs=pairs,
        last_alone=pairs and plain and not few,
        q_stages=2,
        by_head=packed and (not causal or seqlen_q > 1024),
        tails=full and head_dim > 64 and seqlen_q >= FEWEST_FOR_TAILS,
        once=once,
        # Three warpgroups are slower so; packed sequences were not timed.
        ahead=plain and head_dim <= 64,
    )


def supported(problem: Problem) -> bool:
    """Whether this kernel takes the problem, and the portable one is not as fast."""
    mask, head_dim = problem.mask, problem.q.shape[3]
    if mask.left is not None and head_dim <= 128:
        narrow = mask.offset - mask.left < NARROW or problem.lengths[0] <= FEW_ROWS
        if head_dim <= 64 or narrow:
            return False
    return (mask.causal or mask.left is None) and copied(problem)


def copied(problem: Problem) -> bool:
    """Whether it is of 16 bits, on Hopper, with strides that the copy engine takes, and of packed
    sequences with rows enough."""
    q, k, v, head_dim = problem.q, problem.k, problem.v, problem.q.shape[3]
    if problem.packed is not None:
        if problem.lengths[0] <= FEW_ROWS and head_dim <= 128:
            return False
        # The batch is the same rows again, which descriptors of packed sequences know.
        q, k, v = q[:1], k[:1], v[:1]
        if max(q.shape[1], k.shape[1]) > BEYOND.value:
            return False
    return (
        targets.current().has_wgmma
        and q.dtype in (torch.float16, torch.bfloat16)
        and head_dim <= 256
        and head_dim % 8 == 0
        and problem.scale > 0.0
        and all(copyable(x) for x in (q, k, v))
    )


def launch(
    problem: Problem,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    rows: torch.Tensor | None = None,
    config: HopperConfig | None = None,
) -> None:
    """Fill ``out``, ``lse`` and ``rows`` as ``forward.launch`` does, for what ``supported``
    accepts."""
    q, k, v, packed = problem.q, problem.k, problem.v, problem.packed
    causal, causal_offset, left_offset = problem.mask
    batch, seqlen_q, heads, head_dim = q.shape
    block_d, rest, split = columns(head_dim, causal)

    with targets.on_device_of(q):
        processors = targets.multiprocessors()
        config = config or choose(
            head_dim,
            problem.lengths[0],
            causal,
            seqlen_k=k.shape[1],
            n_heads=heads * batch,
            multiprocessors=processors,
            packed=packed is not None,
            window=None if left_offset is None else causal_offset - left_offset,
            sharing=heads // k.shape[2],
        )
        full = not causal and left_offset is None and packed is None
        block_m = ROWS * config.consumers
        per_head = triton.cdiv(seqlen_q, block_m)
        tiles, cut, programs = None, (0, 0, 1), per_head * heads * batch
        # Of a window's keys L2 holds those of more heads.
        sharing = heads // k.shape[2] * (1 if left_offset is None or head_dim > 128 else 2)
        # Of one tile a program the grid has three axes.
        once = config.once and not (config.pairs or config.tails) and programs <= processors
        once = once and packed is None
        if packed is not None:
            tiles, programs = listed(
                problem, block_m, pairs=config.pairs, by_head=config.by_head, programs=processors,
                spare=processors,
            )  # fmt: skip
        elif full and config.tails:
            programs = processors
            cut = tail_cut.cut(seqlen_q, heads * batch, config.consumers, processors)
        grid = (per_head, heads, batch) if once else (min(programs, processors),)
        noted(attention_forward_hopper, grid)(
            described(packed, q, ROWS, block_d),
            described(packed, k, config.block_n, block_d),
            described(packed, v, config.block_n, block_d),
            described(packed, out, ROWS, block_d),
            lse,
            rows,
            tiles,
            heads,
            heads // k.shape[2],
            batch,
            seqlen_q,
            k.shape[1],
            causal_offset,
            left_offset,
            heads_together(heads * batch, per_head, processors, sharing),
            *cut,
            problem.scale * LOG2_E,
            **constants(config, "consumers", "block_n", "stages", "pairs", "last_alone"),
            HEAD_DIM=block_d,
            REST=rest,
            SPLIT=split,
            CAUSAL=causal,
            IN_TURNS=config.in_turns and config.consumers > 1,
            OUT_IN_Q=block_d > 128,
            Q_STAGES=1 if once else config.q_stages,
            SKIP=config.skip and left_offset is None,  # a window hides other blocks, too
            TAILS=full and config.tails,
            EVEN=full and k.shape[1] % config.block_n == 0,
            ONE=full and k.shape[1] <= config.block_n,
            ONCE=once,
            # A list of tiles has no room for a round behind its last.
            AHEAD=config.ahead and not once and packed is None,
            num_warps=4,
        )
