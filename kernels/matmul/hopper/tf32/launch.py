"""Which fp32 products Hopper multiplies in tf32 by a kernel of its own, and its launches."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.matmul.common.product import Product
from kernels.matmul.hopper.boxes import copyable
from kernels.matmul.hopper.choose import HopperConfig, tiles
from kernels.matmul.hopper.launch import launch_persistent
from kernels.runtime import targets
from kernels.runtime.addressing import LIMIT

from . import copy as hopper_tf32_copy

WIDE = HopperConfig(consumers=2, block_n=256, block_k=32, stages=4, store_n=32)
SMALL = HopperConfig(consumers=1, block_n=128, block_k=64, stages=4)
TINY = HopperConfig(consumers=1, block_n=64, block_k=64, stages=5)

# With 256 the copy of b costs what the products gain.
FEWEST_ROWS = 512


def choose(M: int, N: int, multiprocessors: int) -> HopperConfig:
    """The largest tile that gives most multiprocessors one: docs/log/kernels/hopper/matmul.md."""
    for config in (WIDE, SMALL):
        if tiles(config, M, N) * 10 >= multiprocessors * 9:
            return config
    return TINY


def supported(product: Product) -> bool:
    """Whether this kernel takes the problem: on Hopper, enough rows to pay for a copy of b, strides
    the copy engine takes, but for those of b, of which 32 bits count a tile; no residual."""
    a = product.a
    return (
        targets.current().has_wgmma
        and product.residual is None
        and a.dtype == torch.float32
        and a.shape[0] >= FEWEST_ROWS
        and a.shape[1] > 0
        and (copyable(a) or copyable(a.t()))
        and copyable(product.out)
        and 2 * hopper_tf32_copy.BLOCK * max(product.b.stride()) < LIMIT
    )


def launch(product: Product, config: HopperConfig | None = None) -> None:
    """Fill the ``out`` of a product that ``supported`` accepts: a launch copies b to memory of its
    own, one multiplies."""
    M, N, _ = product.sizes
    config = config or choose(M, N, targets.multiprocessors())
    b = hopper_tf32_copy.launch(product.b).t()
    launch_persistent(replace(product, b=b), config)
