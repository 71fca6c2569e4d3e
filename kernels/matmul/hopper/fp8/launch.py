"""Which fp8 matmuls Hopper's own kernel takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton

from kernels.device.configurations import constants
from kernels.matmul.common import combine_splits
from kernels.matmul.common.product import Product, Scale
from kernels.matmul.common.tuning import SPLIT_ROWS
from kernels.matmul.hopper.boxes import copyable, descriptor
from kernels.matmul.hopper.choose import (
    ROWS,
    Fp8OnceConfig,
    programs_in_step,
    split,
    tiles,
    whole_columns,
)
from kernels.runtime import targets
from kernels.runtime.launch import noted

from . import persistent as hopper_fp8_kernel
from .one_tile import matmul_hopper_fp8_once
from .persistent import matmul_hopper_fp8


@dataclass(frozen=True)
class Fp8HopperConfig:
    """A tile of 128 rows and ``block_n`` columns, 128 with scales of blocks, and its ring: a
    stage holds ``block_k`` of K, whose products are added in the matrix unit: of 256 ones of the
    same sign, 14 bits of the sum are fewer than bf16's rounding asks for."""

    block_n: int = field(metadata={"values": (128, 256)})
    block_k: int = field(metadata={"values": (128,)})
    stages: int = field(metadata={"values": (3, 4, 5, 6)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})


WIDE = Fp8HopperConfig(256, 128, 4, group_m=16)
NARROW = Fp8HopperConfig(128, 128, 6)
CONSUMERS: int = hopper_fp8_kernel.CONSUMERS.value


# Of up to 64 rows, by ``whole_columns``.
FEW = (Fp8OnceConfig(32, 4, blocks=4), Fp8OnceConfig(64, 6), Fp8OnceConfig(64, 3))
# Beside scales of blocks instead of 64 columns: two programs a multiprocessor.
FEW_TWICE = Fp8OnceConfig(32, 2, blocks=4)
SQUARE = Fp8OnceConfig(64, 6)
OBLONG = Fp8OnceConfig(128, 8, blocks=1)
# Beside scales of blocks, where the kernel of several tiles waits for each of them.
LARGE = Fp8OnceConfig(128, 6, blocks=1, consumers=2)
# Scales of blocks: of how many blocks of K shared memory holds them.
MOST_SCALES = 32
FEWEST_SCALES = 8


def choose(
    M: int,
    N: int,
    out: torch.dtype,
    activation: str | None,
    multiprocessors: int,
    *,
    blocks: bool,
    scaled: int = 2,
) -> Fp8HopperConfig | Fp8OnceConfig | None:
    """Of a product of which ``scaled`` operands have scales.

    Wide tiles where every multiprocessor has three, narrow ones where most have one (beside
    scales of blocks large ones of which no program has more than one, where those suffice), smaller
    ones of which no program has more than one where those do, else None: the portable kernel's;
    docs/log/kernels/hopper/matmul-fp8.md measures it."""
    rows = triton.cdiv(M, ROWS * CONSUMERS)
    # Registers that a wide tile lacks: a scale for each row; a long activation of fp32, or any of
    # sums that no scale multiplies; silu of sums that two scales do not.
    if out == torch.float32:
        long = activation in ("gelu", "silu") or (activation is not None and not scaled)
    else:
        long = activation == "silu" and scaled < 2
    crowded = blocks or long
    if rows * triton.cdiv(N, 256) >= 3 * multiprocessors and not crowded:
        return WIDE
    if 4 * rows * triton.cdiv(N, 128) >= 3 * multiprocessors and M > SPLIT_ROWS:
        if blocks and tiles(LARGE, M, N) <= multiprocessors:
            return LARGE
        return NARROW
    if M > SPLIT_ROWS:
        return next((one for one in (SQUARE, OBLONG) if tiles(one, M, N) <= multiprocessors), None)
    columns = whole_columns(N, multiprocessors)
    if blocks and columns == 2:
        return None
    if blocks and columns == 1 and 3 * triton.cdiv(N, 32) >= 5 * multiprocessors:
        return FEW_TWICE
    return None if columns is None else FEW[columns]


def _config(product: Product) -> Fp8HopperConfig | Fp8OnceConfig | None:
    scaled = sum(one.kind != "none" for one in (product.a_scale, product.b_scale))
    (M, N, _), dtype, processors = product.sizes, product.out.dtype, targets.multiprocessors()
    return choose(
        M, N, dtype, product.activation, processors, blocks=product.by_blocks, scaled=scaled
    )


