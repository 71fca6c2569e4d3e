"""Which matmuls Hopper's kernel takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .. import hopper as ring
from .. import targets
from .hopper_kernel import matmul_hopper
from .hopper_once import matmul_hopper_once

ROWS = 64  # of C that one warpgroup accumulates: the M of wgmma


@dataclass(frozen=True)
class HopperConfig:
    """A tile of ``64 * consumers`` rows and ``block_n`` columns, the ring that feeds it, and the
    columns written at a time."""

    consumers: int = field(metadata={"values": (1, 2)})
    block_n: int = field(metadata={"values": (64, 128, 256)})
    block_k: int = field(default=64, metadata={"values": (32, 64, 128)})
    stages: int = field(default=4, metadata={"values": (2, 3, 4, 5, 6, 8)})
    store_n: int = field(default=64, metadata={"values": (32, 64, 128)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})


WIDE = HopperConfig(consumers=2, block_n=256, stages=4)
MEDIUM = HopperConfig(consumers=2, block_n=128, stages=6, store_n=128)
SMALL = HopperConfig(consumers=1, block_n=128, block_k=128, stages=4, store_n=128)
TINY = HopperConfig(consumers=1, block_n=64, block_k=128, stages=4)

# Up to so many columns, programs that have one tile each run the kernel for that; as many rows of
# tiles as this are taken before the next columns.
MOST_COLUMNS_ONCE = 128
ROWS_TOGETHER = 4


def tiles(config: HopperConfig, M: int, N: int) -> int:
    return triton.cdiv(M, ROWS * config.consumers) * triton.cdiv(N, config.block_n)


def choose(M: int, N: int, K: int, multiprocessors: int) -> HopperConfig:
    """The largest tile that still gives most multiprocessors one, or a larger one where that
    saves a second turn; docs/hopper.md measures it."""
    if 10 * tiles(WIDE, M, N) >= 9 * multiprocessors:
        return WIDE
    small = tiles(SMALL, M, N)
    if small > multiprocessors >= tiles(MEDIUM, M, N):
        return MEDIUM
    if 10 * small >= 9 * multiprocessors or tiles(TINY, M, N) > multiprocessors:
        return SMALL
    return TINY


def supported(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether this kernel takes the problem: 16-bit, on Hopper, strides the copy engine takes."""
    return (
        targets.current().has_wgmma
        and a.dtype in (torch.float16, torch.bfloat16)
        and a.shape[1] > 0
        and (copyable(a) or copyable(a.t()))
        and (copyable(b) or copyable(b.t()))
        and copyable(out)
    )


def copyable(x: torch.Tensor) -> bool:
    """TMA wants neighbours in a row and whole 16 bytes from row to row."""
    return (
        x.stride(1) == 1
        and x.data_ptr() % 16 == 0
        and x.stride(0) >= x.shape[1]
        and x.stride(0) * x.element_size() % 16 == 0
    )


def descriptor(x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """What the copy engine takes boxes of rows and columns of x by."""
    block = (rows, columns)
    return TensorDescriptor(
        x, list(x.shape), list(x.stride()), list(block), ring.layout(block, x.dtype)
    )


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    config: HopperConfig | None = None,
) -> None:
    """``out = activation(a @ b + bias)`` for arguments that ``supported`` accepts."""
    M, K = a.shape
    N = b.shape[1]
    a_major_m, b_major_n = not copyable(a), copyable(b)
    with targets.on_device_of(a):
        multiprocessors = targets.multiprocessors()
        config = config or choose(M, N, K, multiprocessors)
        programs = min(tiles(config, M, N), multiprocessors)
        once = config.block_n <= MOST_COLUMNS_ONCE and programs == tiles(config, M, N)
        rows = ROWS * config.consumers if once else ROWS
        a_boxes = (
            descriptor(a.t(), config.block_k, rows)
            if a_major_m
            else descriptor(a, rows, config.block_k)
        )
        b_boxes = (
            descriptor(b, config.block_k, config.block_n)
            if b_major_n
            else descriptor(b.t(), config.block_n, config.block_k)
        )
        c_boxes = descriptor(out, rows, min(config.store_n, config.block_n))
        if once:
            tiles_m = triton.cdiv(M, rows)
            together = ROWS_TOGETHER if tiles_m % ROWS_TOGETHER == 0 else tiles_m
            matmul_hopper_once[(together, programs // tiles_m, tiles_m // together)](
                a_boxes,
                b_boxes,
                c_boxes,
                bias,
                N,
                K,
                BLOCK_M=rows,
                BLOCK_N=config.block_n,
                BLOCK_K=config.block_k,
                STAGES=config.stages,
                A_MAJOR_M=a_major_m,
                B_MAJOR_N=b_major_n,
                HAS_BIAS=bias is not None,
                ACTIVATION=activation or "none",
                num_warps=4 * config.consumers,
            )
            return
        consumer_registers, producer_registers = ring.registers(config.consumers)
        matmul_hopper[(programs,)](
            a_boxes,
            b_boxes,
            c_boxes,
            bias,
            M,
            N,
            K,
            CONSUMERS=config.consumers,
            BLOCK_N=config.block_n,
            BLOCK_K=config.block_k,
            STAGES=config.stages,
            GROUP_M=config.group_m,
            A_MAJOR_M=a_major_m,
            B_MAJOR_N=b_major_n,
            HAS_BIAS=bias is not None,
            ACTIVATION=activation or "none",
            CONSUMER_REGISTERS=consumer_registers,
            PRODUCER_REGISTERS=producer_registers,
            num_warps=4,
            # One consumer leaves more registers than the assembler takes for a limit.
            maxnreg=240 if config.consumers == 1 else None,
        )
