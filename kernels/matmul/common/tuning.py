"""Tile sizes of the matmul, by target and problem: a commit's speed is a function of the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.device.configurations import constants
from kernels.runtime.targets import Target


@dataclass(frozen=True)
class MatmulConfig:
    """How one problem is cut: tile sizes, the rows of tiles that share columns of B in L2, and
    the compiler's options. ``tma`` fetches tiles through descriptors where the operands allow.
    ``splits`` parts of K are multiplied side by side and added in a second pass."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    group_m: int = 8
    tma: bool = False
    splits: int = 1

    def constants(self) -> dict[str, Any]:
        """The tile and the compiler's options, as kernels take them."""
        tile = constants(self, "block_m", "block_n", "block_k", "group_m")
        return {**tile, "num_warps": self.num_warps, "num_stages": self.num_stages}


@dataclass(frozen=True)
class OneRowConfig:
    """Columns of B a program of the matmul of one row reads, and how much of each at a time."""

    block_n: int
    block_k: int
    num_warps: int


C = MatmulConfig

# Columns: block_m, block_n, block_k, num_warps, num_stages; the largest tile first. A problem
# takes the first one that gives most of the processors a tile.
TILES: dict[tuple[str, str], tuple[MatmulConfig, ...]] = {
    # 64 deep, 128x256 spills with transposed B: 32 deep with one more stage hides as much.
    ("sm_80", "16-bit"): (C(128, 256, 32, 8, 4), C(128, 128, 32, 4, 4), C(64, 64, 64, 4, 4)),
    ("sm_90", "16-bit"): (
        C(128, 256, 64, 8, 4, tma=True),
        C(128, 128, 64, 8, 3, tma=True),
        C(64, 128, 64, 4, 4, tma=True),
        C(64, 64, 64, 4, 4, tma=True),
    ),
    ("sm_100", "16-bit"): (
        C(128, 256, 64, 8, 4, tma=True),
        C(128, 128, 64, 4, 3, tma=True),
        C(64, 128, 64, 4, 4, tma=True),
    ),
    ("gfx90a", "16-bit"): (C(256, 128, 32, 8, 2), C(128, 128, 32, 4, 2), C(64, 64, 64, 4, 2)),
    # Exactly the 64 KiB of shared memory a CU has.
    ("gfx942", "16-bit"): (C(256, 256, 64, 8, 2), C(128, 128, 64, 4, 2), C(64, 64, 64, 4, 2)),
    # 64 deep, later compilers pad the tiles and spill.
    ("gfx950", "16-bit"): (C(256, 256, 32, 8, 2), C(128, 128, 64, 4, 2), C(64, 64, 64, 4, 2)),
    ("sm_80", "tf32"): (C(128, 128, 32, 8, 3), C(64, 64, 32, 4, 4)),
    ("sm_90", "tf32"): (C(128, 128, 32, 8, 4, tma=True), C(64, 64, 32, 4, 4, tma=True)),
    ("sm_100", "tf32"): (C(128, 128, 32, 4, 4, tma=True), C(64, 64, 32, 4, 4, tma=True)),
    ("gfx942", "tf32"): (C(128, 128, 32, 4, 2), C(64, 64, 32, 4, 2)),
    ("gfx90a", "fp32"): (C(128, 128, 16, 4, 2), C(64, 64, 32, 4, 2)),
    ("gfx942", "fp32"): (C(128, 128, 16, 4, 2), C(64, 64, 32, 4, 2)),
    ("gfx950", "fp32"): (C(128, 128, 16, 4, 2), C(64, 64, 32, 4, 2)),
}

