"""Which matmuls Hopper's kernel takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from .. import hopper as ring
from .. import targets
from . import combine, configs, hopper_lines
from .configs import MOST_PARTS, SPLIT_ROWS
from .hopper_boxes import (
    LINE,
    begins_with_lines,
    by_class,
    classes_of,
    copyable,
    descriptor,
    parts_of,
)
from .hopper_kernel import matmul_hopper
from .hopper_once import matmul_hopper_once

ROWS = 64  # of C that one warpgroup accumulates: the M of wgmma
PART_COLUMNS = 4  # of parts in fp32, which lie dense: whole 16 bytes to the copy engine


@dataclass(frozen=True)
class HopperConfig:
    """A tile of ``64 * consumers`` rows and ``block_n`` columns, the ring that feeds it, and the
    columns written at a time. ``halves``: a program's only tile is two accumulators, and the left
    half of its columns is written while the right one's last steps are multiplied."""

    consumers: int = field(metadata={"values": (1, 2)})
    block_n: int = field(metadata={"values": (32, 64, 128, 256)})
    block_k: int = field(default=64, metadata={"values": (32, 64, 128)})
    stages: int = field(default=4, metadata={"values": (2, 3, 4, 5, 6, 8, 9)})
    store_n: int = field(default=64, metadata={"values": (32, 64, 128, 256)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})
    halves: bool = False


WIDE = HopperConfig(consumers=2, block_n=256, stages=4)
# As wide where no program has a second tile: by halves or, where K is too short for that, all
# columns at once, since what the ring took is free.
WIDE_ONCE = HopperConfig(consumers=2, block_n=256, stages=4, store_n=256, halves=True)
# As wide beside a residual, whose tile takes the memory of a stage.
ADDED = HopperConfig(consumers=2, block_n=256, stages=3)
MEDIUM = HopperConfig(consumers=2, block_n=128, stages=6, store_n=128)
SMALL = HopperConfig(consumers=1, block_n=128, block_k=128, stages=4, store_n=128)
TINY = HopperConfig(consumers=1, block_n=64, block_k=128, stages=4)
# Of up to 64 rows, by ``whole_columns``; shared memory holds no more stages.
FEW = (
    HopperConfig(consumers=1, block_n=32, block_k=128, stages=9),
    HopperConfig(consumers=1, block_n=64, block_k=128, stages=6),
    HopperConfig(consumers=1, block_n=64, block_k=128, stages=3),
)
# Where b's rows begin anywhere in a line of memory.
LINES = HopperConfig(consumers=2, block_n=64, block_k=64, stages=6)

# The kernel of one tile a program counts columns of tiles along a grid's second axis.
MOST_ALONG_AXIS = 65_535

# Of programs that have one tile each: so many rows of tiles are taken before the next columns.
ROWS_TOGETHER = 4
MOST_COLUMNS_SPLIT = 128  # of tiles whose K is split
# An activation that takes much code loops over so many columns of a tile written at once.
LOOPED_COLUMNS = 64


