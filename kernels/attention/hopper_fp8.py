"""Which fp8 attention problems Hopper's own forward pass takes, how they are cut, its launches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .. import hopper as ring
from .. import targets
from .fp8 import Scales
from .hopper import ROWS, copyable, descriptor
from .hopper_fp8_forward import attention_forward_fp8_hopper
from .hopper_fp8_prepare import prepare, turnable

# Of Triton 3.7 three warpgroups spill 4 bytes at head dims 65 to 128, of 3.6 none.
THREE_SPILL = not str(triton.__version__).startswith("3.6.")
# Below them the portable kernel serves: up to head dim 64 it is as fast for 64 queries over 4096
# keys, above it was not timed with fewer than 16.
FEWEST_QUERIES = {64: 65, 256: 16}


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


def choose(head_dim: int, seqlen_q: int, causal: bool) -> Fp8HopperConfig:
    """The cut of a problem; docs/hopper/forward-fp8.md holds the measurements behind it."""
    if head_dim > 128:
        return Fp8HopperConfig(2, block_n=128, stages=2, pairs=causal, parts=8)
    if seqlen_q < 2048 or (head_dim > 64 and THREE_SPILL):
        if head_dim <= 64 and not causal:
            return Fp8HopperConfig(2, block_n=256, stages=2, q_stages=2)
        return Fp8HopperConfig(2, block_n=128, stages=3, pairs=causal, q_stages=2)
    if head_dim > 64:
        return Fp8HopperConfig(3, block_n=128, stages=2)
    return Fp8HopperConfig(3, block_n=128, stages=3, skip=causal)


def supported(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> bool:
    """Whether this kernel takes the problem: on Hopper, enough queries, strides it can read."""
    head_dim = q.shape[3]
    return (
        targets.current().has_wgmma
        and q.dtype == torch.float8_e4m3fn
        and head_dim == v.shape[3] <= 256
        and head_dim % 8 == 0
        and q.shape[1] >= FEWEST_QUERIES[64 if head_dim <= 64 else 256]
        and scale > 0.0
        and copyable(q)
        and copyable(k)
        and turnable(v)
    )


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    scales: Scales,
    causal: bool,
    causal_offset: int,
    scale: float,
    config: Fp8HopperConfig | None = None,
) -> None:
    """Fill ``out`` and ``lse`` for arguments that ``supported`` accepts, in two launches."""
    batch, seqlen_q, heads, head_dim = q.shape
    config = config or choose(head_dim, seqlen_q, causal)
    consumer_registers, producer_registers = ring.registers(config.consumers)
    block_d = max(64, triton.next_power_of_2(head_dim))
    # Of fp32 more columns than 128 leave no memory for keys.
    columns = min(128 if out.dtype == torch.float32 else block_d, block_d)
    if block_d // config.parts > columns:
        raise ValueError(
            f"parts: fp32 outputs of head dim {head_dim} want {block_d // columns} or more, "
            f"got {config.parts}"
        )
    tiles = triton.cdiv(seqlen_q, ROWS * config.consumers) * heads * batch
    with targets.on_device_of(q):
        values, factors = prepare(v, heads, scale, scales)
        block = (1, 1, block_d, config.block_n)
        attention_forward_fp8_hopper[(min(tiles, targets.multiprocessors()),)](
            descriptor(q, ROWS, block_d),
            descriptor(k, config.block_n, block_d),
            TensorDescriptor(
                values,
                list(values.shape),
                list(values.stride()),
                list(block),
                ring.layout(block, values.dtype),
            ),
            descriptor(out, ROWS, columns),
            lse,
            factors,
            heads,
            heads // k.shape[2],
            batch,
            seqlen_q,
            k.shape[1],
            causal_offset,
            CONSUMERS=config.consumers,
            BLOCK_N=config.block_n,
            HEAD_DIM=block_d,
            STAGES=config.stages,
            CAUSAL=causal,
            BY_SEQUENCE=scales.by_sequence,
            PAIRS=config.pairs,
            Q_STAGES=config.q_stages,
            SKIP=config.skip,
            PARTS=config.parts,
            CONSUMER_REGISTERS=consumer_registers,
            PRODUCER_REGISTERS=producer_registers,
            num_warps=4,
        )