# Few rows: the time is that of reading B, so the tiles are narrow for there to be many. 64 rows
# are the fewest wgmma and tcgen05 take.
SKINNY: dict[str, MatmulConfig] = {
    "sm_80": C(16, 64, 128, 4, 4),
    # Through pointers 13.6 us at 16x4096x4096 on an H200, through TMA 25.6.
    "sm_90": C(64, 32, 128, 4, 4),
    "sm_100": C(64, 32, 128, 4, 4, tma=True),
    "gfx90a": C(16, 32, 128, 2, 2),
    "gfx942": C(16, 32, 128, 2, 2),
    "gfx950": C(16, 64, 128, 4, 2),
}
SKINNY_ROWS = 16

# Up to 64 rows, where K is split.
SPLIT: dict[str, MatmulConfig] = {
    "sm_80": C(64, 64, 64, 4, 4),
    "sm_90": C(64, 64, 128, 4, 3),
    "sm_100": C(64, 64, 128, 4, 3, tma=True),
    "gfx90a": C(64, 64, 64, 4, 2),
    "gfx942": C(64, 64, 64, 4, 2),
    "gfx950": C(64, 64, 64, 4, 2),
}
SPLIT_ROWS = 64

# One row of 16-bit values, where B lies along K: no matrix unit is asked.
ONE_ROW = {"sm_90": OneRowConfig(4, 2048, 4)}

# Up to 64 rows, where whole columns of B give most processors a program: in one launch, with as
# many loads on their way as shared memory has room for. The first where there is more than one
# program a processor, two of which run side by side; else the widest that most processors get.
WHOLE_COLUMNS: dict[str, tuple[MatmulConfig, ...]] = {
    "sm_90": (C(64, 64, 128, 4, 3), C(64, 64, 128, 4, 5), C(64, 32, 128, 4, 6)),
}
# Programs to a processor that skinny tiles leave room for: what a split aims at, in one wave.
RESIDENT = {"sm_80": 2, "sm_90": 2, "sm_100": 2, "gfx90a": 4, "gfx942": 4, "gfx950": 4}

MOST_PARTS = 16

# Multiprocessors of the smallest common card of the target (one die of a gfx90a card).
PROCESSORS = {
    "sm_80": 108,
    "sm_90": 132,
    "sm_100": 148,
    "gfx90a": 104,
    "gfx942": 304,
    "gfx950": 256,
}

# Through pointers: a group's rows begin anywhere.
GROUPED: dict[tuple[str, str], tuple[MatmulConfig, ...]] = {
    ("sm_80", "16-bit"): (C(128, 128, 32, 4, 4), C(64, 64, 64, 4, 4)),
    ("sm_90", "16-bit"): (C(128, 128, 64, 8, 4), C(64, 64, 64, 4, 4)),
    ("sm_100", "16-bit"): (C(128, 128, 64, 4, 3), C(64, 64, 64, 4, 4)),
    ("gfx90a", "16-bit"): (C(128, 128, 32, 4, 2), C(64, 64, 64, 4, 2)),
    ("gfx942", "16-bit"): (C(128, 128, 64, 4, 2), C(64, 64, 64, 4, 2)),
    ("gfx950", "16-bit"): (C(128, 128, 64, 4, 2), C(64, 64, 64, 4, 2)),
}

# Targets without a row of their own, such as consumer cards, and plain fp32.
DEFAULT = C(64, 64, 32, 4, 2)
INTERPRETED = C(32, 32, 32, 4, 1)
INTERPRETED_DECODES = False
INTERPRETED_ONE_ROW: OneRowConfig | None = None

