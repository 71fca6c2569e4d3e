"""Which backward passes Hopper's kernels take, and the launches of those up to head dim 128.

hopper/backward/wide/launch.py has those of wider heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import triton

from kernels.attention.common.addressing import Layout, Strides, near
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Found, Given, Problem
from kernels.attention.hopper.backward.one_pass.kernel import attention_backward_hopper
from kernels.attention.hopper.descriptors import described, numbers
from kernels.attention.hopper.packed.tiles import listed
from kernels.device import hopper_rings as ring
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .heavy_rows import launch as heavy_rows
from .row_stats import attention_backward_hopper_convert, attention_backward_hopper_prepare
from .short import launch as short
from .wide import launch as wide

BLOCK_N = 128  # 64 keys a warpgroup
MOST_KEYS = 1 << 20  # a program reads two numbers of each block of its head's keys
# Keys a query sees, in the mean, and queries a block of keys walks, up to which the portable
# kernels are faster at the head dim they have tiles for. docs/log/kernels/hopper/backward.md has
# the times.
FEW = {64: 384}
# The same in a window, at head dims up to 64, however many programs there are: keys times heads
# that share them, of which four gain no more than three.
FEW_WINDOW = 1000
# The same of packed sequences, at all head dims.
FEW_PACKED = 512
# Rows of workspaces, which packed sequences have in whole blocks each, by those of q; and bytes of
# sums that are no matter.
MOST_ROWS = 4
FEW_BYTES = 1 << 26
# Keys a query sees, in the mean, up to which hopper/backward/short/launch.py is faster, at its head
# dims.
SHORT = 768
SHORT_WINDOW = 1536  # the same in a window


@dataclass(frozen=True)
class HopperBackwardConfig:
    """``columns`` of q, k and v in shared memory, zeros after head_dim; of the query rows of a step
    a ring holds ``stages``; one pass always 2.

    With ``two_kernels`` queries have a kernel of their own (up to 128 columns
    hopper/backward/short/launch.py, above hopper/backward/wide/launch.py), else dq is summed by
    that of the keys.
    """

    columns: int
    two_kernels: bool = field(metadata={"values": (False, True)})
    stages: int = field(metadata={"values": (2, 3, 4)})

    def __post_init__(self) -> None:
        if self.two_kernels != (self.columns > 64) and self.columns != 128:
            which = "one pass" if self.columns == 64 else "two kernels"
            raise ValueError(f"two_kernels: {self.columns} columns have {which}")
        if not self.two_kernels and self.stages != 2:
            raise ValueError(f"stages: one pass has 2, got {self.stages}")
        if self.two_kernels and self.columns == 128 and self.stages < 3:
            # Causal, a warpgroup that holds one waits to pass over a second and for a third.
            raise ValueError(
                f"stages: two kernels of 128 columns want 3, got {self.stages}, with which "
                "causal ones never end"
            )

    @property
    def block_m(self) -> int:
        """Query rows a step."""
        return 128 if self.columns == 64 else 64


def choose(
    head_dim: int, keys_seen: int, *, windowed: bool = False, packed: bool = False
) -> HopperBackwardConfig:
    """The cut of a problem whose queries see ``keys_seen`` in the mean, or ``windowed`` at most;
    docs/log/kernels/hopper/backward.md has the measurements. Packed sequences have one pass."""
    if head_dim <= 64:
        return HopperBackwardConfig(64, two_kernels=False, stages=2)
    if head_dim > 128:
        return HopperBackwardConfig(wide.BLOCK_D, two_kernels=True, stages=2)
    if keys_seen <= (SHORT_WINDOW if windowed else SHORT) and not packed:
        return HopperBackwardConfig(128, two_kernels=True, stages=3)
    return HopperBackwardConfig(128, two_kernels=False, stages=2)


def supported(problem: Problem, dout: torch.Tensor) -> bool:
    """Whether these kernels take the problem: what heavy_rows/launch.py takes; packed sequences
    without a window up to head dim 128.

    Fewer than half a block of queries would need workspaces many times the size of q: their rows
    are rounded up to whole blocks. So would packed sequences most of which are that short, however
    long others are.
    """
    q, alone = problem.q, problem.packed is None
    return (
        q.shape[1] >= (64 if q.shape[3] <= 64 else 32)
        and problem.k.shape[1] <= MOST_KEYS
        and (alone or (problem.mask.left is None and q.shape[3] <= 128 and _fits(q)))
        and heavy_rows.supported(problem, dout)
    )


def _fits(q: torch.Tensor) -> bool:
    """Whether workspaces of these packed queries, whose batch counts sequences, are not much larger
    than they are. The host knows no lengths: a sequence may end anywhere in a block."""
    batch, tokens, heads, head_dim = q.shape
    block_m, columns = (128, 64) if head_dim <= 64 else (64, 128)
    rows = (tokens // block_m + batch) * block_m
    return rows <= MOST_ROWS * tokens or rows * heads * columns * 4 <= FEW_BYTES


def faster(problem: Problem) -> bool:
    """Whether these kernels, which take the problem, take less time than the portable ones.

    A block of keys starts and ends with few products next to it, which shows where it walks few
    queries; but not where programs have two at most.
    """
    batch, seqlen_q, heads, head_dim = problem.q.shape
    seqlen_k, kv_heads, packed = problem.k.shape[1], problem.kv_heads, problem.packed
    keys_seen = problem.keys_seen
    if problem.mask.left is not None:
        return head_dim > 64 or keys_seen * min(heads // kv_heads, 3) > FEW_WINDOW
    walked = keys_seen * seqlen_q * (heads // kv_heads) // seqlen_k
    if packed is not None:
        # Of lengths the host knows the longest and the mean; rows are mostly those of long ones.
        known = (packed.max_k + seqlen_k // batch) / (2 * packed.max_k)
        return min(keys_seen, walked) * known > FEW_PACKED
    programs = triton.cdiv(seqlen_k, BLOCK_N) * batch * kv_heads
    few_programs = programs <= 2 * targets.multiprocessors()
    return few_programs or max(keys_seen, walked) > FEW.get(head_dim, 0)


def launch(
    problem: Problem,
    given: Given,
    found: Found,
    *,
    marked: bool = False,
    config: HopperBackwardConfig | None = None,
) -> None:
    """Fill ``found``, gradients of q, k and v of a problem that ``supported`` accepts. ``marked``:
    whether dlse is what portable/backward/heavy_rows.py has in its place.

    Where dq is summed, that is without ``two_kernels``, a number of a head's K or V that is not
    finite makes dq of all its queries NaN, also of those that do not see that key.
    """
    # Of its columns, too, 32 bits count how far they are apart.
    given = given._replace(out=near(given.out))
    head_dim, windowed = problem.q.shape[3], problem.mask.left is not None
    packed = problem.packed is not None
    config = config or choose(head_dim, problem.keys_seen, windowed=windowed, packed=packed)
    if config.two_kernels:
        kernels = wide if config.columns > 128 else short
        return kernels.launch(problem, given, found, marked=marked, stages=config.stages)
    _launch(problem, config, given, found, marked)


@dataclass(frozen=True, eq=False)
class _Sums:
    """One pass with its workspaces: three numbers a row, sums of dq, and bounds of keys by head.
    ``places`` is where packed sequences stand (hopper/packed/places.py), ``n_m`` and ``n_n`` count
    blocks of rows and keys, ``blocks`` those of a sequence's keys."""

    rows: torch.Tensor
    sums: torch.Tensor
    bounds: torch.Tensor
    places: torch.Tensor | None
    n_heads: int
    n_kv_heads: int
    n_m: int
    n_n: int
    blocks: int

    @classmethod
    def of(cls, problem: Problem, config: HopperBackwardConfig) -> _Sums:
        q, k, packed = problem.q, problem.k, problem.packed
        (batch, seqlen_q, heads, _), (_, seqlen_k, kv_heads, _) = q.shape, k.shape
        block_m = config.block_m
        n_m, n_n = triton.cdiv(seqlen_q, block_m), triton.cdiv(seqlen_k, BLOCK_N)
        n_heads, n_kv_heads, blocks = batch * heads, batch * kv_heads, n_n
        if packed is not None:
            n_m, n_n = seqlen_q // block_m + batch, seqlen_k // BLOCK_N + batch
            n_heads, n_kv_heads, blocks = heads, kv_heads, triton.cdiv(packed.max_k, BLOCK_N)
        all_rows = n_heads * n_m * block_m
        rows = torch.empty((3, all_rows), dtype=torch.float32, device=q.device)
        sums = torch.empty((all_rows, config.columns), dtype=torch.int32, device=q.device)
        bounds = torch.empty((2, n_kv_heads, n_n), dtype=torch.float32, device=q.device)
        places = None
        if packed is not None:
            places = torch.empty((n_m + n_n, 4), dtype=torch.int32, device=q.device)
        # The same code for most lengths: they change from call to call.
        blocks = triton.next_power_of_2(max(blocks, 1 if packed is None else 256))
        counts = (n_heads, n_kv_heads, n_m, n_n, blocks)
        return cls(rows, sums, bounds, places, *counts)


