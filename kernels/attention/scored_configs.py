"""Tile sizes of attention of whose scores more is asked than masks, by target and head dim."""

from __future__ import annotations

from .plain_configs import FORWARD, BackwardConfig, ForwardConfig

B, C = BackwardConfig, ForwardConfig

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
