"""Which tiles attention takes: a commit's speed is a function of the commit."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.runtime.targets import Target

from .plain import (
    BACKWARD,
    FORWARD,
    GROUPED_KV,
    NARROW_BACKWARD,
    NARROW_FORWARD,
    OTHER_BACKWARD,
    PACKED_BACKWARD,
    PACKED_KV,
    POINTERS_BACKWARD,
    POINTERS_FORWARD,
    RAGGED_FORWARD,
    ROOMY_BACKWARD,
    ROOMY_FORWARD,
    WINDOW_KV,
    BackwardConfig,
    ForwardConfig,
)
from .scored import (
    ALONE_BACKWARD,
    ALONE_FORWARD,
    ALONE_GROUPED_KV,
    BIASED_BLOCKS,
    CROWDED_BACKWARD,
    CROWDED_FORWARD,
    SCORED_BACKWARD,
    SCORED_FORWARD,
    SHARED_KV,
    UNEVEN_BACKWARD,
    UNEVEN_CROWDED_BACKWARD,
    UNEVEN_FORWARD,
    UNEVEN_FP32_FORWARD,
)

C = ForwardConfig

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
# Of 16 bits, where more than a mask is asked of scores, up to 64 columns on sm_100: of four warps
# triton 3.6 spills 4 bytes. Found with the compiler.
SCORED_EXACT_BACKWARD = BackwardConfig(C(64, 32, 8, 1), C(64, 32, 8, 1))
# fp32 whose sums are of fp64: twice the registers. Found with the compiler.
FP64_BACKWARD = BackwardConfig(C(16, 32, 8, 1), C(16, 32, 8, 1))
WIDE_FP64_BACKWARD = BackwardConfig(C(16, 16, 8, 1), C(16, 16, 8, 1))


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
    windowed: bool = False,
    grouped: bool = False,
    scored: bool = False,
    crowded: bool = False,
    biased_blocks: bool = False,
    uneven: str | None = None,
    alone: str | None = None,
) -> BackwardConfig:
    """The configuration the backward pass launches for this problem; ``exact`` is told there,
    ``describable`` says that tiles come through descriptors, ``windowed`` that first keys are
    hidden, ``grouped`` that heads share keys, ``alone`` what is asked of scores where it is one
    thing and no window, the others as at ``choose_forward``.
    """
    if exact and dtype == torch.float32 and target.adds_fp64:
        return WIDE_FP64_BACKWARD if head_dim > 64 else FP64_BACKWARD
    if exact:
        if scored and head_dim <= 64 and dtype.itemsize == 2 and target.name == "sm_100":
            return SCORED_EXACT_BACKWARD
        # Where more is asked of scores than a mask, four warps have no registers on NVIDIA.
        crammed = scored and dtype.itemsize == 2 and target.backend == "cuda"
        wide = head_dim * dtype.itemsize > (128 if crammed else 256)
        return WIDE_EXACT_BACKWARD if wide else EXACT_BACKWARD
    if target.backend == "interpreter":
        return INTERPRETED_BACKWARD
    if dtype.itemsize == 2 and target.name in BACKWARD:
        if not (describable or scored or other):
            limit = next(limit for limit in BACKWARD[target.name] if head_dim <= limit)
            if own := POINTERS_BACKWARD.get(target.name, {}).get(limit):
                return own
        other = other or not describable
        kind = uneven or ""
        if crowded:
            kind = "blocks" if biased_blocks else "crowded" if uneven else ""
        shared = SHARED_KV.get(kind, {}).get(target.name, {}) if grouped else {}
        row = ALONE_BACKWARD.get(alone or "", {}).get(target.name, {}).get(head_dim)
        if row and not packed and not other:
            of_one = ALONE_GROUPED_KV.get(alone or "", {}).get(target.name, {}) if grouped else {}
            return replace(row, kv=(of_one | shared).get(head_dim, row.kv))
        tables = BACKWARD | OTHER_BACKWARD if other else BACKWARD
        if (packed or narrow) and not other:
            tables = tables | (PACKED_BACKWARD if packed else NARROW_BACKWARD)
        limit = next(limit for limit in tables[target.name] if head_dim <= limit)
        found = tables[target.name][limit]
        by_pointers = packed and not (describable and found.tma)
        if scored or by_pointers:
            tables = BACKWARD | ROOMY_BACKWARD
        shared_kv = PACKED_KV if packed else WINDOW_KV if windowed else GROUPED_KV
        by_one = shared_kv.get(target.name, {})
        # Where there are descriptors, these tiles were measured with them alone.
        one_loop = limit in by_one and not (by_pointers and found.tma)
        if grouped and one_loop and not other and not scored:
            return replace(tables[target.name][limit], kv=by_one[limit])
        tables = tables | SCORED_BACKWARD if scored else tables
        tables = tables | UNEVEN_BACKWARD if uneven else tables
        if crowded:
            tables = tables | (UNEVEN_CROWDED_BACKWARD if uneven else CROWDED_BACKWARD)
        found = tables[target.name][limit]
        return replace(found, kv=shared.get(limit, found.kv)) if scored else found
    if head_dim * dtype.itemsize > 256:
        return WIDE_DEFAULT_BACKWARD
    return DEFAULT_BACKWARD


def choose_rows(
    target: Target, columns: int, *, scored: bool, describable: bool = True
) -> ForwardConfig:
    """The tile of what corrects gradients of 16 bits (portable/backward/heavy_rows.py), which
    rounds like no other kernel's; of so many ``columns``, ``scored`` where more is asked than a
    mask, ``describable`` where 16 bytes of a row are fetched at once. Found with the compiler:
    nothing spills up to 128 columns."""
    if target.is_amd:
        return C(64, 32, 4, 1, 1) if scored or columns > 128 else C(64, 64, 4, 1, 2)
    if columns > 64 and (scored or not describable):
        return C(64, 16, 8, 2)
    if not describable:
        return C(64, 32, 8, 2)
    if scored:
        return C(64, 32, 4 if target.name == "sm_90" else 8, 1)
    if target.name == "sm_90":  # measured
        return C(64, 64, 4, 3) if columns <= 64 else C(128, 64, 8, 3 if columns <= 128 else 1)
    if columns <= 64:
        return C(64, 64, 4, 2)
    return C(64, 32 if target.name == "sm_80" else 64, 8, 2)


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
    uneven: str | None = None,
    alone: str | None = None,
    describable: bool = True,
    ragged: bool = False,
) -> ForwardConfig:
    """The configuration the forward pass launches; ``plain`` where nothing but causal is asked,
    ``other`` where head dims are not ``measured``, ``narrow`` where sequences are packed or
    a row sees few keys, ``scored`` where more is asked of scores than a mask, ``crowded`` where
    much is, ``biased_blocks`` where it is a bias and lists of blocks, ``uneven`` as
    common/options.py has it, ``alone`` what it is where it is one thing, ``describable`` where keys
    and values may come through descriptors, ``ragged`` where all rows see all keys, in a number
    that is no multiple of 16."""
    if target.backend == "interpreter":
        return INTERPRETED
    if dtype.itemsize == 2 and target.name in FORWARD:
        found = ALONE_FORWARD.get(alone or "", {}).get(target.name, {}).get(head_dim)
        # Through pointers what is to come through descriptors spills: up to 576 bytes on sm_90.
        fits = found and (describable or not found.tma)
        if found and fits and plain and not other and not uneven:
            return found
        if not (describable or scored or other):
            limit = next(limit for limit in FORWARD[target.name] if head_dim <= limit)
            if own := POINTERS_FORWARD.get(target.name, {}).get(limit):
                return own
        if ragged and (found := RAGGED_FORWARD.get(target.name, {}).get(head_dim)):
            return found
        tables = FORWARD if plain and not scored else FORWARD | ROOMY_FORWARD
        tables = tables | NARROW_FORWARD if narrow and not scored else tables
        # On sm_90 what more is asked of has the tiles of before, without branches.
        if other and target.name == "sm_90":
            tables = FORWARD | SCORED_FORWARD
        tables = tables | SCORED_FORWARD if scored else tables
        # Head dims between powers of two have registers for no branch on sm_90.
        if uneven and not (other and target.name == "sm_90"):
            tables = tables | (UNEVEN_FP32_FORWARD if uneven == "fp32" else UNEVEN_FORWARD)
        tables = tables | CROWDED_FORWARD if crowded else tables
        rows = (tables | BIASED_BLOCKS if biased_blocks else tables)[target.name]
        return rows[next(limit for limit in rows if head_dim <= limit)]
    if head_dim * dtype.itemsize > 256 or dtype == torch.float32:
        return WIDE_DEFAULT
    return DEFAULT
