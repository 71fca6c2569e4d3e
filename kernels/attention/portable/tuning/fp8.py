"""Tile sizes of attention in fp8, by target: found with the compiler; timed on sm_90 alone."""

from __future__ import annotations

from kernels.runtime.targets import Target

from .choose import INTERPRETED
from .plain import ForwardConfig as C

# Columns as in plain_configs.FORWARD. No row for sm_80 and gfx90a: they have no fp8. Nothing spills
# up to head dim 128. At 256 Hopper spills some 200 bytes, sm_100 68 with a window: half the rows
# do not, and bound the time 1.5 times as high.
FP8: dict[str, dict[int, C]] = {
    "sm_90": {64: C(64, 64, 4, 3), 128: C(128, 64, 8, 3), 256: C(128, 64, 8, 2)},
    "sm_100": {64: C(128, 64, 8, 2), 128: C(128, 64, 8, 2), 256: C(128, 64, 8, 2)},
    "gfx942": {64: C(128, 64, 4, 1, 2), 128: C(128, 64, 4, 1, 2), 256: C(64, 32, 4, 1, 2)},
    "gfx950": {64: C(128, 64, 4, 1, 2), 128: C(128, 64, 4, 1, 2), 256: C(128, 64, 8, 1, 2)},
}

# Other targets with fp8: consumer Blackwell and Ada.
DEFAULT = C(64, 64, 4, 2)


def choose_fp8(target: Target, head_dim: int) -> C:
    """The configuration the fp8 forward pass launches."""
    if target.backend == "interpreter":
        return INTERPRETED
    rows = FP8.get(target.name)
    return DEFAULT if rows is None else rows[next(limit for limit in rows if head_dim <= limit)]
