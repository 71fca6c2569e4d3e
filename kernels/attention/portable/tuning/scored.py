"""Tile sizes of attention of whose scores more is asked than masks, by target and head dim."""

from __future__ import annotations

from .plain import BACKWARD, FORWARD, ROOMY_FORWARD, BackwardConfig, ForwardConfig

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
# A bias that no loads of 16 bytes fetch, or one value of which serves all keys of a row
# (common/options.py): the tiles of an even one spill, at head dim 128 up to 620 bytes on sm_80, 428
# on sm_90 and 1016 on sm_100, at 64 up to 4, 1120 and 4. On sm_80 two loops of these tiles would
# spill 40 at 128. With a second stage ptxas waits for every wgmma by itself on sm_90 (C7515), but
# of values of 4 bytes. AMD's tiles spill nothing. Those of sm_90 are the fastest on an H200 that
# neither spill nor wait so, under Triton 3.6 and 3.7; the others were found with the compiler.
UNEVEN_FORWARD: dict[str, dict[int, ForwardConfig]] = {
    "sm_80": ROOMY_FORWARD["sm_80"]
    | {64: C(64, 32, 4, 3, branch=True), 128: C(128, 32, 8, 2, branch=True)},
    "sm_90": SCORED_FORWARD["sm_90"]
    | {64: C(64, 64, 4, 1, branch=True), 128: C(64, 32, 4, 1, branch=True)},
    "sm_100": SCORED_FORWARD["sm_100"]
    | {64: C(64, 64, 4, 2, tma=True, branch=True), 128: C(64, 32, 8, 2, tma=True, branch=True)},
}
# Of fp32, a value a key, which copies of 4 bytes fetch ahead.
UNEVEN_FP32_FORWARD = UNEVEN_FORWARD | {
    "sm_90": SCORED_FORWARD["sm_90"]
    | {64: C(64, 64, 4, 2, branch=True), 128: C(64, 64, 4, 2, tma=True, branch=True)}
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

# One thing asked of scores, by its name among common/options.py's, leaves registers for the tiles
# that serve without any, or for these. Found with the compiler; not measured on a card yet.
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
# Of such a bias the keys' kernel spills by four warps 4 to 8 bytes on sm_80 at head dim 64, 8 to 48
# on sm_100 at 128, where the queries' spills 4 to 8 by eight. Found likewise.
UNEVEN_BACKWARD: dict[str, dict[int, BackwardConfig]] = {
    "sm_80": SCORED_BACKWARD["sm_80"] | {64: B(C(32, 64, 8, 1), C(64, 32, 4, 1))},
    "sm_100": SCORED_BACKWARD["sm_100"] | {128: B(C(32, 64, 8, 1), C(64, 32, 4, 1), delta_rows=32)},
}
CROWDED_BACKWARD = SCORED_BACKWARD | {
    "sm_100": SCORED_BACKWARD["sm_100"]
    | {
        64: B(C(32, 64, 8, 1), C(64, 32, 8, 1)),
        128: B(C(32, 64, 8, 1), C(64, 32, 8, 1), delta_rows=32),
    }
}
# Beside dropout or lists of blocks, too, where it spills 4 to 12.
UNEVEN_CROWDED_BACKWARD = CROWDED_BACKWARD | {"sm_80": UNEVEN_BACKWARD["sm_80"]}
# Where heads share keys their kernel spills by what serves else: of a bias of one value a row 4 to
# 12 bytes on sm_100 (and 24 at head dim 128 on sm_90, where lengths are uneven: by the fastest tile
# that spills none all gradients take 26 to 36 % more on an H200); of an uneven one of fp32 8 on
# sm_90, by triton 3.6 (without them all gradients take 4 to 6 % more); of an uneven one beside
# dropout or lists of blocks 4 to 12 on sm_100; of any with lists of blocks 12 to 20. Found with the
# compiler.
SHARED_KV: dict[str, dict[str, dict[int, ForwardConfig]]] = {
    "row": {"sm_100": {64: C(32, 64, 8, 1), 128: C(16, 64, 8, 2)}},
    "fp32": {"sm_90": {64: C(32, 64, 4, 2, branch=True)}},
    "crowded": {"sm_100": {64: C(16, 64, 8, 1)}},
    "blocks": {
        "sm_80": {64: C(16, 64, 8, 1), 128: C(16, 64, 8, 1)},
        "sm_90": {64: C(16, 64, 8, 1)},
    },
}

# One thing asked of scores, in gradients: what serves without any, where no compiler spills (at an
# even length and at an odd one, by triton 3.7, up to head dim 128 by 3.6 too). The keys' kernel has
# no registers for 64 queries where an option takes some: dropout and softcap 32 then, a bias one
# stage, of fp32 or uneven 32 queries, too, and a block mask no second stage. With more stages the
# queries' kernel of a bias gets C7515, or at head dim 128 with 128 rows; uneven (common/options.py)
# it spills by 64 keys. Found with the compiler. Measured on an H200 at head dim 128, us of 4 x 4096
# causal tokens of 16 heads: softcap by 32 queries in two stages and 128 x 64 2441, 64 queries in
# one 2465, three stages 2316, queries' tiles 64 x 64 in two 2354, both 2223; a bias
# 2505, by 32 queries 2707, in three stages 2674; queries' tiles in one stage lost 600. Dropout
# (2615) and a block mask (1285) would gain 222 and 79 by 64 queries in two stages, which spill.
# Elsewhere than sm_90 not yet found: at head dim 128 the first rows' launch spills on AMD by the
# tiles without options.
_KEYS_32 = C(32, 64, 4, 2, branch=True)
_KEYS_32_ONE_STAGE = C(32, 64, 4, 1, branch=True)
_QUERIES_64 = C(64, 64, 4, 2, branch=True)
_NARROW_HEADS = BACKWARD["sm_90"][64]
_WIDE_HEADS = B(C(32, 64, 8, 2, branch=True), C(64, 32, 4, 3, branch=True), tma=True)


def _on_hopper(
    keys: ForwardConfig, queries: ForwardConfig = BACKWARD["sm_90"][128].q
) -> dict[str, dict[int, BackwardConfig]]:
    wide = B(keys, queries, tma=True)
    return {"sm_90": {64: _NARROW_HEADS, 128: wide, 256: _WIDE_HEADS}}


def _of_bias(keys: ForwardConfig, queries: ForwardConfig) -> dict[str, dict[int, BackwardConfig]]:
    narrow = B(_NARROW_HEADS.kv, C(64, 64, 4, 1, branch=True), tma=True)
    return {"sm_90": _on_hopper(keys, queries)["sm_90"] | {64: narrow}}


ALONE_BACKWARD: dict[str, dict[str, dict[int, BackwardConfig]]] = {
    "sinks": _on_hopper(BACKWARD["sm_90"][128].kv),
    "slopes": _on_hopper(BACKWARD["sm_90"][128].kv),
    "softcap": _on_hopper(C(32, 64, 4, 3, branch=True), _QUERIES_64),
    "dropout": _on_hopper(_KEYS_32),
    "bias": _of_bias(C(64, 64, 4, 1, branch=True), _QUERIES_64),
    "bias_fp32": _of_bias(_KEYS_32, _QUERIES_64),
    "bias_uneven": _of_bias(_KEYS_32_ONE_STAGE, C(64, 32, 4, 1, branch=True)),
    "block_mask": _on_hopper(C(64, 64, 4, 1)),
}

# The loop over heads that share keys takes registers of its own: 4 to 20 bytes more than there are.
ALONE_GROUPED_KV: dict[str, dict[str, dict[int, ForwardConfig]]] = {
    "sinks": {"sm_90": {128: _KEYS_32}},
    "slopes": {"sm_90": {128: _KEYS_32}},
    "bias": {"sm_90": {128: _KEYS_32}},
    "bias_fp32": {"sm_90": {128: _KEYS_32_ONE_STAGE}},
    "block_mask": {"sm_90": {128: _KEYS_32}},
}
