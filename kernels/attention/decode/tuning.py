"""Tile sizes of attention over a key-value cache, and into how many parts its keys are split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from kernels.runtime.targets import Target


@dataclass(frozen=True)
class KvcacheConfig:
    """Keys a program reads at a time, the fewest and most rows of queries it owns, the compiler's
    options, how many programs an SM is given before the keys are split further, whether keys are
    the rows of products and queries the columns (not for fp32), and the stages of a program that
    has an SM to itself, 0 where none is to."""

    block_n: int
    min_m: int
    max_m: int
    num_warps: int
    num_stages: int
    per_sm: int = 2
    turned: bool = False
    alone: int = 0

    def block_m(self, rows: int) -> int:
        return min(self.max_m, max(self.min_m, 1 << (rows - 1).bit_length()))


C = KvcacheConfig

# Columns: block_n, min_m, max_m, num_warps, num_stages, for head dims up to the key. 64 rows are
# the fewest wgmma and tcgen05 take; elsewhere each warp multiplies all the keys by all rows, up to
# 16, so that few warps and more programs do less. Found with the compiler; not measured on a card.
_CDNA = {
    64: C(64, 16, 32, 2, 2, per_sm=4),
    128: C(32, 16, 32, 2, 2, per_sm=4),
    256: C(32, 16, 32, 4, 1),
}
TILES: dict[str, dict[int, KvcacheConfig]] = {
    "sm_80": {64: C(64, 16, 64, 4, 3), 128: C(64, 16, 64, 4, 3), 256: C(32, 16, 32, 4, 2)},
    "sm_90": {
        64: C(64, 64, 64, 4, 4),
        128: C(64, 64, 64, 4, 3, alone=4),
        256: C(32, 64, 64, 4, 3),
    },
    "sm_100": {64: C(64, 64, 64, 4, 4), 128: C(64, 64, 64, 4, 3), 256: C(32, 64, 64, 4, 3)},
    "gfx90a": _CDNA,
    "gfx942": _CDNA,
    "gfx950": _CDNA | {128: C(64, 16, 32, 2, 2, per_sm=4)},
}

# Turned tiles, for up to max_m rows of queries: of caches of the queries' dtype, and of fp8 caches
# read in pairs of columns. Measured on an H200 against the rows above, other stages, splits and 32
# or 128 keys; 64 rows of queries spill.
TURNED: dict[str, dict[int, KvcacheConfig]] = {
    "sm_90": {128: C(64, 16, 32, 4, 3, turned=True, alone=4)},
}
TURNED_PAIRS: dict[str, dict[int, KvcacheConfig]] = {
    "sm_90": {128: C(64, 16, 32, 4, 3, per_sm=3, turned=True)},
}

# Of values above head dim 256, which MLA's are. Found with the compiler, as above.
WIDE_VALUES: dict[str, KvcacheConfig] = {
    "sm_90": C(32, 64, 64, 8, 2),
    "sm_100": C(32, 64, 64, 8, 2),
}

# Of packed queries, where tiles of 64 keys spill 36 bytes. Found with the compiler, as above.
PACKED: dict[str, dict[int, KvcacheConfig]] = {"sm_80": {128: C(32, 16, 64, 4, 3)}}

DEFAULT = C(32, 16, 32, 4, 2)
WIDE_DEFAULT = C(16, 16, 16, 4, 1)
INTERPRETED = C(32, 16, 32, 4, 1, alone=1)

# Partial results are read back by the combining kernel: more parts than this cost more than they
# bring, and its table of weights has to fit registers.
MAX_SPLITS = 128
# A part is given at least so many blocks of keys, or starting it costs more than it reads.
BLOCKS_A_SPLIT = 2
# The fewest parts that fill the processors to this share of what the best number does.
ENOUGH = 0.94
# Programs on so many of the SMs, or more, read as fast as programs on all.
FULL = 0.9


def choose(
    target: Target,
    head_dim: int,
    dtype: torch.dtype,
    rows: int,
    fp8: bool,
    in_pairs: bool,
    packed: bool = False,
) -> KvcacheConfig:
    """The tiles for ``rows`` rows of queries of ``dtype``, of sequences that are ``packed`` or not,
    and a cache of it or of ``fp8``, which can be read in pairs of columns or not."""
    if target.backend == "interpreter":
        return replace(INTERPRETED, turned=dtype.itemsize == 2)
    if head_dim > 256:
        by_bits = WIDE_VALUES if dtype.itemsize == 2 else {}
        return by_bits.get(target.name, WIDE_DEFAULT)
    if dtype.itemsize == 2 and target.name in TILES:
        tiles = TILES[target.name] | (PACKED.get(target.name, {}) if packed else {})
        limit = next(limit for limit in tiles if head_dim <= limit)
        turned = (TURNED_PAIRS if in_pairs else {} if fp8 else TURNED).get(target.name, {})
        if limit in turned and rows <= turned[limit].max_m:
            return turned[limit]
        return tiles[limit]
    return WIDE_DEFAULT if head_dim * dtype.itemsize > 256 else DEFAULT


@lru_cache
def alone(
    config: KvcacheConfig, tiles: int, rows: int, page_size: int, processors: int
) -> KvcacheConfig | None:
    """``config`` for programs that read all keys of a sequence and have one of ``processors`` SMs
    each, where those of ``tiles`` key heads fill the card: there is nothing to add. None elsewhere,
    for more ``rows`` than fit the smallest tile, and for pages that blocks do not fit: their
    numbers are too many for one program an SM."""
    if not config.alone or not FULL * processors <= tiles <= processors:
        return None
    if rows > config.min_m or page_size % config.block_n:
        return None
    return replace(config, num_stages=config.alone)


@lru_cache
def choose_splits(tiles: int, key_blocks: int, processors: int) -> int:
    """Into how many parts to split the keys of each of ``tiles`` programs.

    The fewest that keep ``processors`` (places for a program) nearly as busy as the best number
    does: the last wave is seldom full. From the shapes alone: the lengths are on the device, and a
    captured graph serves all of them.
    """
    most = min(MAX_SPLITS, key_blocks // BLOCKS_A_SPLIT, 2 * processors // max(tiles, 1))
    if most <= 1:
        return 1

    def filled(splits: int) -> float:
        waves = tiles * splits / processors
        return waves / -(-tiles * splits // processors)

    best = max(filled(splits) for splits in range(1, most + 1))
    return next(s for s in range(1, most + 1) if filled(s) >= ENOUGH * best)