# e4m3 operands: the tile of up to 16 rows, then the others from the largest. No tile has more than
# the 128 columns that share a block scale, and 128 is a multiple of every block_k. A
# product without block scales and residual leaves registers for a wider tile first.
FP8_WIDE = {"sm_100": C(128, 256, 128, 8, 3, tma=True)}
_FP8_BY_TMA = (
    C(64, 32, 128, 4, 4),
    C(128, 128, 128, 8, 4, tma=True),
    C(64, 128, 128, 4, 4, tma=True),
    C(64, 64, 128, 4, 4, tma=True),
)
FP8: dict[str, tuple[MatmulConfig, ...]] = {
    "sm_90": _FP8_BY_TMA,
    "sm_100": _FP8_BY_TMA,
    "gfx942": (C(16, 32, 128, 2, 2), C(128, 128, 128, 8, 2), C(64, 64, 128, 4, 2)),
    "gfx950": (C(16, 64, 128, 4, 2), C(128, 128, 128, 8, 2), C(64, 64, 128, 4, 2)),
    "other": (C(64, 64, 64, 4, 2),),
}
# The same decoded to fp16 on the way: twice the registers.
DECODED: dict[str, tuple[MatmulConfig, ...]] = {
    "sm_80": (C(16, 64, 128, 4, 4), C(128, 128, 64, 8, 3), C(64, 64, 64, 4, 4)),
    "sm_90": (C(64, 32, 128, 4, 4), C(128, 128, 64, 8, 3), C(64, 64, 64, 4, 4)),
    "sm_100": (C(64, 32, 128, 4, 4), C(128, 128, 64, 8, 3), C(64, 64, 64, 4, 4)),
    "gfx90a": (C(16, 32, 128, 2, 2), C(128, 128, 64, 8, 2), C(64, 64, 64, 4, 2)),
    "gfx942": (C(16, 32, 128, 2, 2), C(128, 128, 64, 8, 2), C(64, 64, 64, 4, 2)),
    "gfx950": (C(16, 64, 128, 4, 2), C(128, 128, 64, 8, 2), C(64, 64, 64, 4, 2)),
    "other": (C(64, 64, 64, 4, 2),),
}


def choose(
    target: Target, M: int, N: int, K: int, dtype: torch.dtype, *, use_tf32: bool = False
) -> MatmulConfig:
    """The configuration ``matmul`` launches for this problem."""
    return _by_shape(target, M, N, K, dtype, use_tf32=use_tf32)


def _by_shape(
    target: Target, M: int, N: int, K: int, dtype: torch.dtype, *, use_tf32: bool = False
) -> MatmulConfig:
    """What ``choose`` says where another kernel's ``supported`` asks: no launch follows, and a
    sweep, which puts others in its place, must not change the answer."""
    if target.backend == "interpreter":
        return INTERPRETED
    kind = "16-bit" if dtype.itemsize == 2 else "tf32" if use_tf32 else "fp32"
    whole = _whole(target, M, N, kind)
    if M > SPLIT_ROWS:
        return whole
    if kind == "16-bit" and (columns := _whole_columns(target, N, K)) is not None:
        return columns
    skinny = SPLIT.get(target.name, whole) if kind == "16-bit" and M > SKINNY_ROWS else whole
    splits = parts(target, skinny, M, N, K, dtype.itemsize)
    return replace(skinny, splits=splits) if splits > 1 else whole


def choose_one_row(target: Target, a: torch.Tensor, b: torch.Tensor) -> OneRowConfig | None:
    """The configuration of the kernel for one row, None where another one serves."""
    if a.shape[0] != 1 or a.dtype.itemsize != 2 or b.stride(0) != 1:
        return None
    if target.backend == "interpreter":
        return INTERPRETED_ONE_ROW
    return ONE_ROW.get(target.name)


