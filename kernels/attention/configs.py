"""Tile sizes of attention, by target and problem: a commit's speed is a function of the commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ..targets import Target


@dataclass(frozen=True)
class ForwardConfig:
    """Rows of queries a program owns, keys it reads at a time, and the compiler's options.

    ``waves_per_eu`` is AMD's: registers are spent so that this many waves fit a SIMD. ``tma``
    fetches tiles through descriptors where the tensors allow. With ``branch`` one loop walks all
    that is seen and branches around the masks of whole blocks; without, a loop of its own does so.
    With ``flat``, of gradients of keys, one loop walks all heads that share them, unless more than
    a mask is asked of scores.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    waves_per_eu: int = 0
    tma: bool = False
    branch: bool = False
    flat: bool = False

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
        64: C(64, 128, 4, 2, tma=True, branch=True),
        # Not 128x128: fetched by TMA, square tiles of keys give wrong results under triton 3.6.
        128: C(64, 64, 4, 3, tma=True, branch=True),
        256: C(128, 64, 8, 2, tma=True, branch=True),
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
        64: B(C(32, 64, 4, 3, branch=True), C(64, 64, 4, 3, branch=True), tma=True),
        128: B(C(64, 64, 4, 2, branch=True), C(128, 64, 8, 3, branch=True), tma=True),
        # Two warpgroups at 32 queries by 64 keys share what wgmma, 64 rows high, feeds one with:
        # 5189 + 2928 us at 4x4096x8x256 where these take 3502 + 1926.
        256: B(C(64, 64, 8, 2), C(64, 32, 4, 3, branch=True), tma=True),
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

# Where a row sees no more keys than this (its own and a window of 1024), or the sequences are
# packed, beginnings and ends of the loops take as long as the loops: smaller tiles, of which more
# fit a multiprocessor.
NARROW = 1025
NARROW_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_90": FORWARD["sm_90"] | {64: C(64, 64, 4, 2, tma=True, branch=True)},
}
NARROW_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_90": BACKWARD["sm_90"]
    | {128: B(C(64, 64, 4, 2, branch=True), C(64, 64, 4, 2, branch=True), tma=True)},
}
PACKED_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_90": BACKWARD["sm_90"]
    | {
        64: B(C(64, 64, 4, 2, branch=True), C(64, 64, 4, 3, branch=True), tma=True),
        256: B(C(64, 64, 8, 2), C(64, 32, 4, 3, branch=True), tma=True),
    },
}

# Where heads share keys. A loop around the loop would need registers of its own, and its end would
# empty the pipeline for each head: one walks all of them.
GROUPED_KV: dict[str, dict[int, ForwardConfig]] = {
    "sm_90": {
        64: C(64, 64, 4, 3, branch=True, flat=True),
        128: C(64, 64, 4, 2, branch=True, flat=True),
    }
}
PACKED_KV: dict[str, dict[int, ForwardConfig]] = {
    "sm_90": GROUPED_KV["sm_90"] | {64: C(64, 64, 4, 2, branch=True, flat=True)}
}

# Head dims between those of the tables, or unlike ones, or tiles through pointers: with them the
# tiles and branches above have not been run on a card, and at head dim 80 they spill.
OTHER_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_90": {
        64: B(C(64, 128, 8, 2), C(128, 64, 8, 3), tma=True),
        128: B(C(64, 128, 8, 2), C(128, 64, 8, 3), tma=True),
        256: B(C(64, 64, 8, 2), C(128, 32, 8, 2), tma=True),
    },
}

# What no descriptor holds comes through pointers, which cost registers that descriptors do not.
# Found with the compiler; not measured on a card yet.
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
    "sm_90": {
        64: C(64, 128, 4, 2, tma=True),
        128: C(64, 64, 4, 3, tma=True),
        256: C(128, 64, 8, 2),
    },
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
# A bias beside lists of blocks: with two stages ptxas waits for every wgmma by itself (C7515).
BIASED_BLOCKS = {"sm_90": CROWDED_FORWARD["sm_90"] | {64: C(64, 32, 4, 1, tma=True)}}