def _launch(
    problem: Problem, config: HopperBackwardConfig, given: Given, found: Found, marked: bool
) -> None:
    """What sums are prepared with, the sums, and dq from those."""
    (dout, dlse, out, lse), (dq, dk, dv), one = given, found, _Sums.of(problem, config)
    q, k, v, packed, scale = problem.q, problem.k, problem.v, problem.packed, problem.scale
    causal, causal_offset, left_offset = problem.mask
    block_m, block_d = config.block_m, config.columns
    (batch, seqlen_q, heads, head_dim), (_, seqlen_k, kv_heads, _) = q.shape, k.shape
    shape = {"HEAD_DIM": head_dim, "BLOCK_D": block_d, "BLOCK_M": block_m}
    sequences, num_warps = (None, 4) if packed is None else (batch, 8)
    with targets.on_device_of(q):
        tiles: torch.Tensor | None = None
        programs, processors = one.n_n * one.n_kv_heads, targets.multiprocessors()
        if packed is not None:
            of_keys = replace(problem, q=k, k=q, packed=packed.swapped())
            tiles, programs = listed(
                of_keys, BLOCK_N, pairs=causal, by_head=True, programs=processors,
                spare=3 * processors, places=one.places, place_rows=block_m,
            )  # fmt: skip
        grid = (one.n_m * one.n_heads + one.n_n * one.n_kv_heads,)
        noted(attention_backward_hopper_prepare, grid)(
            k, v, out, dout, lse, dlse, one.bounds, one.rows, one.sums, one.places, sequences,
            Layout.of(k=k, v=v, out=out), Strides(*dout.stride()),
            one.n_heads // heads, heads, kv_heads, seqlen_q, seqlen_k, BLOCK_N=BLOCK_N, **shape,
            MARKED=marked, num_warps=num_warps,
        )  # fmt: skip
        noted(attention_backward_hopper, (min(programs, processors),))(
            described(packed, q, block_m, block_d),
            described(packed, k, BLOCK_N, block_d),
            described(packed, v, BLOCK_N, block_d),
            described(packed, dout, block_m, block_d),
            numbers(one.rows, block_m),
            one.bounds,
            ring.boxes(one.sums, (64, 64)),  # a half of dq
            described(packed, dk.transpose(0, 2) if packed is None else dk, 64, block_d),
            described(packed, dv, 64, block_d),
            tiles,
            heads,
            kv_heads,
            batch,
            seqlen_q,
            seqlen_k,
            causal_offset,
            left_offset,
            scale,
            scale * LOG2_E,
            BLOCK_M=block_m,
            BLOCK_N=BLOCK_N,
            HEAD_DIM=block_d,
            CAUSAL=causal,
            EVEN=packed is None and seqlen_k % BLOCK_N == 0,
            num_warps=4,
            launch_pdl=True,
        )
        noted(attention_backward_hopper_convert, (one.n_m * one.n_heads,))(
            one.sums, one.rows, one.bounds, dq, one.places, sequences,
            heads, kv_heads, seqlen_q, seqlen_k, scale, BLOCK_N=BLOCK_N, BLOCKS=one.blocks, **shape,
            num_warps=num_warps, launch_pdl=True,
        )  # fmt: skip
