"""Tile sizes of attention, by target and problem: a commit's speed is a function of the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..targets import Target


@dataclass(frozen=True)
class ForwardConfig:
    """Rows of queries a program owns, keys it reads at a time, and the compiler's options.

    ``waves_per_eu`` is AMD's: registers are spent so that this many waves fit a SIMD. ``tma``
    fetches tiles through descriptors where the tensors allow.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    waves_per_eu: int = 0
    tma: bool = False

    def options(self) -> dict[str, Any]:
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return options | ({"waves_per_eu": self.waves_per_eu} if self.waves_per_eu else {})


@dataclass(frozen=True)
class BackwardConfig:
    """One tiling for the gradients of keys and values and one for that of queries: in both,
    ``block_m`` counts queries and ``block_n`` keys."""

    kv: ForwardConfig
    q: ForwardConfig
    tma: bool = False
    delta_rows: int = 64


C = ForwardConfig

# Columns: block_m, block_n, num_warps, num_stages, waves_per_eu, for head dims up to the key.
# On sm_90 several blocks of one warpgroup overlap one's softmax with another's matmuls: measured
# faster than 128 rows by two warpgroups, which halve what is read of keys. On AMD one stage,
# and 32 keys at head dim 128 before CDNA4: 64 keys or a second stage spill.
FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {64: C(128, 64, 4, 3), 128: C(128, 64, 8, 3), 256: C(64, 64, 8, 2)},
    "sm_90": {
        64: C(64, 128, 4, 2, tma=True),
        # Not 128x128: fetched by TMA, square tiles of keys give wrong results under triton 3.6.
        128: C(64, 64, 4, 3, tma=True),
        # Through pointers 1112 us at 2x4096x16x256, through TMA 1359.
        256: C(128, 64, 8, 2),
    },
    "sm_100": {
        64: C(128, 128, 8, 2, tma=True),
        128: C(128, 64, 8, 2, tma=True),
        256: C(128, 64, 8, 2, tma=True),
    },
    "gfx90a": {64: C(128, 64, 4, 1, 2), 128: C(128, 32, 4, 1, 2), 256: C(64, 32, 4, 1, 2)},
    "gfx942": {64: C(128, 64, 4, 1, 2), 128: C(128, 32, 4, 1, 2), 256: C(64, 32, 4, 1, 2)},
    "gfx950": {64: C(128, 64, 4, 1, 2), 128: C(128, 64, 4, 1, 2), 256: C(128, 32, 8, 1, 2)},
}

# Where a window or another option makes the loop longer than a tuned tile has registers for. Found
# with the compiler; not measured on a card yet.
ROOMY_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {64: C(64, 64, 4, 3), 128: C(64, 64, 4, 2), 256: C(64, 64, 8, 2)},
}

# kv owns the keys and walks the queries, q the other way round.
B = BackwardConfig
BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_80": {
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 2)),
        128: B(C(32, 64, 4, 2), C(128, 64, 8, 2)),
        256: B(C(32, 32, 8, 1), C(32, 32, 8, 1)),
    },
    "sm_90": {
        # 64x64 tiles by one warpgroup take 1243 + 710 us where these take 1564 + 714 at S4096,
        # causal; their results have not been compared on the card yet.
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 3), tma=True),
        # 64 keys by one warpgroup are faster still, but spill under triton 3.7.1.
        128: B(C(64, 128, 8, 2), C(128, 64, 8, 3), tma=True),
        # Two warpgroups at 32 queries by 64 keys share what wgmma, 64 rows high, feeds one with:
        # 5189 + 2928 us at 4x4096x8x256 where these take 3502 + 1926.
        256: B(C(64, 64, 8, 2), C(128, 32, 8, 2), tma=True),
    },
    "sm_100": {
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 2), tma=True),
        128: B(C(64, 128, 8, 1), C(128, 64, 8, 1), tma=True),
        256: B(C(64, 64, 8, 1), C(64, 64, 8, 1), tma=True),
    },
    "gfx90a": {
        64: B(C(32, 128, 8, 1, 2), C(128, 32, 8, 1, 2)),
        128: B(C(32, 64, 4, 1, 1), C(128, 32, 8, 1, 2)),
        256: B(C(32, 32, 4, 1, 1), C(32, 32, 4, 1, 1)),
    },
    "gfx942": {
        64: B(C(32, 128, 8, 1, 2), C(128, 32, 8, 1, 2)),
        128: B(C(32, 128, 4, 1, 1), C(128, 32, 8, 1, 2)),
        256: B(C(32, 32, 4, 1, 1), C(32, 32, 4, 1, 1)),
    },
    "gfx950": {
        64: B(C(32, 128, 8, 1, 2), C(128, 32, 8, 1, 2)),
        128: B(C(32, 128, 4, 1, 1), C(128, 32, 8, 1, 2)),
        256: B(C(32, 32, 4, 1, 1), C(32, 32, 4, 1, 1)),
    },
}

