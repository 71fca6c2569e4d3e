"""Which tiles attention takes: a commit's speed is a function of the commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels.attention.common.problem import Problem
from kernels.runtime.targets import Target

from . import plain, scored
from .plain import BackwardConfig, ForwardConfig

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
    return head_dim == head_dim_v and head_dim in plain.FORWARD["sm_90"]


@dataclass(frozen=True)
class Asked:
    """What decides besides target, head dim and dtype: whether sequences are ``packed``, a window
    hides first keys (``windowed``), a row sees few keys (``narrow``), heads share keys
    (``grouped``), head dims are not ``measured`` (``other``), tiles may come through descriptors
    (``describable``), scores have options besides a mask (``scored``), many (``crowded``), a bias
    and lists of blocks (``biased_blocks``), ``uneven`` as common/options.py has it, ``alone`` the
    option where there is one only, and ``ragged`` where all rows see all keys, in a number that is
    no multiple of 16."""

    packed: bool = False
    windowed: bool = False
    narrow: bool = False
    grouped: bool = False
    other: bool = False
    describable: bool = True
    scored: bool = False
    crowded: bool = False
    biased_blocks: bool = False
    uneven: str | None = None
    alone: str | None = None
    ragged: bool = False

    @classmethod
    def of(cls, target: Target, problem: Problem, describable: bool, alone: str | None) -> Asked:
        options, mask, keys = problem.options, problem.mask, problem.lengths[1]
        most = keys  # that a row sees
        if mask.causal and mask.left is not None:
            most = min(keys, mask.offset - mask.left + 1)
        return cls(
            packed=problem.packed is not None,
            windowed=mask.left is not None,
            narrow=most <= plain.NARROW,
            grouped=problem.heads > problem.kv_heads,
            other=not measured(target, *problem.head_dims),
            describable=describable,
            scored=not options.plain,
            crowded=options.crowded,
            biased_blocks=options.biased_blocks,
            uneven=options.uneven(problem.scores),
            alone=alone,
            ragged=problem.packed is None and not problem.is_masked and keys % 16 != 0,
        )


def choose_backward(
    target: Target, head_dim: int, dtype: torch.dtype, asked: Asked, *, exact: bool = False
) -> BackwardConfig:
    """The configuration that the backward pass launches, of its exact kernels with ``exact``."""
    packed, uneven, alone = asked.packed, asked.uneven, asked.alone or ""
    if exact and dtype == torch.float32 and target.adds_fp64:
        return WIDE_FP64_BACKWARD if head_dim > 64 else FP64_BACKWARD
    if exact:
        if asked.scored and head_dim <= 64 and dtype.itemsize == 2 and target.name == "sm_100":
            return SCORED_EXACT_BACKWARD
        # Where more is asked of scores than a mask, four warps have no registers on NVIDIA.
        crammed = asked.scored and dtype.itemsize == 2 and target.backend == "cuda"
        wide = head_dim * dtype.itemsize > (128 if crammed else 256)
        return WIDE_EXACT_BACKWARD if wide else EXACT_BACKWARD
    if target.backend == "interpreter":
        return INTERPRETED_BACKWARD
    if dtype.itemsize == 2 and target.name in plain.BACKWARD:
        limit = next(limit for limit in plain.BACKWARD[target.name] if head_dim <= limit)
        by_pointers = plain.POINTERS_BACKWARD.get(target.name, {}).get(limit)
        if by_pointers and not (asked.describable or asked.scored or asked.other):
            return by_pointers
        other = asked.other or not asked.describable
        kind = uneven or ""
        if asked.crowded:
            kind = "blocks" if asked.biased_blocks else "crowded" if uneven else ""
        shared = scored.SHARED_KV.get(kind, {}).get(target.name, {}) if asked.grouped else {}
        row = scored.ALONE_BACKWARD.get(alone, {}).get(target.name, {}).get(head_dim)
        if row and not packed and not other:
            own = scored.ALONE_GROUPED_KV.get(alone, {}).get(target.name, {}) | shared
            return replace(row, kv=own.get(head_dim, row.kv)) if asked.grouped else row
        tables = plain.BACKWARD | plain.OTHER_BACKWARD if other else plain.BACKWARD
        if (packed or asked.narrow) and not other:
            tables = tables | (plain.PACKED_BACKWARD if packed else plain.NARROW_BACKWARD)
        found = tables[target.name][limit]
        undescribed = packed and not (asked.describable and found.tma)
        if asked.scored or undescribed:
            tables = plain.BACKWARD | plain.ROOMY_BACKWARD
        shared_kv = plain.WINDOW_KV if asked.windowed else plain.GROUPED_KV
        by_one = (plain.PACKED_KV if packed else shared_kv).get(target.name, {})
        # Where there are descriptors, these tiles were measured with them alone.
        one_loop = limit in by_one and not (undescribed and found.tma)
        if asked.grouped and one_loop and not other and not asked.scored:
            return replace(tables[target.name][limit], kv=by_one[limit])
        tables = tables | scored.SCORED_BACKWARD if asked.scored else tables
        tables = tables | scored.UNEVEN_BACKWARD if uneven else tables
        if asked.crowded:
            tables = tables | scored.CROWDED_BACKWARD
            tables = tables | scored.UNEVEN_CROWDED_BACKWARD if uneven else tables
        found = tables[target.name][limit]
        return replace(found, kv=shared.get(limit, found.kv)) if asked.scored else found
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
    target: Target, head_dim: int, dtype: torch.dtype, asked: Asked
) -> ForwardConfig:
    """The configuration the forward pass launches."""
    whole, other = not (asked.windowed or asked.packed), asked.other
    uneven, alone = asked.uneven, asked.alone or ""
    if target.backend == "interpreter":
        return INTERPRETED
    if dtype.itemsize == 2 and target.name in plain.FORWARD:
        found = scored.ALONE_FORWARD.get(alone, {}).get(target.name, {}).get(head_dim)
        # Through pointers what is to come through descriptors spills: up to 576 bytes on sm_90.
        fits = found and (asked.describable or not found.tma)
        if found and fits and whole and not other and not uneven:
            return found
        limit = next(limit for limit in plain.FORWARD[target.name] if head_dim <= limit)
        by_pointers = plain.POINTERS_FORWARD.get(target.name, {}).get(limit)
        if by_pointers and not (asked.describable or asked.scored or other):
            return by_pointers
        if asked.ragged and (found := plain.RAGGED_FORWARD.get(target.name, {}).get(head_dim)):
            return found
        roomy = asked.scored or not whole
        tables = plain.FORWARD | plain.ROOMY_FORWARD if roomy else plain.FORWARD
        narrow = (asked.packed or asked.narrow) and not asked.scored
        tables = tables | plain.NARROW_FORWARD if narrow else tables
        # On sm_90 what more is asked of has the tiles of before, without branches.
        if other and target.name == "sm_90":
            tables = plain.FORWARD | scored.SCORED_FORWARD
        tables = tables | scored.SCORED_FORWARD if asked.scored else tables
        # Head dims between powers of two have registers for no branch on sm_90.
        if uneven and not (other and target.name == "sm_90"):
            own = scored.UNEVEN_FP32_FORWARD if uneven == "fp32" else scored.UNEVEN_FORWARD
            tables = tables | own
        tables = tables | scored.CROWDED_FORWARD if asked.crowded else tables
        tables = tables | scored.BIASED_BLOCKS if asked.biased_blocks else tables
        return tables[target.name][limit]
    if head_dim * dtype.itemsize > 256 or dtype == torch.float32:
        return WIDE_DEFAULT
    return DEFAULT
