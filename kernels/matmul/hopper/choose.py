"""How Hopper's matmul is cut: which tile, into how many parts of K or of a last turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import triton

from kernels.device.configurations import constants
from kernels.matmul.common.tuning import MOST_PARTS, SPLIT_ROWS

ROWS = 64  # of C that one warpgroup accumulates: the M of wgmma
PART_COLUMNS = 4  # of parts in fp32, which lie dense: whole 16 bytes to the copy engine


@dataclass(frozen=True)
class HopperConfig:
    """A tile of ``rows * consumers`` rows and ``block_n`` columns, the ring that feeds it, and the
    columns written at a time."""

    consumers: int = field(metadata={"values": (1, 2)})
    block_n: int = field(metadata={"values": (32, 64, 128, 256)})
    block_k: int = field(default=64, metadata={"values": (32, 64, 128)})
    stages: int = field(default=4, metadata={"values": (2, 3, 4, 5, 6, 8, 9)})
    store_n: int = field(default=64, metadata={"values": (32, 64, 128, 256)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})
    rows: int = ROWS

    def constants(self) -> dict[str, Any]:
        """As kernels whose programs have several tiles take it."""
        cut = constants(self, "consumers", "block_n", "block_k", "stages", "group_m")
        # One consumer leaves more registers than the assembler takes for a limit.
        return {**cut, "num_warps": 4, "maxnreg": 240 if self.consumers == 1 else None}


@dataclass(frozen=True)
class Fp8OnceConfig:
    """A tile of ``64 * consumers`` rows and ``block_n`` columns, one a program, and its ring, whose
    stages hold ``blocks`` blocks of 128 of K."""

    block_n: int = field(metadata={"values": (32, 64, 128)})
    stages: int = field(metadata={"values": (2, 3, 4, 6, 8)})
    blocks: int = field(default=2, metadata={"values": (1, 2, 4)})
    consumers: int = field(default=1, metadata={"values": (1, 2)})
    rows: int = ROWS

    @property
    def block_k(self) -> int:
        return self.blocks * 128


Tile = HopperConfig | Fp8OnceConfig

WIDE = HopperConfig(consumers=2, block_n=256, stages=4)
# As wide where no program has a second tile: all columns at once, since what the ring took is free.
WIDE_ONCE = HopperConfig(consumers=2, block_n=256, stages=4, store_n=256)
# As wide beside a residual, whose tile takes the memory of a stage.
ADDED = HopperConfig(consumers=2, block_n=256, stages=3)
MEDIUM = HopperConfig(consumers=2, block_n=128, stages=6, store_n=128)
TRIPLE = HopperConfig(consumers=3, block_n=128, stages=5)
SMALL = HopperConfig(consumers=1, block_n=128, block_k=128, stages=4, store_n=128)
TINY = HopperConfig(consumers=1, block_n=64, block_k=128, stages=4)
# Of up to 64 rows, by ``whole_columns``; shared memory holds no more stages.
FEW = (
    HopperConfig(consumers=1, block_n=32, block_k=128, stages=9),
    HopperConfig(consumers=1, block_n=64, block_k=128, stages=6),
    HopperConfig(consumers=1, block_n=64, block_k=128, stages=3),
)
# Where b's rows begin anywhere in a line of memory.
LINES = HopperConfig(consumers=2, block_n=64, block_k=64, stages=5)

# The kernel of one tile a program counts columns of tiles along a grid's second axis.
MOST_ALONG_AXIS = 65_535

# Of programs that have one tile each: so many rows of tiles are taken before the next columns.
ROWS_TOGETHER = 4
LINES_TOGETHER = 2  # of tiles of rows by class
MOST_COLUMNS_SPLIT = 128  # of tiles whose K is split
# Of tiles that programs do not share evenly.
PARTS_OF_TILES = (4, 2, 1)
LEAST_COLUMNS = 64
# How long a turn takes where programs have several tiles, and a last one of tiles cut into so many
# parts, in hundredths of a turn of the widest: docs/log/kernels/hopper/matmul.md measures it.
TURNS = {
    WIDE: {1: 100, 2: 67, 4: 55},
    TRIPLE: {1: 78, 2: 70},
    MEDIUM: {1: 52, 2: 42},
    SMALL: {1: 34, 2: 32},
}
# From two turns of the widest on smaller tiles, which read more, take longer, in hundredths.
LONGER = {WIDE: 100, TRIPLE: 105, MEDIUM: 120, SMALL: 120}
# Blocks are given to multiprocessors in runs of so many, which share a way to L2.
RUN = 16
# An activation that takes much code loops over so many columns of a tile written at once.
LOOPED_COLUMNS = 64


def tiles(config: Tile, M: int, N: int, classes: int = 0) -> int:
    """Tiles of C, those of each class of rows by themselves where there are classes."""
    classes = max(classes, 1)
    rows = triton.cdiv(M // classes, config.rows * config.consumers)
    return classes * rows * triton.cdiv(N, config.block_n)


def programs_in_step(tiles: int, multiprocessors: int) -> int:
    """How many programs walk ``tiles``: no fewer than take the fewest turns, in whole runs.

    Programs of a run have the same columns at the same time in every turn then: L2 is asked for
    them once. More programs save no turn; docs/log/kernels/hopper/matmul.md measures it."""
    turns = triton.cdiv(tiles, min(tiles, multiprocessors))
    runs = triton.cdiv(triton.cdiv(tiles, turns), RUN)
    return min(runs * RUN, tiles, multiprocessors)


def parts_of_the_rest(config: HopperConfig, M: int, N: int, multiprocessors: int) -> int:
    """Into how many parts along N those tiles are cut that multiprocessors do not share evenly: as
    many as still give each one at most, 1 for none: docs/log/kernels/hopper/matmul.md has times."""
    programs = tiles(config, M, N)
    left = programs % multiprocessors if programs > multiprocessors else 0
    most = min(multiprocessors // left, config.block_n // LEAST_COLUMNS) if left else 1
    return next(parts for parts in PARTS_OF_TILES if parts <= max(most, 1))


def cost(config: HopperConfig, M: int, N: int, multiprocessors: int) -> int:
    """How long a product takes of which programs have several tiles, in a unit that only
    compares."""
    turns, rest = divmod(tiles(config, M, N), multiprocessors)
    each = TURNS[config]
    last = each[parts_of_the_rest(config, M, N, multiprocessors)] if rest else 0
    many = tiles(WIDE, M, N) >= 2 * multiprocessors
    return (turns * each[1] + last) * (LONGER[config] if many else 100)


def choose(M: int, N: int, K: int, multiprocessors: int) -> HopperConfig:
    """The largest tile that still gives most multiprocessors one, or another where that takes less
    of a last turn, or as many parts of K; docs/log/kernels/hopper/matmul.md measures it."""
    return by_shape(M, N, K, multiprocessors)


def choose_added() -> HopperConfig:
    """Beside a residual, which widest tiles alone have here."""
    return ADDED


def by_shape(M: int, N: int, K: int, multiprocessors: int) -> HopperConfig:
    """What ``choose`` says where ``supported`` asks: a sweep puts others in its place, and those
    must not change which kernel serves."""
    if M <= SPLIT_ROWS and (columns := whole_columns(N, multiprocessors)) is not None:
        return FEW[columns]

    def quickest(*configs: HopperConfig) -> HopperConfig:
        return min(configs, key=lambda one: cost(one, M, N, multiprocessors))

    small = tiles(SMALL, M, N)
    if widest(M, N, multiprocessors):
        once = tiles(WIDE, M, N) <= multiprocessors
        return WIDE_ONCE if once else quickest(WIDE, TRIPLE, MEDIUM)
    if small > multiprocessors:
        return quickest(SMALL, MEDIUM, TRIPLE)
    if 10 * small >= 9 * multiprocessors or tiles(TINY, M, N) > multiprocessors:
        return SMALL
    parts = split(TINY, M, N, K, multiprocessors)
    more = split(SMALL, M, N, K, multiprocessors) * small - parts * tiles(TINY, M, N)
    return SMALL if more > 0 or (more == 0 and parts > 1 and TINY.block_n < N) else TINY


def widest(M: int, N: int, multiprocessors: int) -> bool:
    """Whether the widest tiles are enough for most multiprocessors."""
    if M <= SPLIT_ROWS and whole_columns(N, multiprocessors) is not None:
        return False
    # With up to 128 columns they are as many as half as wide ones, and half of each is nothing.
    once = tiles(SMALL, M, N) > multiprocessors >= tiles(MEDIUM, M, N)
    return not once and 6 * tiles(WIDE, M, N) >= 5 * multiprocessors


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


def split(config: Tile, M: int, N: int, K: int, multiprocessors: int) -> int:
    """How many parts of K are multiplied side by side where tiles leave multiprocessors idle. A
    part keeps four steps, and the launch that adds the parts costs as much as eight."""
    if N % PART_COLUMNS:
        return 1
    steps = triton.cdiv(K, config.block_k)
    parts = min(multiprocessors // tiles(config, M, N), steps // 4, MOST_PARTS)
    if config.block_n > MOST_COLUMNS_SPLIT or parts < 2 or steps - steps // parts <= 8:
        return 1
    return triton.cdiv(steps, triton.cdiv(steps, parts))  # no part is empty