# Packed sequences come through pointers, which cost registers that descriptors do not. Found with
# the compiler; not measured on a card yet.
ROOMY_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_80": {
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 2)),
        128: B(C(64, 64, 8, 2), C(64, 64, 8, 2)),
        256: B(C(32, 32, 8, 1), C(32, 32, 8, 1)),
    },
    "sm_90": {
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 3)),
        128: B(C(64, 64, 8, 1), C(64, 64, 8, 1)),
        256: B(C(32, 64, 8, 2), C(64, 64, 8, 2)),
    },
    "sm_100": {
        64: B(C(64, 64, 4, 1), C(64, 64, 4, 1)),
        128: B(C(64, 128, 8, 1), C(128, 64, 8, 1)),
        256: B(C(64, 64, 8, 1), C(64, 64, 8, 1)),
    },
}

# Where scores are changed on their way to weights (softcap, ALiBi, sinks, bias), which needs
# registers of its own. Found with the compiler; not measured on a card yet.
SCORED_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_100": {
        64: C(128, 64, 8, 2, tma=True),
        128: C(128, 64, 8, 2, tma=True),
        256: C(128, 32, 8, 2, tma=True),
    },
    "gfx90a": {64: C(64, 64, 4, 1, 2), 128: C(64, 32, 4, 1, 2), 256: C(64, 32, 4, 1, 1)},
    "gfx942": {64: C(64, 64, 4, 1, 2), 128: C(64, 32, 4, 1, 2), 256: C(64, 32, 4, 1, 1)},
    "gfx950": {64: C(64, 64, 4, 1, 2), 128: C(64, 32, 4, 1, 2), 256: C(64, 32, 8, 1, 1)},
}
# With dropout or lists of blocks, so that all of it at once spills nothing up to head dim 128.
CROWDED_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {64: C(64, 32, 4, 2), 128: C(64, 32, 8, 2), 256: C(64, 32, 8, 2)},
    "sm_90": {64: C(64, 32, 4, 2, tma=True), 128: C(128, 16, 8, 1), 256: C(128, 16, 8, 1)},
    "sm_100": {64: C(64, 32, 8, 1), 128: C(64, 32, 8, 1), 256: C(64, 32, 8, 1)},
    "gfx90a": {64: C(64, 32, 4, 1, 2), 128: C(64, 32, 4, 1, 1), 256: C(64, 32, 4, 1, 1)},
    "gfx942": {64: C(64, 32, 4, 1, 2), 128: C(64, 32, 4, 1, 1), 256: C(64, 32, 4, 1, 1)},
    "gfx950": {64: C(64, 32, 4, 1, 2), 128: C(64, 32, 4, 1, 1), 256: C(64, 32, 8, 1, 1)},
}
_SCORED_CDNA: dict[int, BackwardConfig] = {
    64: B(C(32, 64, 4, 1, 1), C(64, 32, 4, 1, 1)),
    128: B(C(32, 64, 4, 1, 1), C(64, 32, 4, 1, 1)),
    256: B(C(32, 32, 4, 1, 1), C(32, 32, 4, 1, 1)),
}
SCORED_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_80": {
        64: B(C(32, 64, 4, 1), C(64, 32, 4, 1)),
        128: B(C(32, 64, 8, 1), C(64, 32, 8, 1)),
        256: B(C(32, 32, 8, 1), C(32, 32, 8, 1)),
    },
    "sm_90": {
        64: B(C(32, 64, 4, 1), C(64, 32, 4, 1)),
        128: B(C(16, 64, 8, 1), C(64, 16, 8, 1)),
        256: B(C(32, 64, 8, 2), C(64, 64, 8, 2)),
    },
    "sm_100": {
        64: B(C(32, 64, 4, 1), C(64, 32, 4, 1)),
        128: B(C(32, 64, 4, 1), C(64, 32, 8, 1), delta_rows=32),
        256: B(C(32, 32, 8, 1), C(32, 32, 8, 1)),
    },
    "gfx90a": _SCORED_CDNA,
    "gfx942": _SCORED_CDNA,
    "gfx950": _SCORED_CDNA,
}
CROWDED_BACKWARD = SCORED_BACKWARD | {
    "sm_100": {
        64: B(C(32, 64, 8, 1), C(64, 32, 8, 1)),
        128: B(C(32, 64, 8, 1), C(64, 32, 8, 1), delta_rows=32),
        256: B(C(32, 32, 8, 1), C(32, 32, 8, 1)),
    }
}

