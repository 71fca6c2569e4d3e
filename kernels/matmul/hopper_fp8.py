"""Which fp8 matmuls Hopper's own kernel takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from .. import hopper as ring
from .. import targets
from .configs import SPLIT_ROWS
from .fp8 import Scale
from .hopper import ROWS, copyable, descriptor
from .hopper_fp8_kernel import matmul_hopper_fp8

CONSUMERS = 2


@dataclass(frozen=True)
class Fp8HopperConfig:
    """A tile of 128 rows and ``block_n`` columns and the ring that feeds it: a stage holds
    ``block_k`` of K, whose products are added in the matrix unit: of 256 ones of the same sign,
    14 bits of the sum are fewer than bf16's rounding asks for."""

    block_n: int = field(metadata={"values": (128, 256)})
    block_k: int = field(metadata={"values": (128,)})
    stages: int = field(metadata={"values": (3, 4, 5, 6)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})


WIDE = Fp8HopperConfig(256, 128, 4, group_m=16)
NARROW = Fp8HopperConfig(128, 128, 6)


def choose(
    M: int, N: int, out: torch.dtype, activation: str | None, multiprocessors: int, *, blocks: bool
) -> Fp8HopperConfig | None:
    """Wide tiles where every multiprocessor has three, narrow ones where most have one, None where
    the portable kernel's have to be smaller; docs/hopper.md measures it."""
    rows = triton.cdiv(M, ROWS * CONSUMERS)
    # Registers that a wide tile lacks: a scale for each row, fp32's error function.
    crowded = blocks or (out == torch.float32 and activation == "gelu")
    if rows * triton.cdiv(N, 256) >= 3 * multiprocessors and not crowded:
        return WIDE
    if 4 * rows * triton.cdiv(N, 128) >= 3 * multiprocessors:
        return NARROW
    return None


def _config(
    out: torch.Tensor, a_scale: Scale, b_scale: Scale, activation: str | None
) -> Fp8HopperConfig | None:
    blocks = a_scale.blocks or b_scale.blocks
    processors = targets.multiprocessors()
    M, N = out.shape
    return choose(M, N, out.dtype, activation, processors, blocks=blocks)


def supported(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scale: Scale,
    b_scale: Scale,
    activation: str | None,
) -> bool:
    """Whether this kernel takes the problem: on Hopper, tiles for most multiprocessors, both
    operands along K, strides the copy engine takes."""
    return (
        targets.current().has_wgmma
        and a.dtype == torch.float8_e4m3fn
        and a.shape[0] > SPLIT_ROWS
        and a.shape[1] > 0
        and copyable(a)
        and copyable(b.t())
        and copyable(out)
        and _config(out, a_scale, b_scale, activation) is not None
    )


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scale: Scale,
    b_scale: Scale,
    bias: torch.Tensor | None,
    activation: str | None,
    config: Fp8HopperConfig | None = None,
) -> None:
    """``out = activation((a * a_scale) @ (b * b_scale) + bias)`` for arguments that ``supported``
    accepts, or of any size with a ``config``."""
    M, K = a.shape
    N = b.shape[1]
    with targets.on_device_of(a):
        config = config or _config(out, a_scale, b_scale, activation)
        assert config is not None, "supported() was not asked"
        consumer_registers, producer_registers = ring.registers(CONSUMERS)
        tiles = triton.cdiv(M, ROWS * CONSUMERS) * triton.cdiv(N, config.block_n)
        matmul_hopper_fp8[(min(tiles, targets.multiprocessors()),)](
            descriptor(a, ROWS, config.block_k),
            descriptor(b.t(), config.block_n, config.block_k),
            descriptor(out, ROWS, 128 // out.element_size()),
            a_scale.values,
            b_scale.values,
            bias,
            M,
            N,
            K,
            *a_scale.strides,
            *b_scale.strides,
            BLOCK_N=config.block_n,
            BLOCK_K=config.block_k,
            STAGES=config.stages,
            GROUP_M=config.group_m,
            A_SCALE=a_scale.kind,
            B_SCALE=b_scale.kind,
            HAS_BIAS=bias is not None,
            ACTIVATION=activation or "none",
            CONSUMER_REGISTERS=consumer_registers,
            PRODUCER_REGISTERS=producer_registers,
            num_warps=4,
        )
