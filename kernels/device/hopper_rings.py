"""Rings of shared memory between a producer warp and the warps that use what it copies (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.device.aggregates import aggregate

ROWS = gl.constexpr(64)  # that one warpgroup accumulates: the M of wgmma


@aggregate
class Cursor:
    """A place in a ring: a stage, and the parity with which its barrier completes next."""

    stage: gl.tensor
    phase: gl.tensor
    STAGES: gl.constexpr

    @gluon.jit
    def next(self):
        stage = self.stage + 1
        wrapped = stage == self.STAGES
        phase = gl.where(wrapped, self.phase ^ 1, self.phase)
        return Cursor(gl.where(wrapped, 0, stage), phase, self.STAGES)

    @gluon.jit
    def previous_stage(self):
        return gl.where(self.stage == 0, self.STAGES - 1, self.stage - 1)


@aggregate
class Ring:
    """Stages of shared memory, each with a barrier for 'full' and one for 'empty'."""

    memory: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    STAGES: gl.constexpr

    @gluon.jit
    def first_to_fill(self):
        """Where a producer starts: nothing is in the ring, so its first round never waits."""
        return Cursor(gl.to_tensor(0), gl.to_tensor(1), self.STAGES)

    @gluon.jit
    def first_to_use(self):
        return Cursor(gl.to_tensor(0), gl.to_tensor(0), self.STAGES)

    @gluon.jit
    def acquire(self, at, BYTES: gl.constexpr):
        """Wait until a stage is empty and expect BYTES in it; the barrier to copy them with."""
        mbarrier.wait(self.empty.index(at.stage), at.phase)
        ready = self.full.index(at.stage)
        mbarrier.expect(ready, BYTES)
        return ready

    @gluon.jit
    def fill(self, at, x, box, BYTES: gl.constexpr):
        """Start to bring the ``box`` of ``x``, of so many BYTES, into a stage; the stage after."""
        ready = self.acquire(at, BYTES)
        tma.async_copy_global_to_shared(x, box, ready, self.memory.index(at.stage))
        return at.next()

    @gluon.jit
    def wait(self, at):
        """Wait until a stage is full."""
        mbarrier.wait(self.full.index(at.stage), at.phase)

    @gluon.jit
    def release(self, stage):
        mbarrier.arrive(self.empty.index(stage))


@gluon.jit
def bring(x, box, ready, to, BYTES: gl.constexpr):
    """Start to bring the ``box`` of ``x``; ``ready`` completes after BYTES, with what else counts
    towards it."""
    mbarrier.expect(ready, BYTES)
    tma.async_copy_global_to_shared(x, box, ready, to)


@gluon.jit
def barriers(N: gl.constexpr, COUNT: gl.constexpr):
    """N barriers that complete at COUNT arrivals."""
    bars = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(bars.index(i), count=COUNT)
    return bars


@gluon.jit
def new_ring(desc, STAGES: gl.constexpr, READERS: gl.constexpr):
    """A ring of what ``desc`` copies at a time; READERS release each stage."""
    shape: gl.constexpr = [STAGES] + desc.block_shape  # noqa: RUF005
    memory = gl.allocate_shared_memory(desc.dtype, shape, desc.layout)
    return Ring(memory, barriers(STAGES, 1), barriers(STAGES, READERS), STAGES)


@gluon.jit
def pass_over(
    k_ring, v_ring, k_at, v_at, count, OWN: gl.constexpr = 0, FOLLOWING: gl.constexpr = None
):
    """Give ``count`` stages of both rings back that only other readers use; in turns, unless
    FOLLOWING is None, the number of whose barrier is that of the reader after this, OWN."""
    for _ in range(count):
        k_ring.wait(k_at)
        if FOLLOWING is not None:
            meet("sync", OWN)
            meet("arrive", FOLLOWING)
        k_ring.release(k_at.stage)
        k_at = k_at.next()
        v_ring.wait(v_at)
        v_ring.release(v_at.stage)
        v_at = v_at.next()
    return k_at, v_at


@builtin
def partition_barrier(_semantic=None):
    """A barrier of a partition's warps; Triton 3.6 and 3.7 name it differently."""
    return _semantic.debug_barrier()


@gluon.constexpr_function
def _named_barrier(operation, number):
    """PTX of a barrier of two warpgroups; Triton itself uses 0 to 3: 1 among all warps, the others
    within three warpgroups, none within the producer's one warp."""
    return f"bar.{operation} {8 + number}, 256; mov.b32 $0, 0;"


@gluon.jit
def meet(OPERATION: gl.constexpr, NUMBER: gl.constexpr):
    """Wait at a barrier of two warpgroups for the other one (sync), or say that it need not wait
    any longer (arrive)."""
    ASM: gl.constexpr = _named_barrier(OPERATION, NUMBER)
    ONE_A_THREAD: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    nothing = gl.full([128], 0, gl.int32, ONE_A_THREAD)
    gl.inline_asm_elementwise(ASM, "=r,r", [nothing], dtype=gl.int32, is_pure=False, pack=1)


# Registers a thread of a consumer and of the producer may use, by the number of consumers.
REGISTERS = {1: (240, 24), 2: (240, 24), 3: (160, 32)}


@builtin
def specialise(
    consume: Any,
    consumed: Any,
    produce: Any,
    produced: Any,
    consumers: Any,
    registers: Any = None,
    _semantic: Any = None,
    _generator: Any = None,
) -> None:
    """Part the warps: ``consumers`` warpgroups, each given its number after what is ``consumed``,
    and a warp that produces; with the ``registers`` of a thread of either unless None."""
    count = getattr(consumers, "value", consumers)
    given = registers or REGISTERS[count]
    consumer, producer = (getattr(one, "value", one) for one in given)
    parts = [(consume, (*consumed, gl.constexpr(i))) for i in range(count)]
    _semantic.warp_specialize(
        [*parts, (produce, produced)],
        [*[4] * (count - 1), 1],
        [*[consumer] * (count - 1), producer],
        _generator,
    )


@lru_cache
def layout(block: tuple[int, ...], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """How the copy engine lays out a box in shared memory."""
    element = {
        torch.float16: gl.float16,
        torch.bfloat16: gl.bfloat16,
        torch.float32: gl.float32,
        torch.int32: gl.int32,
        torch.float8_e4m3fn: gl.float8e4nv,
    }[dtype]
    return gl.NVMMASharedLayout.get_default_for(list(block), element)


def boxes(
    x: torch.Tensor,
    block: tuple[int, ...],
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> TensorDescriptor:
    """What the copy engine takes boxes of x by, or of other axes over its memory."""
    shape, strides = shape or x.shape, strides or x.stride()
    return TensorDescriptor(x, [*shape], [*strides], [*block], layout(block, x.dtype))