# Targets without a row of their own, and fp32, whose tiles are twice as large.
DEFAULT = C(64, 64, 4, 2)
WIDE_DEFAULT = C(64, 32, 8, 1)
INTERPRETED = C(64, 64, 4, 1)
DEFAULT_BACKWARD = BackwardConfig(C(32, 64, 4, 1), C(64, 32, 4, 1))
WIDE_DEFAULT_BACKWARD = BackwardConfig(C(32, 32, 8, 1), C(32, 32, 8, 1), delta_rows=16)
INTERPRETED_BACKWARD = BackwardConfig(C(32, 64, 4, 1), C(64, 32, 4, 1))

# One tiling for all kernels where they have to round alike.
EXACT_BACKWARD = BackwardConfig(C(32, 32, 4, 1), C(32, 32, 4, 1))
WIDE_EXACT_BACKWARD = BackwardConfig(C(32, 32, 8, 1), C(32, 32, 8, 1))
# fp32 whose sums are of fp64: twice the registers. Found with the compiler.
FP64_BACKWARD = BackwardConfig(C(16, 32, 8, 1), C(16, 32, 8, 1))
WIDE_FP64_BACKWARD = BackwardConfig(C(16, 16, 8, 1), C(16, 16, 8, 1))


def padded(head_dim: int) -> int:
    """Columns of a tile that holds ``head_dim`` of them: a power of 2, 16 at least."""
    return max(16, 1 << (head_dim - 1).bit_length())


def columns(target: Target, dtype: torch.dtype, head_dim: int, head_dim_v: int) -> tuple[int, int]:
    """Columns of the tiles that hold ``head_dim`` and ``head_dim_v`` of them in one kernel.

    wgmma reads tiles of 16, of 32 and of 64 or more columns of 16 bits in three orders (swizzles of
    32, 64 and 128 bytes). Where keys and values share an address in two orders, ptxas 12.8 (triton
    3.6 and 3.7) adds the order to half a descriptor that nothing wrote, and the product reads other
    places of shared memory: results are wrong or NaN, or the kernel faults. On an H200 so were
    gradients with 256 and 32 columns, whose descriptors show nothing wrong. So the narrower tile is
    in the order of the wider one.
    """
    block_d, block_dv = padded(head_dim), padded(head_dim_v)
    if target.has_wgmma and dtype.itemsize == 2:
        least = min(64, max(block_d, block_dv))
        return max(least, block_d), max(least, block_dv)
    return block_d, block_dv


def choose_backward(
    target: Target,
    head_dim: int,
    dtype: torch.dtype,
    *,
    exact: bool = False,
    packed: bool = False,
    scored: bool = False,
    crowded: bool = False,
) -> BackwardConfig:
    """The configuration the backward pass launches for this problem; ``exact`` is told there,
    ``scored`` and ``crowded`` at ``choose_forward``."""
    if exact and dtype == torch.float32 and target.adds_fp64:
        return WIDE_FP64_BACKWARD if head_dim > 64 else FP64_BACKWARD
    if exact:
        return WIDE_EXACT_BACKWARD if head_dim * dtype.itemsize > 256 else EXACT_BACKWARD
    if target.backend == "interpreter":
        return INTERPRETED_BACKWARD
    if dtype.itemsize == 2 and target.name in BACKWARD:
        tables = BACKWARD | ROOMY_BACKWARD if packed or scored else BACKWARD
        tables = tables | SCORED_BACKWARD if scored else tables
        rows = (tables | CROWDED_BACKWARD if crowded else tables)[target.name]
        return rows[next(limit for limit in rows if head_dim <= limit)]
    if head_dim * dtype.itemsize > 256:
        return WIDE_DEFAULT_BACKWARD
    return DEFAULT_BACKWARD


def choose_forward(
    target: Target,
    head_dim: int,
    dtype: torch.dtype,
    *,
    plain: bool = True,
    scored: bool = False,
    crowded: bool = False,
) -> ForwardConfig:
    """The configuration the forward pass launches; ``plain`` where nothing but causal is asked,
    ``scored`` where more is asked of scores than a mask, ``crowded`` where much is."""
    if target.backend == "interpreter":
        return INTERPRETED
    if dtype.itemsize == 2 and target.name in FORWARD:
        tables = FORWARD if plain and not scored else FORWARD | ROOMY_FORWARD
        tables = tables | SCORED_FORWARD if scored else tables
        rows = (tables | CROWDED_FORWARD if crowded else tables)[target.name]
        return rows[next(limit for limit in rows if head_dim <= limit)]
    if head_dim * dtype.itemsize > 256 or dtype == torch.float32:
        return WIDE_DEFAULT
    return DEFAULT