def tiles(config: HopperConfig, M: int, N: int, classes: int = 0) -> int:
    """Tiles of C, those of each class of rows by themselves where there are classes."""
    classes = max(classes, 1)
    rows = triton.cdiv(M // classes, ROWS * config.consumers)
    return classes * rows * triton.cdiv(N, config.block_n)


def choose(M: int, N: int, K: int, multiprocessors: int) -> HopperConfig:
    """The largest tile that still gives most multiprocessors one, or a larger one where that
    saves a second turn, or as many parts of K; docs/hopper.md measures it."""
    return _by_shape(M, N, K, multiprocessors)


def choose_added() -> HopperConfig:
    """Beside a residual, which widest tiles alone have here."""
    return ADDED


def _by_shape(M: int, N: int, K: int, multiprocessors: int) -> HopperConfig:
    """What ``choose`` says where ``supported`` asks: a sweep puts others in its place, and those
    must not change which kernel serves."""
    if M <= SPLIT_ROWS and (columns := whole_columns(N, multiprocessors)) is not None:
        return FEW[columns]
    wide, small = tiles(WIDE, M, N), tiles(SMALL, M, N)
    # First: with up to 128 columns the widest tiles are as many, and half of each is nothing.
    if small > multiprocessors >= tiles(MEDIUM, M, N):
        return MEDIUM
    if 6 * wide >= 5 * multiprocessors:
        return WIDE_ONCE if wide <= multiprocessors else WIDE
    if 10 * small >= 9 * multiprocessors or tiles(TINY, M, N) > multiprocessors:
        return SMALL
    parts = split(TINY, M, N, K, multiprocessors)
    more = split(SMALL, M, N, K, multiprocessors) * small - parts * tiles(TINY, M, N)
    return SMALL if more > 0 or (more == 0 and parts > 1 and TINY.block_n < N) else TINY


def whole_columns(N: int, multiprocessors: int) -> int | None:
    """How few rows read whole columns, a program each: 0 by 32, 1 by 64, 2 by 64 with two programs
    a multiprocessor; None where even 32 columns leave multiprocessors idle: K is split; and where
    there are more than a grid holds: programs that have many tiles."""
    by_32, by_64 = triton.cdiv(N, 32), triton.cdiv(N, 64)
    if 10 * by_32 < 7 * multiprocessors or by_64 > MOST_ALONG_AXIS:
        return None
    if by_32 <= multiprocessors:
        return 0
    return 1 if by_64 <= multiprocessors else 2


def split(config: HopperConfig, M: int, N: int, K: int, multiprocessors: int) -> int:
    """How many parts of K are multiplied side by side where tiles leave multiprocessors idle. A
    part keeps four steps, and the launch that adds the parts costs as much as eight."""
    if N % PART_COLUMNS:
        return 1
    steps = triton.cdiv(K, config.block_k)
    parts = min(multiprocessors // tiles(config, M, N), steps // 4, MOST_PARTS)
    if config.block_n > MOST_COLUMNS_SPLIT or parts < 2 or steps - steps // parts <= 8:
        return 1
    return triton.cdiv(steps, triton.cdiv(steps, parts))  # no part is empty


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


def by_lines(
    a: torch.Tensor, b: torch.Tensor, config: HopperConfig, multiprocessors: int
) -> hopper_lines.LinesConfig | None:
    """As ``lines``, where programs have several tiles: None for rows as they come."""
    if config not in (WIDE, WIDE_ONCE):
        return None
    now = tiles(WIDE, a.shape[0], b.shape[1])
    return hopper_lines.choose(a, b, now, multiprocessors)


def supported(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, residual: torch.Tensor | None = None
) -> bool:
    """Whether this kernel takes the problem: 16-bit, on Hopper, strides the copy engine takes, few
    rows by whole columns alone, a residual beside the widest tiles alone."""
    target = targets.current()
    return (
        target.has_wgmma
        and a.dtype in (torch.float16, torch.bfloat16)
        and a.shape[1] > 0
        and (copyable(a) or copyable(a.t()))
        and (copyable(b) or copyable(b.t()))
        and copyable(out)
        and (not configs.for_few_rows(target, a, b) or _chosen(a, b) in FEW)
        and (residual is None or (copyable(residual) and _chosen(a, b) in (WIDE, WIDE_ONCE)))
    )


def _chosen(a: torch.Tensor, b: torch.Tensor) -> HopperConfig:
    return _by_shape(a.shape[0], b.shape[1], a.shape[1], targets.multiprocessors())


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    residual: torch.Tensor | None = None,
    config: HopperConfig | None = None,
) -> None:
    """``out = activation(a @ b + bias) + residual`` for arguments that ``supported`` accepts."""
    M, K = a.shape
    N = b.shape[1]
    a_major_m, b_major_n = not copyable(a), copyable(b)
    with targets.on_device_of(a):
        multiprocessors = targets.multiprocessors()
        classes = 0
        if residual is not None:
            config = config or choose_added()
        elif config is None:
            config = choose(M, N, K, multiprocessors)
            if cut := by_lines(a, b, config, multiprocessors):
                return hopper_lines.launch(a, b, out, bias, activation, cut)
            classes = lines(a, b, config, multiprocessors)
            config = LINES if classes else config
        programs = tiles(config, M, N, classes)
        once = residual is None and (config in FEW or programs <= multiprocessors)
        rows = ROWS * config.consumers if once else ROWS
        # The copy engine takes its time for rows that do not exist, too.
        existing = min(rows, max(8, triton.next_power_of_2(M))) if once else rows
        a_boxes = (
            descriptor(a.t(), config.block_k, rows)
            if a_major_m
            else by_class(a, classes, rows, config.block_k)
            if classes
            else descriptor(a, existing, config.block_k)
        )
        b_boxes = (
            descriptor(b, config.block_k, config.block_n)
            if b_major_n
            else descriptor(b.t(), config.block_n, config.block_k)
        )
        columns = min(config.store_n, config.block_n)
        if columns == WIDE_ONCE.store_n and activation in ("gelu", "silu"):
            columns = LOOPED_COLUMNS
        if once:
            tiles_m = programs // triton.cdiv(N, config.block_n)
            together = ROWS_TOGETHER if tiles_m % ROWS_TOGETHER == 0 else tiles_m
            parts = 1 if classes else split(config, M, N, K, multiprocessors)
            # As many steps as the ring holds beside one that is multiplied, where there are more.
            halves = config.halves and parts == 1 and config.stages * config.block_k <= K
            tail = config.stages - 1 if halves else 0
            columns = min(columns, config.block_n // 2) if tail else columns
            if parts > 1:
                c = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
                c_boxes = parts_of(c, rows, 32)
            elif classes:
                c_boxes = by_class(out, classes, rows, columns)
            else:
                c_boxes = descriptor(out, rows, columns)
            matmul_hopper_once[(together, programs // tiles_m * parts, tiles_m // together)](
                a_boxes,
                b_boxes,
                c_boxes,
                None if parts > 1 else bias,
                N,
                K,
                a.data_ptr() % LINE // a.element_size(),
                a.stride(0),
                BLOCK_M=rows,
                BLOCK_N=config.block_n,
                BLOCK_K=config.block_k,
                STAGES=config.stages,
                CLASSES=classes,
                SPLITS=parts,
                TAIL=tail,
                A_MAJOR_M=a_major_m,
                B_MAJOR_N=b_major_n,
                HAS_BIAS=bias is not None and parts == 1,
                ACTIVATION=activation or "none" if parts == 1 else "none",
                num_warps=4 * config.consumers,
            )
            if parts > 1:
                combine.launch(c, out, bias, activation, None)
            return
        consumer_registers, producer_registers = ring.registers(config.consumers)
        matmul_hopper[(min(programs, multiprocessors),)](
            a_boxes,
            b_boxes,
            descriptor(out, rows, columns),
            bias,
            None if residual is None else descriptor(residual, rows, columns),
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
            HAS_RESIDUAL=residual is not None,
            CONSUMER_REGISTERS=consumer_registers,
            PRODUCER_REGISTERS=producer_registers,
            num_warps=4,
            # One consumer leaves more registers than the assembler takes for a limit.
            maxnreg=240 if config.consumers == 1 else None,
        )
