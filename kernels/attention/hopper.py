"""Which attention problems Hopper's forward pass takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .. import hopper as ring
from .. import targets
from .hopper_forward import attention_forward_hopper

ROWS = 64  # of Q that one warpgroup owns: the M of wgmma
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class HopperConfig:
    """``64 * consumers`` query rows a program, keys a block, and the ring that brings them.

    ``pairs`` and ``in_turns`` are told in hopper_forward.py.
    """

    consumers: int
    block_n: int
    stages: int
    in_turns: bool = True
    pairs: bool = False
    q_stages: int = 1
    skip: bool = False


def choose(head_dim: int, seqlen_q: int, causal: bool) -> HopperConfig:
    """The cut of a problem; docs/hopper.md holds the measurements behind it."""
    if head_dim > 128:
        return HopperConfig(2, block_n=64, stages=2, pairs=causal, q_stages=1, skip=True)
    if head_dim > 64 or seqlen_q < 2048:
        return HopperConfig(2, block_n=128, stages=2, pairs=causal, q_stages=2, skip=False)
    return HopperConfig(3, block_n=128, stages=2, pairs=False, q_stages=1, skip=True)


def supported(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> bool:
    """Whether this kernel takes the problem: 16-bit, on Hopper, strides the copy engine takes."""
    return (
        targets.current().has_wgmma
        and q.dtype in (torch.float16, torch.bfloat16)
        and q.shape[3] <= 256
        and q.shape[3] % 8 == 0
        and scale > 0.0
        and all(copyable(x) for x in (q, k, v))
    )


def copyable(x: torch.Tensor) -> bool:
    """TMA wants whole 16 bytes between neighbours along every axis but the last."""
    return (
        x.stride(3) == 1
        and x.data_ptr() % 16 == 0
        and x.numel() > 0
        and all(
            stride > 0 and stride % 8 == 0
            for stride, size in zip(x.stride()[:3], x.shape[:3], strict=True)
            if size > 1
        )
    )


def descriptor(x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """(batch, seqlen, heads, head_dim) in boxes of ``rows`` positions of one head.

    Columns past head_dim are read as zeros and never written.
    """
    batch, seqlen, heads, head_dim = x.shape
    # An axis of length 1 may have any stride; the copy engine still wants a multiple of 16 bytes.
    by_batch, by_row, by_head = (
        stride if size > 1 else 8 for stride, size in zip(x.stride(), x.shape[:3], strict=False)
    )
    block = (1, 1, rows, columns)
    return TensorDescriptor(
        x,
        [batch, heads, seqlen, head_dim],
        [by_batch, by_head, by_row, 1],
        list(block),
        ring.layout(block, x.dtype),
    )


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    causal_offset: int,
    scale: float,
    config: HopperConfig | None = None,
) -> None:
    """Fill ``out`` and ``lse`` for arguments that ``supported`` accepts."""
    batch, seqlen_q, heads, head_dim = q.shape
    config = config or choose(head_dim, seqlen_q, causal)
    consumer_registers, producer_registers = ring.registers(config.consumers)
    block_d = max(64, triton.next_power_of_2(head_dim))
    tiles = triton.cdiv(seqlen_q, ROWS * config.consumers) * heads * batch
    with targets.on_device_of(q):
        attention_forward_hopper[(min(tiles, targets.multiprocessors()),)](
            descriptor(q, ROWS, block_d),
            descriptor(k, config.block_n, block_d),
            descriptor(v, config.block_n, block_d),
            descriptor(out, ROWS, block_d),
            lse,
            heads,
            heads // k.shape[2],
            batch,
            seqlen_q,
            k.shape[1],
            causal_offset,
            scale * LOG2_E,
            CONSUMERS=config.consumers,
            BLOCK_N=config.block_n,
            HEAD_DIM=block_d,
            STAGES=config.stages,
            CAUSAL=causal,
            PAIRS=config.pairs,
            IN_TURNS=config.in_turns,
            OUT_IN_Q=block_d > 128,
            Q_STAGES=config.q_stages,
            SKIP=config.skip,
            CONSUMER_REGISTERS=consumer_registers,
            PRODUCER_REGISTERS=producer_registers,
            num_warps=4,
        )