def choose_grouped(
    target: Target, total: int, groups: int, N: int, dtype: torch.dtype
) -> MatmulConfig:
    """The configuration of ``grouped_matmul``, for rows that are spread evenly over the groups:
    the host does not know better."""
    if target.backend == "interpreter":
        return INTERPRETED
    kind = "16-bit" if dtype.itemsize == 2 else "fp32"
    rows = -(-total // groups)
    if kind == "16-bit" and rows <= SKINNY_ROWS and target.name in SKINNY:
        return replace(SKINNY[target.name], tma=False)
    candidates = GROUPED.get((target.name, kind), (DEFAULT,))
    for config in candidates:
        tiles = groups * -(-rows // config.block_m) * -(-N // config.block_n)
        if rows > config.block_m // 2 and 4 * tiles >= 3 * PROCESSORS.get(target.name, 1):
            return config
    return candidates[-1]


def multiplies(target: Target, dtype: torch.dtype) -> bool:
    """Whether a matrix unit of the target multiplies this flavour of e4m3."""
    if target.backend == "interpreter":
        return not INTERPRETED_DECODES
    return dtype in target.fp8_dtypes


def choose_fp8(
    target: Target, M: int, N: int, K: int, *, native: bool, plain: bool
) -> MatmulConfig:
    """The configuration of ``matmul`` for fp8 operands, multiplied as such or decoded to fp16, and
    plain: without block scales and residual."""
    if target.backend == "interpreter":
        return INTERPRETED
    tables = FP8 if native else DECODED
    first, *others = tables.get(target.name, tables["other"])
    if M <= SPLIT_ROWS:
        narrow = first if M <= SKINNY_ROWS or not others else others[-1]
        return replace(narrow, splits=parts(target, narrow, M, N, K, 1))
    wide = FP8_WIDE.get(target.name) if native and plain else None
    candidates = [wide, *others] if wide else others or [first]
    return _largest(target, M, N, candidates)


def for_few_rows(target: Target, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether ``choose`` has a configuration for as few rows as a has, of 16-bit values: one that
    splits K, or that reads whole columns, if their strides let a load be of 16 bytes."""
    M, K = a.shape
    if M > SPLIT_ROWS:
        return False
    config = _by_shape(target, M, b.shape[1], K, a.dtype)
    # What Triton knows of a stride is whether it is 1 or a multiple of 16.
    aligned = all(stride == 1 or stride % 16 == 0 for stride in (*a.stride(), *b.stride()))
    return config.splits > 1 or (aligned and config in WHOLE_COLUMNS.get(target.name, ()))


def _whole_columns(target: Target, N: int, K: int) -> MatmulConfig | None:
    """Of ``WHOLE_COLUMNS`` the one for this many columns; None if they are too few, or K too short
    to fill the stages."""
    processors = PROCESSORS.get(target.name, 0)
    for i, config in enumerate(WHOLE_COLUMNS.get(target.name, ())):
        tiles = -(-N // config.block_n)
        fits = tiles > processors if i == 0 else 7 * processors <= 10 * tiles <= 10 * processors
        if fits and config.block_k * config.num_stages <= K:
            return config
    return None


def _whole(target: Target, M: int, N: int, kind: str) -> MatmulConfig:
    """Of tiles that each read all of K."""
    if kind == "16-bit" and M <= SKINNY_ROWS and target.name in SKINNY:
        return SKINNY[target.name]
    return _largest(target, M, N, TILES.get((target.name, kind), (DEFAULT,)))


def _largest(target: Target, M: int, N: int, candidates: Sequence[MatmulConfig]) -> MatmulConfig:
    """The first that gives most of the processors a tile, else the last."""
    for config in candidates:
        tiles = -(-M // config.block_m) * -(-N // config.block_n)
        if 4 * tiles >= 3 * PROCESSORS.get(target.name, 1):
            return config
    return candidates[-1]


def parts(target: Target, config: MatmulConfig, M: int, N: int, K: int, itemsize: int) -> int:
    """How many parts of K give every processor of the target the programs it has room for.

    Each part keeps four passes of the loop, for loads to be hidden behind one another, and what
    the parts write and read again in fp32 stays below a quarter of B.
    """
    tiles = -(-M // config.block_m) * -(-N // config.block_n)
    steps = -(-K // config.block_k)
    room = PROCESSORS.get(target.name, 0) * RESIDENT.get(target.name, 0)
    most = min(room // max(tiles, 1), steps // 4, K * itemsize // (32 * max(M, 1)), MOST_PARTS)
    if most < 2:
        return 1
    return -(-steps // -(-steps // most))  # no part is empty
