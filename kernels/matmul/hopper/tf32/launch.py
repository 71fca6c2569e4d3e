"""Which fp32 products Hopper multiplies in tf32 by a kernel of its own, and its launches."""

from __future__ import annotations

import torch
import triton

from kernels.device.configurations import constants
from kernels.matmul.hopper.boxes import copyable, descriptor
from kernels.matmul.hopper.choose import ROWS, HopperConfig, programs_in_step
from kernels.runtime import targets
from kernels.runtime.addressing import LIMIT
from kernels.runtime.launch import noted

from . import copy as hopper_tf32_copy
from .kernel import matmul_hopper_tf32

WIDE = HopperConfig(consumers=2, block_n=256, block_k=32, stages=4, store_n=32)
SMALL = HopperConfig(consumers=1, block_n=128, block_k=64, stages=4)
TINY = HopperConfig(consumers=1, block_n=64, block_k=64, stages=5)

# With 256 the copy of b costs what the products gain.
FEWEST_ROWS = 512


def choose(M: int, N: int, multiprocessors: int) -> HopperConfig:
    """The largest tile that gives most multiprocessors one: docs/log/kernels/hopper/matmul.md."""
    for config in (WIDE, SMALL):
        tiles = triton.cdiv(M, ROWS * config.consumers) * triton.cdiv(N, config.block_n)
        if tiles * 10 >= multiprocessors * 9:
            return config
    return TINY


def supported(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether this kernel takes the problem: on Hopper, enough rows to pay for a copy of b, strides
    the copy engine takes, but for those of b, of which 32 bits count a tile."""
    return (
        targets.current().has_wgmma
        and a.dtype == torch.float32
        and a.shape[0] >= FEWEST_ROWS
        and a.shape[1] > 0
        and (copyable(a) or copyable(a.t()))
        and copyable(out)
        and 2 * hopper_tf32_copy.BLOCK * max(b.stride()) < LIMIT
    )


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    config: HopperConfig | None = None,
) -> None:
    """``out = activation(a @ b + bias)`` for arguments that ``supported`` accepts: a launch
    copies b to memory of its own, one multiplies."""
    M, K = a.shape
    N = b.shape[1]
    a_major_m = not copyable(a)
    with targets.on_device_of(a):
        multiprocessors = targets.multiprocessors()
        config = config or choose(M, N, multiprocessors)
        tiles = triton.cdiv(M, ROWS * config.consumers) * triton.cdiv(N, config.block_n)
        noted(matmul_hopper_tf32, (programs_in_step(tiles, multiprocessors),))(
            descriptor(a.t(), config.block_k, ROWS)
            if a_major_m
            else descriptor(a, ROWS, config.block_k),
            descriptor(hopper_tf32_copy.launch(b), config.block_n, config.block_k),
            descriptor(out, ROWS, config.store_n),
            bias,
            M,
            N,
            K,
            **constants(config, "consumers", "block_n", "block_k", "stages", "group_m"),
            A_MAJOR_M=a_major_m,
            ACTIVATION=activation or "none",
            num_warps=4,
            # One consumer leaves more registers than the assembler takes for a limit.
            maxnreg=240 if config.consumers == 1 else None,
            launch_pdl=True,  # it starts while the copy of b ends
        )
