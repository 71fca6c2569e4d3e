"""Which fp8 attention problems Hopper's own forward pass takes, how they are cut, its launches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from kernels.attention.common.numerics.fp8_scales import Scales
from kernels.attention.common.problem import Problem
from kernels.attention.hopper.descriptors import copyable, described
from kernels.attention.hopper.forward.launch import ROWS
from kernels.attention.hopper.packed.tiles import listed
from kernels.attention.hopper.problem import BEYOND
from kernels.attention.hopper.tile_order import heads_together
from kernels.device import hopper_rings as ring
from kernels.device.configurations import constants
from kernels.runtime import targets
from kernels.runtime.addressing import LIMIT
from kernels.runtime.launch import noted

from .kernel import attention_forward_fp8_hopper
from .prepare import KEYS, columns, prepare, turnable

# Of Triton 3.7 three warpgroups spill 4 bytes at head dims 65 to 128, of 3.6 none but of packed
# sequences.
THREE_SPILL = not str(triton.__version__).startswith("3.6.")
# Below them the portable kernel serves: up to head dim 64 it is as fast for 64 queries over 4096
# keys, above it was not timed with fewer than 16.
FEWEST_QUERIES = {64: 65, 256: 16}
# Of packed sequences in the mean: with fewer, the rooms that their values are turned around into
# would be many times what the values take.
FEWEST_KEYS = 32
WIDEST = 256  # keys a block has


@dataclass(frozen=True)
class Fp8HopperConfig:
    """As ``hopper.HopperConfig``; the output is multiplied in ``parts`` of its columns, all of
    which would need too many registers at once. Outputs of fp32 above head dim 128 want two or
    more: ``launch`` refuses one with ``ValueError``."""

    consumers: int = field(metadata={"values": (2, 3)})
    block_n: int = field(metadata={"values": (64, 128, 256)})
    stages: int = field(metadata={"values": (2, 3, 4)})
    pairs: bool = field(default=False, metadata={"values": (False, True)})
    q_stages: int = field(default=1, metadata={"values": (1, 2)})
    skip: bool = field(default=False, metadata={"values": (False, True)})
    parts: int = field(default=1, metadata={"values": (1, 2, 4, 8)})


def choose(head_dim: int, seqlen_q: int, causal: bool, mean: int | None = None) -> Fp8HopperConfig:
    """The cut of a problem; docs/log/kernels/hopper/forward-fp8.md has the measurements. Of packed
    sequences ``seqlen_q`` is the longest one's, and ``mean`` what they have in the mean."""
    packed = mean is not None
    if head_dim > 128:
        return Fp8HopperConfig(2, block_n=128, stages=2, pairs=causal, parts=8)
    # Three warpgroups are faster of long sequences; of full ones also where others are short.
    rows = min(seqlen_q, mean) if mean is not None and causal else seqlen_q
    if rows < 2048 or (head_dim > 64 and (THREE_SPILL or packed)):
        # Of short packed sequences most of 256 keys would be none.
        if head_dim <= 64 and not causal and not (packed and seqlen_q < 1024):
            return Fp8HopperConfig(2, block_n=256, stages=2, q_stages=2)
        return Fp8HopperConfig(2, block_n=128, stages=3, pairs=causal and packed, q_stages=2)
    if head_dim > 64:
        return Fp8HopperConfig(3, block_n=128, stages=2)
    return Fp8HopperConfig(3, block_n=128, stages=3, skip=causal)


def supported(problem: Problem) -> bool:
    """Whether this kernel takes the problem: on Hopper, enough queries, strides it can read, at
    most causal."""
    q, k, v, packed = problem.q, problem.k, problem.v, problem.packed
    head_dim, rows = q.shape[3], problem.lengths[0]
    if problem.mask.left is not None or problem.options.softcap is not None:
        return False
    if packed is not None:
        batch = len(q)
        # The batch is the same rows again, which descriptors of packed sequences know.
        q, k, v = q[:1], k[:1], v[:1]
        if max(q.shape[1], k.shape[1]) > BEYOND.value:
            return False
        if k.shape[1] < FEWEST_KEYS * batch or columns(k.shape[1], WIDEST, batch) >= LIMIT:
            return False
    return (
        targets.current().has_wgmma
        and q.dtype == torch.float8_e4m3fn
        and head_dim == v.shape[3] <= 256
        and head_dim % 8 == 0
        and rows >= FEWEST_QUERIES[64 if head_dim <= 64 else 256]
        and problem.scale > 0.0
        and copyable(q)
        and copyable(k)
        and turnable(v)
    )


def launch(
    problem: Problem,
    out: torch.Tensor,
    lse: torch.Tensor,
    scales: Scales,
    config: Fp8HopperConfig | None = None,
) -> None:
    """Fill ``out`` and ``lse`` for arguments that ``supported`` accepts, in two launches; of packed
    sequences after one that lists tiles, and the mask counts from each one's corner."""
    q, k, v, packed, scale = problem.q, problem.k, problem.v, problem.packed, problem.scale
    batch, seqlen_q, heads, head_dim = q.shape
    if config is None:
        mean = None if packed is None else seqlen_q // batch
        config = choose(head_dim, problem.lengths[0], problem.mask.causal, mean)
    block_d = max(64, triton.next_power_of_2(head_dim))
    # Of fp32 more columns than 128 leave no memory for keys.
    of_box = min(128 if out.dtype == torch.float32 else block_d, block_d)
    if block_d // config.parts > of_box:
        raise ValueError(
            f"parts: fp32 outputs of head dim {head_dim} want {block_d // of_box} or more, "
            f"got {config.parts}"
        )

    with targets.on_device_of(q):
        processors = targets.multiprocessors()
        block_m, room = ROWS * config.consumers, 0
        if packed is None:
            tiles, programs = None, triton.cdiv(seqlen_q, block_m) * heads * batch
            values, factors = prepare(v, heads, scale, scales)
        else:
            # By head as hopper/forward/launch.py has it.
            by_head = not problem.mask.causal or head_dim > 128 or problem.lengths[0] > 1024
            by_head, room = by_head and config.consumers == 2, max(KEYS, config.block_n)
            tiles, programs = listed(
                problem, block_m, pairs=config.pairs, by_head=by_head, programs=processors,
                spare=processors,
            )  # fmt: skip
            values, factors = prepare(v[:1], heads, scale, scales, packed.keys, room)
        noted(attention_forward_fp8_hopper, (min(programs, processors),))(
            described(packed, q, ROWS, block_d),
            described(packed, k, config.block_n, block_d),
            ring.boxes(values, (1, 1, block_d, config.block_n)),
            described(packed, out, ROWS, of_box),
            lse,
            factors,
            tiles,
            heads,
            heads // k.shape[2],
            batch,
            seqlen_q,
            k.shape[1],
            problem.mask.offset,
            # Keys of 8 bits take half the room in L2.
            heads_together(
                heads * batch, triton.cdiv(seqlen_q, block_m), processors, 2 * heads // k.shape[2]
            ),
            **constants(config, "consumers", "block_n", "stages", "pairs", "q_stages", "skip"),
            PARTS=config.parts,
            HEAD_DIM=block_d,
            CAUSAL=problem.mask.causal,
            BY_SEQUENCE=scales.by_sequence,
            ROOM=room,
            num_warps=4,
        )