def supported(product: Product) -> bool:
    """Whether this kernel takes the problem: on Hopper, tiles for most multiprocessors, both
    operands along K, strides the copy engine takes, no residual."""
    a = product.a
    return (
        targets.current().has_wgmma
        and product.residual is None
        and a.dtype == torch.float8_e4m3fn
        and a.shape[1] > 0
        and copyable(a)
        and copyable(product.b.t())
        and copyable(product.out)
        and _config(product) is not None
    )


def _kind(scale: Scale, *, once: bool = True, ahead: bool = True) -> str:
    """How a kernel reads ``scale``. If ``once``, one that a whole operand has is loaded once a
    program, at its start: "tensor". If ``ahead``, those of rows or columns are copied to shared
    memory while a tile is multiplied, not loaded by each thread for each of its columns at its end.
    """
    if scale.kind != "outer":
        return scale.kind
    if once and not any(scale.strides):
        return "tensor"
    return "ahead" if ahead else "outer"


def _given(product: Product, bias: torch.Tensor | None) -> tuple[Any, ...]:
    """What both kernels take after a, b and c."""
    a_scale, b_scale = product.a_scale, product.b_scale
    values = (a_scale.values, b_scale.values, bias)
    return (*values, *product.sizes, *a_scale.strides, *b_scale.strides)


def refused(config: Fp8HopperConfig | Fp8OnceConfig, *, by_blocks: bool) -> str:
    """Why a configuration cannot multiply what has scales of blocks, or has not; or nothing."""
    if by_blocks and isinstance(config, Fp8HopperConfig) and config.block_n != 128:
        return (
            "block_n: expected 128 with scales of blocks, which has registers for two products, "
            f"got {config.block_n}"
        )
    return ""


def launch(product: Product, config: Fp8HopperConfig | Fp8OnceConfig | None = None) -> None:
    """Fill the ``out`` of a product that ``supported`` accepts, or of any size with a
    ``config``."""
    (M, N, _), a, b, out = product.sizes, product.a, product.b, product.out
    a_scale, b_scale, activation = product.a_scale, product.b_scale, product.activation
    config = config or _config(product)
    assert config is not None, "supported() was not asked"
    if isinstance(config, Fp8OnceConfig):
        return _launch_once(product, config)
    blocks = product.by_blocks
    if said := refused(config, by_blocks=blocks):
        raise ValueError(said)
    count = triton.cdiv(M, ROWS * CONSUMERS) * triton.cdiv(N, config.block_n)
    # The widest tile would spill 136 bytes with silu.
    once = not (config.block_n == 256 and activation == "silu")
    noted(matmul_hopper_fp8, (programs_in_step(count, targets.multiprocessors()),))(
        descriptor(a, ROWS, config.block_k),
        descriptor(b.t(), config.block_n, config.block_k),
        descriptor(out, ROWS, 128 // out.element_size()),
        *_given(product, product.bias),
        **constants(config, "block_n", "block_k", "stages", "group_m"),
        A_SCALE=_kind(a_scale, once=once, ahead=not blocks),
        B_SCALE=_kind(b_scale, once=once, ahead=not blocks),
        ACTIVATION=activation or "none",
        num_warps=4,
    )


def _launch_once(product: Product, config: Fp8OnceConfig) -> None:
    (M, N, K), a_scale, b_scale = product.sizes, product.a_scale, product.b_scale
    parts = 1
    if M > SPLIT_ROWS:
        parts = split(config, M, N, K, targets.multiprocessors())
    rows_of_tile = ROWS * config.consumers
    part = product.in_parts(parts)
    columns = min(128 // part.out.element_size(), config.block_n)
    rows = min(rows_of_tile, max(8, triton.next_power_of_2(M)))
    by_blocks = product.by_blocks
    steps = triton.cdiv(triton.cdiv(K, config.block_k), parts)
    blocks = steps * config.blocks  # of K that a program has at most
    chunk = 0
    if by_blocks:  # one size for many K, since each is a kernel of its own
        chunk = min(MOST_SCALES, max(FEWEST_SCALES, triton.next_power_of_2(blocks)))
    noted(
        matmul_hopper_fp8_once,
        (triton.cdiv(M, rows_of_tile), triton.cdiv(N, config.block_n) * parts),
    )(
        descriptor(product.a, rows, 128),
        descriptor(product.b.t(), config.block_n, 128),
        descriptor(part.out, rows_of_tile, columns),
        *_given(product, part.bias),
        BLOCK_M=rows_of_tile,
        **constants(config, "block_n", "blocks", "stages"),
        SPLITS=parts,
        CHUNK=chunk,
        MORE=by_blocks and blocks > chunk,
        A_SCALE=_kind(a_scale),
        B_SCALE=_kind(b_scale),
        ACTIVATION=part.activation or "none",
        num_warps=4 * config.consumers,
    )
    if parts > 1:
        combine_splits.launch(part.out, product)
