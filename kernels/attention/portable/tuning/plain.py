"""Tile sizes of attention of which no more is asked than masks, by target and head dim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.device.configurations import constants


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

    def constants(self) -> dict[str, Any]:
        """The tile and the compiler's options, as kernels take them."""
        tile = constants(self, "block_m", "block_n")
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return tile | options | ({"waves_per_eu": self.waves_per_eu} if self.waves_per_eu else {})


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

# Where rows see all keys, whose number is no multiple of 16: a loop for the last keys behind that
# of the others spills 8 bytes, by triton 3.6 20. Found with the compiler; not measured on a card.
RAGGED_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {128: C(128, 64, 8, 3, branch=True)},
}

# Keys and values whose rows 16 bytes do not divide: where nothing is asked but masks, what serves
# others spills up to 1496 bytes in a window on sm_80, 12 without one at head dim 64, up to 232 in a
# window on sm_100, 516 on sm_90 and, by triton 3.6, up to 364 on AMD. Found with the compiler; on
# an H200 4 x 4096 tokens of 16 heads of 128 take 1330 us for 1661 causal, 2619 for 3338 full.
POINTERS_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {64: C(128, 64, 4, 3, branch=True), 128: C(128, 64, 8, 3, branch=True)},
    "sm_90": {128: C(128, 64, 8, 2, branch=True)},
    "sm_100": {64: C(128, 64, 8, 1, branch=True), 128: C(128, 64, 8, 1, branch=True)},
    "gfx90a": {64: C(128, 64, 4, 1, 1)},
    "gfx942": {64: C(128, 64, 4, 1, 1), 128: C(128, 32, 4, 1, 1)},
    "gfx950": {128: C(128, 64, 4, 1, 1)},
}

# kv owns the keys and walks the queries, q the other way round.
B = BackwardConfig
_CDNA: dict[int, BackwardConfig] = {
    64: B(C(32, 128, 8, 1, 2), C(128, 32, 8, 1, 2)),
    128: B(C(32, 128, 4, 1, 1), C(128, 32, 8, 1, 2)),
    256: B(C(32, 32, 4, 1, 1), C(32, 32, 4, 1, 1)),
}
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
    "gfx90a": _CDNA | {128: B(C(32, 64, 4, 1, 1), C(128, 32, 8, 1, 2))},
    "gfx942": _CDNA,
    "gfx950": _CDNA,
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
    },
}

# Where heads share keys. A loop around the loop would need registers of its own, and its end would
# empty the pipeline for each head: one walks all of them. On sm_80 nested loops spill 4 to 16 bytes
# at head dim 64 and, in a window, 8 to 12 at 128, where one loop in two stages spills at 64; found
# with the compiler, not measured on a card yet.
GROUPED_KV: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": {64: C(64, 128, 8, 2, flat=True)},
    "sm_90": {
        64: C(64, 64, 4, 3, branch=True, flat=True),
        128: C(64, 64, 4, 2, branch=True, flat=True),
    },
}
WINDOW_KV: dict[str, dict[int, ForwardConfig]] = GROUPED_KV | {
    "sm_80": {64: C(64, 128, 8, 1, flat=True), 128: C(32, 64, 4, 2, flat=True)},
}
PACKED_KV: dict[str, dict[int, ForwardConfig]] = GROUPED_KV | {
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
    "sm_80": BACKWARD["sm_80"] | {128: B(C(64, 64, 8, 2), C(64, 64, 8, 2))},
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
# As POINTERS_FORWARD, up to 408 bytes of queries and 16 of keys that heads share on sm_80, 20 of
# queries on sm_100 at 128, 80 there on AMD by triton 3.6. On sm_90 256 and 24; no tile of queries
# that spills nothing is as fast there: all gradients take 10 % more by this one, 1 by the keys'.
POINTERS_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_80": {
        64: B(C(64, 128, 8, 2, flat=True), C(128, 64, 8, 2)),
        128: B(C(64, 64, 8, 2, flat=True), C(64, 64, 8, 2)),
    },
    "sm_90": {128: B(C(32, 64, 4, 2), C(128, 32, 8, 3))},
    "sm_100": {128: B(C(64, 128, 8, 1), C(64, 64, 8, 1))},
    "gfx942": {128: B(BACKWARD["gfx942"][128].kv, C(64, 32, 4, 1, 1))},
    "gfx950": {128: B(BACKWARD["gfx950"][128].kv, C(64, 32, 4, 1, 1))},
}
# Above these head dims the queries' kernel has no registers to find delta beside a gradient of the
# log-sum-exp, or what takes its place: it spilled 24 to 32 bytes. A launch of its own does.
DELTA_APART = {"sm_80": 64}
