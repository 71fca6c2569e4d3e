"""Which matmuls Hopper's kernel takes, how they are cut, and its launch."""

from __future__ import annotations

import torch
import triton

from kernels.device.configurations import constants
from kernels.matmul.common import combine_splits
from kernels.matmul.common import tuning as configs
from kernels.matmul.common.product import Product
from kernels.runtime import targets
from kernels.runtime.launch import noted

from . import unaligned
from .boxes import (
    along_either,
    begins_with_lines,
    classes_of,
    copyable,
    descriptor,
    phase_and_pitch,
)
from .choose import (
    FEW,
    LINES,
    LINES_TOGETHER,
    LOOPED_COLUMNS,
    ROWS,
    ROWS_TOGETHER,
    SMALL,
    WIDE_ONCE,
    HopperConfig,
    by_shape,
    choose,
    choose_added,
    parts_of_the_rest,
    programs_in_step,
    split,
    tiles,
    widest,
)
from .one_tile import matmul_hopper_once
from .persistent import matmul_hopper


def lines(a: torch.Tensor, b: torch.Tensor, config: HopperConfig, multiprocessors: int) -> int:
    """Classes of a's rows to be taken by themselves, 0 for rows as they come.

    A box of 128 bytes of a row asks for two lines where the row does not begin with one, and what a
    multiprocessor asks for binds: b is read by fewer columns, and every row of a from the start of
    a line on. Rows of one class start at the same place of theirs.
    """
    M, K = a.shape
    N = b.shape[1]
    if config != SMALL or not copyable(a) or split(config, M, N, K, multiprocessors) > 1:
        return 0
    if begins_with_lines(b if copyable(b) else b.t()):
        return 0
    classes = classes_of(a)
    return classes if M % classes == 0 and tiles(LINES, M, N, classes) <= multiprocessors else 0


def supported(product: Product) -> bool:
    """Whether this kernel takes the problem: 16-bit, on Hopper, strides the copy engine takes, few
    rows by whole columns alone, a residual beside the widest tiles alone."""
    a, b, residual, target = product.a, product.b, product.residual, targets.current()
    (M, N, K), processors = product.sizes, targets.multiprocessors()
    return (
        target.has_wgmma
        and a.dtype in (torch.float16, torch.bfloat16)
        and K > 0
        and (copyable(a) or copyable(a.t()))
        and (copyable(b) or copyable(b.t()))
        and copyable(product.out)
        and (not configs.for_few_rows(target, a, b) or by_shape(M, N, K, processors) in FEW)
        and (residual is None or (copyable(residual) and widest(M, N, processors)))
    )


def launch(product: Product, config: HopperConfig | None = None) -> None:
    """Fill the ``out`` of a product that ``supported`` accepts."""
    (M, N, K), a, b = product.sizes, product.a, product.b
    multiprocessors = targets.multiprocessors()
    classes = 0
    if product.residual is not None:
        config = config or choose_added()
    elif config is None:
        config = choose(M, N, K, multiprocessors)
        if cut := unaligned.choose(a, b, multiprocessors):
            return launch_persistent(product, cut, classes_of(a))
        classes = lines(a, b, config, multiprocessors)
        config = LINES if classes else config
    programs = tiles(config, M, N, classes)
    # A tile of 192 rows belongs to only one consumer.
    whole = product.residual is None and config.consumers < 3
    if whole and (config in FEW or programs <= multiprocessors):
        _launch_once(product, config, classes)
    else:
        launch_persistent(product, config)


def _columns(config: HopperConfig, activation: str | None) -> int:
    """Of a tile that are stored at a time."""
    columns = min(config.store_n, config.block_n)
    if columns == WIDE_ONCE.store_n and activation in ("gelu", "silu"):
        return LOOPED_COLUMNS
    return columns


def _launch_once(product: Product, config: HopperConfig, classes: int) -> None:
    """By programs of one tile."""
    (M, N, K), a, b = product.sizes, product.a, product.b
    a_major_m, rows = not copyable(a), ROWS * config.consumers
    # The copy engine takes its time for rows that do not exist, too.
    existing = min(rows, max(8, triton.next_power_of_2(M)))
    asked = rows if a_major_m or classes else existing
    programs = tiles(config, M, N, classes)
    tiles_m = programs // triton.cdiv(N, config.block_n)
    in_turn = LINES_TOGETHER if classes else ROWS_TOGETHER
    together = in_turn if tiles_m % in_turn == 0 else tiles_m
    parts = 1 if classes else split(config, M, N, K, targets.multiprocessors())
    columns = 32 if parts > 1 else _columns(config, product.activation)
    part = product.in_parts(parts)
    noted(matmul_hopper_once, (together, programs // tiles_m * parts, tiles_m // together))(
        along_either(a, asked, config.block_k, classes),
        along_either(b, config.block_k, config.block_n),
        descriptor(part.out, rows, columns, classes),
        part.bias,
        N,
        K,
        *phase_and_pitch(a),
        BLOCK_M=rows,
        **constants(config, "block_n", "block_k", "stages"),
        CLASSES=classes,
        SPLITS=parts,
        A_MAJOR_M=a_major_m,
        B_MAJOR_N=copyable(b),
        ACTIVATION=part.activation or "none",
        num_warps=4 * config.consumers,
    )
    if parts > 1:
        combine_splits.launch(part.out, product)


def launch_persistent(product: Product, config: HopperConfig, classes: int = 0) -> None:
    """By one program a multiprocessor, each of several tiles. In fp32 b is what a launch before
    wrote, which had let this one start."""
    (M, N, K), a, b, residual = product.sizes, product.a, product.b, product.residual
    multiprocessors, in_tf32 = targets.multiprocessors(), a.dtype == torch.float32
    parts = 1
    if not (classes or in_tf32 or residual is not None):
        parts = parts_of_the_rest(config, M, N, multiprocessors)
    columns = min(_columns(config, product.activation), config.block_n // parts)
    in_step = multiprocessors
    if parts == 1:  # next to a last turn of parts all have as many whole tiles
        in_step = programs_in_step(tiles(config, M, N, classes), multiprocessors)
    rest = along_either(b, config.block_k, config.block_n // parts) if parts > 1 else None
    noted(matmul_hopper, (in_step,))(
        along_either(a, config.rows, config.block_k, classes),
        along_either(b, config.block_k, config.block_n),
        rest,
        descriptor(product.out, config.rows, columns, classes),
        product.bias,
        None if residual is None else descriptor(residual, ROWS, columns),
        M,
        N,
        K,
        *(phase_and_pitch(a) if classes else (0, 0)),
        CLASSES=classes,
        A_MAJOR_M=not copyable(a),
        B_MAJOR_N=copyable(b),
        ACTIVATION=product.activation or "none",
        TAIL=parts,
        **config.constants(),
        launch_pdl=in_tf32,
    )
