"""Which backward passes Hopper's kernels take, and the launches of those up to head dim 128.

hopper/backward/wide/launch.py has those of wider heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.attention.common.addressing import near
from kernels.attention.common.numerics.exactness import keys_seen
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.hopper.backward.one_pass.kernel import attention_backward_hopper
from kernels.attention.hopper.descriptors import copyable, descriptor, ragged_descriptor
from kernels.attention.hopper.forward.launch import LOG2_E
from kernels.attention.hopper.forward.launch import supported as supported_forward
from kernels.attention.hopper.packed.tiles import listed
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .row_stats import Tensors, attention_backward_hopper_convert, attention_backward_hopper_prepare
from .short import launch as short
from .wide import launch as wide

BLOCK_N = 128  # 64 keys a warpgroup
MOST_KEYS = 1 << 20  # every program reads two numbers of each block of keys
# Keys a query sees, in the mean, and queries a program walks, up to which the portable kernels are
# faster at the head dim they have tiles for. docs/log/kernels/hopper/backward.md has the times.
FEW = {64: 512}
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
SHORT = 1024
SHORT_WINDOW = 1536  # the same in a window


@dataclass(frozen=True)
class HopperBackwardConfig:
    """``columns`` of q, k and v in shared memory, zeros behind head_dim; ``block_m`` query rows a
    step, of which a ring holds ``stages``.

    With ``two_kernels`` queries have a kernel of their own (up to 128 columns
    hopper/backward/short/launch.py, above hopper/backward/wide/launch.py), else dq is summed by
    that of the keys.
    """

    columns: int
    two_kernels: bool = field(metadata={"values": (False, True)})
    block_m: int = field(metadata={"values": (64, 128)})
    stages: int = field(metadata={"values": (2, 3, 4)})

    def __post_init__(self) -> None:
        if self.two_kernels != (self.columns > 64) and self.columns != 128:
            which = "one pass" if self.columns == 64 else "two kernels"
            raise ValueError(f"two_kernels: {self.columns} columns have {which}")
        if self.two_kernels and self.block_m != 64:
            raise ValueError(f"block_m: two kernels have 64 rows a step, got {self.block_m}")
        if self.two_kernels and self.columns == 128 and self.stages < 3:
            # Causal, a warpgroup that holds one waits to pass over a second and for a third.
            raise ValueError(
                f"stages: two kernels of 128 columns want 3, got {self.stages}, with which "
                "causal ones never end"
            )


def choose(
    head_dim: int, keys_seen: int, *, windowed: bool = False, packed: bool = False
) -> HopperBackwardConfig:
    """The cut of a problem whose queries see ``keys_seen`` in the mean, or ``windowed`` at most;
    docs/log/kernels/hopper/backward.md has the measurements. Packed sequences have one pass."""
    if head_dim <= 64:
        return HopperBackwardConfig(64, two_kernels=False, block_m=128, stages=2)
    if head_dim > 128:
        return HopperBackwardConfig(wide.BLOCK_D, two_kernels=True, block_m=64, stages=2)
    if keys_seen <= (SHORT_WINDOW if windowed else SHORT) and not packed:
        return HopperBackwardConfig(128, two_kernels=True, block_m=64, stages=3)
    return HopperBackwardConfig(128, two_kernels=False, block_m=64, stages=2)


def supported(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    scale: float,
    *,
    causal: bool = True,
    left_offset: int | None = None,
    packed: Packed | None = None,
    **_: int,
) -> bool:
    """Whether these kernels take the problem: as the forward's, head dims from 33 on, and causal
    windows; packed sequences without a window up to head dim 128.

    Fewer than half a block of queries would need workspaces many times the size of q: their rows
    are rounded up to whole blocks. So would packed sequences most of which are that short, however
    long others are.
    """
    return (
        (causal or left_offset is None)
        and q.shape[3] > 32
        and q.shape[1] >= (64 if q.shape[3] <= 64 else 32)
        and k.shape[1] <= MOST_KEYS
        and (packed is None or (left_offset is None and q.shape[3] <= 128 and _fits(q)))
        and supported_forward(q, k, v, scale, packed)
        and copyable(dout if packed is None else dout[:1])
    )


def _fits(q: torch.Tensor) -> bool:
    """Whether workspaces of these packed queries, whose batch counts sequences, are not much larger
    than they are. The host knows no lengths: a sequence may end anywhere in a block."""
    batch, tokens, heads, head_dim = q.shape
    block_m, columns = (128, 64) if head_dim <= 64 else (64, 128)
    rows = (tokens // block_m + batch) * block_m
    return rows <= MOST_ROWS * tokens or rows * heads * columns * 4 <= FEW_BYTES


def faster(
    q: torch.Tensor,
    k: torch.Tensor,
    keys_seen: int,
    *,
    windowed: bool = False,
    packed: Packed | None = None,
) -> bool:
    """Whether these kernels, which take the problem, take less time than the portable ones.

    ``keys_seen``: by a query, in the mean, or ``windowed`` at most. A program starts and ends
    without products beside it, which shows where it walks few queries; but not where nearly all
    programs run at once.
    """
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    if windowed:
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
    tensors: Tensors,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None = None,
    scale: float,
    packed: Packed | None = None,
    config: HopperBackwardConfig | None = None,
) -> None:
    """Fill the gradients of ``tensors`` that ``supported`` accepts.

    Packed tensors are as ``Packed.spread`` makes them, but for their gradients.

    Where dq is summed, that is without ``two_kernels``, a number of a head's K or V that is not
    finite makes dq of all its queries NaN, also of those that do not see that key.
    """
    # Of its columns, too, 32 bits count how far they are apart.
    tensors = tensors._replace(out=near(tensors.out))
    dout, dlse, q, k, v, out, lse, dq, dk, dv, marked = tensors
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    seen = keys_seen(seqlen_k, causal, causal_offset, left_offset, seqlen_q)
    windowed = left_offset is not None
    config = config or choose(head_dim, seen, windowed=windowed, packed=packed is not None)
    if config.two_kernels:
        kernels = wide if config.columns > 128 else short
        return kernels.launch(
            tensors,
            causal=causal,
            causal_offset=causal_offset,
            left_offset=left_offset,
            scale=scale,
            stages=config.stages,
        )
    block_m, block_d = config.block_m, config.columns
    n_m, n_n = triton.cdiv(seqlen_q, block_m), triton.cdiv(seqlen_k, BLOCK_N)
    n_heads, n_kv_heads, blocks = batch * heads, batch * kv_heads, n_n
    if packed is not None:
        # hopper/packed/places.py tells where sequences stand.
        n_m, n_n = seqlen_q // block_m + batch, seqlen_k // BLOCK_N + batch
        n_heads, n_kv_heads, blocks = heads, kv_heads, triton.cdiv(packed.max_k, BLOCK_N)
    all_rows = n_heads * n_m * block_m
    rows = torch.empty((3, all_rows), dtype=torch.float32, device=q.device)
    sums = torch.empty((all_rows, block_d), dtype=torch.int32, device=q.device)
    bounds = torch.empty((2, n_kv_heads, n_n), dtype=torch.float32, device=q.device)
    shape = {"HEAD_DIM": head_dim, "BLOCK_D": block_d, "BLOCK_M": block_m}
    # Of q, dout and sums of one query head at a time: a program walks them one after the other.
    a_head = n_m * block_m * block_d * 8
    together = wide.heads_together(n_kv_heads, a_head, causal=causal)
    # The same code for most lengths: they change from call to call.
    blocks = triton.next_power_of_2(max(blocks, 1 if packed is None else 256))
    tiles, programs = None, n_n * n_kv_heads
    places, sequences = None, None if packed is None else batch

    def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
        if packed is not None:
            return ragged_descriptor(x if x.dim() == 3 else x[0], rows, block_d)
        return descriptor(x, rows, block_d)

    with targets.on_device_of(q):
        if packed is not None:
            places = torch.empty((n_m + n_n, 4), dtype=torch.int32, device=q.device)
            tiles, programs = listed(
                packed.swapped(), seqlen_k, kv_heads, BLOCK_N,
                causal=causal, pairs=False, by_head=not causal, spare=0,
                places=places, place_rows=block_m,
            )  # fmt: skip
        noted(attention_backward_hopper_prepare, (n_m * n_heads + n_n * n_kv_heads,))(
            k, v, out, dout, lse, dlse, bounds, rows, sums, places, sequences,
            *k.stride()[:3], *v.stride()[:3], *out.stride(), *dout.stride()[:3],
            n_heads // heads, heads, kv_heads, seqlen_q, seqlen_k, BLOCK_N=BLOCK_N, **shape,
            MARKED=marked, num_warps=4 if packed is None else 8,
        )  # fmt: skip
        noted(attention_backward_hopper, (programs,))(
            described(q, block_m),
            described(k, BLOCK_N),
            described(v, BLOCK_N),
            described(dout, block_m),
            TensorDescriptor(rows, [3 * all_rows], [1], [block_m], gl.NVMMASharedLayout(0, 32, 1)),
            bounds,
            TensorDescriptor(
                sums,
                [all_rows, block_d],
                [block_d, 1],
                [block_m, block_d],
                gl.NVMMASharedLayout.get_default_for([block_m, block_d], gl.int32),
            ),
            described(dk, BLOCK_N),
            described(dv, BLOCK_N),
            tiles,
            heads,
            kv_heads,
            batch,
            seqlen_q,
            seqlen_k,
            causal_offset,
            left_offset,
            together,
            scale,
            scale * LOG2_E,
            BLOCK_M=block_m,
            BLOCK_N=BLOCK_N,
            HEAD_DIM=block_d,
            STAGES=config.stages,
            CAUSAL=causal,
            EVEN=packed is None and seqlen_k % BLOCK_N == 0,
            BLOCKS=blocks,
            PRODUCER_REGISTERS=24,
            num_warps=8,
            launch_pdl=True,
        )
        noted(attention_backward_hopper_convert, (n_m * n_heads,))(
            sums,
            rows,
            bounds,
            dq,
            places,
            sequences,
            heads,
            kv_heads,
            seqlen_q,
            seqlen_k,
            scale,
            BLOCK_N=BLOCK_N,
            BLOCKS=blocks,
            **shape,
            num_warps=4 if packed is None else 8,
            launch_pdl=True,
        )