# One thing asked of scores, by its name among options.py's, leaves registers for the tiles that
# serve without any, or for these. Found with the compiler; not measured on a card yet.
_ONE_OF_CROWD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {128: C(128, 64, 8, 3)},
    "sm_90": FORWARD["sm_90"],
    "sm_100": {64: C(128, 64, 8, 2, tma=True), 128: C(128, 64, 8, 2, tma=True)},
    "gfx90a": {64: C(128, 64, 4, 1, 2), 128: C(128, 32, 4, 1, 2)},
    "gfx942": {128: C(128, 32, 4, 1, 2)},
    "gfx950": {64: C(128, 64, 4, 1, 2), 128: C(128, 32, 4, 1, 2)},
}
ALONE_FORWARD: dict[str, dict[str, dict[int, ForwardConfig]]] = {
    "sinks": {"sm_90": FORWARD["sm_90"]},
    "softcap": {"sm_90": FORWARD["sm_90"]},
    "bias": {
        "sm_90": {
            64: C(64, 128, 4, 2, tma=True, branch=True),
            # A third stage of the bias leaves room for one program a multiprocessor.
            128: C(64, 64, 4, 2, tma=True, branch=True),
        }
    },
    # 64 keys spill 8 bytes on sm_80 and 4 on gfx90a by triton 3.6.
    "dropout": _ONE_OF_CROWD
    | {
        "sm_80": {128: C(128, 32, 8, 3)},
        "gfx90a": _ONE_OF_CROWD["gfx90a"] | {64: C(128, 32, 4, 1, 2)},
    },
    "block_mask": _ONE_OF_CROWD,
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
INTERPRETED_BACKWARD = BackwardConfig(C(32, 64, 4, 1, flat=True), C(64, 32, 4, 1))

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


def measured(target: Target, head_dim: int, head_dim_v: int) -> bool:
    """Whether these head dims are among those that all tables of sm_90 were measured with."""
    if target.backend == "interpreter":
        return True
    return head_dim == head_dim_v and head_dim in FORWARD["sm_90"]


def most_seen(seqlen_k: int, causal_offset: int | None, left_offset: int | None) -> int:
    """How many keys a row sees at most."""
    if causal_offset is None or left_offset is None:
        return seqlen_k
    return min(seqlen_k, causal_offset - left_offset + 1)


def choose_backward(
    target: Target,
    head_dim: int,
    dtype: torch.dtype,
    *,
    exact: bool = False,
    packed: bool = False,
    describable: bool = True,
    other: bool = False,
    narrow: bool = False,
    grouped: bool = False,
    scored: bool = False,
    crowded: bool = False,
) -> BackwardConfig:
    """The configuration the backward pass launches for this problem; ``exact`` is told there,
    ``describable`` says that tiles come through descriptors, ``grouped`` that heads share keys,
    the others as at ``choose_forward``.
    """
    if exact and dtype == torch.float32 and target.adds_fp64:
        return WIDE_FP64_BACKWARD if head_dim > 64 else FP64_BACKWARD
    if exact:
        return WIDE_EXACT_BACKWARD if head_dim * dtype.itemsize > 256 else EXACT_BACKWARD
    if target.backend == "interpreter":
        return INTERPRETED_BACKWARD
    if dtype.itemsize == 2 and target.name in BACKWARD:
        other = other or not describable
        tables = BACKWARD | OTHER_BACKWARD if other else BACKWARD
        if (packed or narrow) and not other:
            tables = tables | (PACKED_BACKWARD if packed else NARROW_BACKWARD)
        limit = next(limit for limit in tables[target.name] if head_dim <= limit)
        found = tables[target.name][limit]
        if scored or (packed and not (describable and found.tma)):
            tables = BACKWARD | ROOMY_BACKWARD
        elif grouped and not other and limit in GROUPED_KV.get(target.name, {}):
            rows = (PACKED_KV if packed else GROUPED_KV)[target.name]
            return replace(found, kv=rows[limit])
        tables = tables | SCORED_BACKWARD if scored else tables
        return (tables | CROWDED_BACKWARD if crowded else tables)[target.name][limit]
    if head_dim * dtype.itemsize > 256:
        return WIDE_DEFAULT_BACKWARD
    return DEFAULT_BACKWARD


def choose_forward(
    target: Target,
    head_dim: int,
    dtype: torch.dtype,
    *,
    plain: bool = True,
    other: bool = False,
    narrow: bool = False,
    scored: bool = False,
    crowded: bool = False,
    biased_blocks: bool = False,
    alone: str | None = None,
    describable: bool = True,
) -> ForwardConfig:
    """The configuration the forward pass launches; ``plain`` where nothing but causal is asked,
    ``other`` where head dims are not ``measured``, ``narrow`` where sequences are packed or
    a row sees few keys, ``scored`` where more is asked of scores than a mask, ``crowded`` where
    much is, ``biased_blocks`` where it is a bias and lists of blocks, ``alone`` what it is where
    it is one thing, ``describable`` where keys and values may come through descriptors."""
    if target.backend == "interpreter":
        return INTERPRETED
    if dtype.itemsize == 2 and target.name in FORWARD:
        found = ALONE_FORWARD.get(alone or "", {}).get(target.name, {}).get(head_dim)
        # Through pointers what is to come through descriptors spills: up to 576 bytes on sm_90.
        if found and plain and not other and (describable or not found.tma):
            return found
        tables = FORWARD if plain and not scored else FORWARD | ROOMY_FORWARD
        tables = tables | NARROW_FORWARD if narrow and not scored else tables
        # On sm_90 what more is asked of has the tiles of before, without branches.
        if other and target.name == "sm_90":
            tables = FORWARD | SCORED_FORWARD
        tables = tables | SCORED_FORWARD if scored else tables
        tables = tables | CROWDED_FORWARD if crowded else tables
        rows = (tables | BIASED_BLOCKS if biased_blocks else tables)[target.name]
        return rows[next(limit for limit in rows if head_dim <= limit)]
    if head_dim * dtype.itemsize > 256 or dtype == torch.float32:
        return WIDE_DEFAULT
    return DEFAULT
