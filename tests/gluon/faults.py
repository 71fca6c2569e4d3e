"""A small kernel as Hopper's are, and the faults it can be given."""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.device.hopper_rings import Cursor, barriers, layout
from tests.gluon.interpreter import hopper_on_the_cpu

BLOCK = 64
STAGES = 2
# What is wrong, and what the interpreter must say of it.
COPY_MISSED = "not knowing that a copy to barrier . of shared memory . has written"
READ_MISSED = "multiplies it|not knowing that the default partition has read"
FAULTS = {
    "": "",
    "full is not waited for": f"{COPY_MISSED}|nobody wrote",
    "empty is not waited for": f"{READ_MISSED}|{COPY_MISSED}",
    "released before the product is done": f"{READ_MISSED}|{COPY_MISSED}",
    "the product is not waited for": "of a product that was not waited for",
    "too few bytes": COPY_MISSED,
    "too many bytes": "DeadlockError.* waits for phase 0 of barrier 0",
    "nobody releases": "DeadlockError.* waits for phase 0 of barrier 0",
    "released twice": f"{READ_MISSED}|{COPY_MISSED}|which has all 1 arrivals|DeadlockError",
    "no fence behind the store": "without fence_async_shared",
    "no fence behind the barriers": "without fence_async_shared",
    "the copy out is not waited for": "while it is copied to global memory",
    "ends while it copies out": "while the copy engine reads",
    "a copy nobody waits for": "nobody waited for",
    "the barrier's phase is forgotten": f"{READ_MISSED}|{COPY_MISSED}|DeadlockError",
    "a column too far": "index 128 of",
    "behind the tensor": "of a tensor's memory",
    "what nobody wrote": "which nobody wrote",
}


@gluon.jit
def _produce(a, b, ring, full, empty, n, FAULT: gl.constexpr):
    BYTES: gl.constexpr = 2 * 64 * 64 * 2
    at = Cursor(gl.to_tensor(0), gl.to_tensor(1), 2)
    for i in range(n):
        if FAULT != "empty is not waited for":
            mbarrier.wait(empty.index(at.stage), at.phase)
        ready = full.index(at.stage)
        if FAULT == "too few bytes":
            mbarrier.expect(ready, BYTES // 2)
        elif FAULT == "too many bytes":
            mbarrier.expect(ready, BYTES * 2)
        else:
            mbarrier.expect(ready, BYTES)
        tma.async_copy_global_to_shared(a, [0, i * 64], ready, ring.index(at.stage * 2))
        tma.async_copy_global_to_shared(b, [i * 64, 0], ready, ring.index(at.stage * 2 + 1))
        if FAULT != "the barrier's phase is forgotten":
            at = at.next()
        else:
            at = Cursor(at.next().stage, gl.to_tensor(1), 2)
    if FAULT == "a copy nobody waits for":
        mbarrier.wait(empty.index(at.stage), at.phase)
        mbarrier.expect(full.index(at.stage), BYTES // 2)
        to = ring.index(at.stage * 2)
        tma.async_copy_global_to_shared(a, [0, 0], full.index(at.stage), to)


@gluon.jit
def _consume(c, row, ring, full, empty, staging, n, FAULT: gl.constexpr):
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), 2)
    acc = gl.zeros([64, 64], gl.float32, LAYOUT)
    for _ in range(n):
        if FAULT != "full is not waited for":
            mbarrier.wait(full.index(at.stage), at.phase)
        if FAULT == "a column too far":
            staging.slice(0, 32, 1).index(64 * 2).load(gl.SliceLayout(0, LAYOUT))
        if FAULT == "what nobody wrote":
            acc += staging.load(LAYOUT).to(gl.float32)
        next_acc = warpgroup_mma(
            ring.index(at.stage * 2), ring.index(at.stage * 2 + 1), acc, is_async=True
        )
        if FAULT == "released before the product is done":
            mbarrier.arrive(empty.index(at.stage))
        if FAULT == "the product is not waited for":
            acc = next_acc + 0.0
        acc = warpgroup_mma_wait(0, deps=[next_acc])
        if FAULT != "released before the product is done" and FAULT != "nobody releases":
            mbarrier.arrive(empty.index(at.stage))
        if FAULT == "released twice":
            mbarrier.arrive(empty.index(at.stage))
        at = at.next()
        staging.store(acc.to(gl.bfloat16))
        if FAULT != "no fence behind the store":
            fence_async_shared()
        tma.async_copy_shared_to_global(c, [0, 0], staging)
        if FAULT != "the copy out is not waited for" and FAULT != "ends while it copies out":
            tma.store_wait(0)
    if FAULT == "the copy out is not waited for":
        tma.store_wait(0)
    o_n = gl.arange(0, 64, gl.SliceLayout(0, LAYOUT))
    past = 64 if FAULT == "behind the tensor" else 0
    gl.store(row + o_n + past, gl.sum(acc, 0))


@gluon.jit
def product_with_a_fault(a, b, c, row, n, FAULT: gl.constexpr):
    """c (64, 64) = a (64, 64 n) @ b (64 n, 64), bf16; row (64): the sums of c's columns, fp32."""
    ring = gl.allocate_shared_memory(a.dtype, [4, 64, 64], a.layout)
    staging = gl.allocate_shared_memory(c.dtype, [64, 64], c.layout)
    full = barriers(2, 1)
    empty = barriers(2, 1)
    if FAULT != "no fence behind the barriers":
        fence_async_shared()
    gl.warp_specialize(
        [
            (_consume, (c, row, ring, full, empty, staging, n, FAULT)),
            (_produce, (a, b, ring, full, empty, n, FAULT)),
        ],
        [1],
        [24],
    )


def run(fault: str, seed: int, n: int = 5) -> str:
    """What the interpreter says of the kernel with this fault; nothing where all is well."""
    a = torch.randn(BLOCK, n * BLOCK).bfloat16()
    b = torch.randn(n * BLOCK, BLOCK).bfloat16()
    c = torch.full((BLOCK, BLOCK), float("nan"), dtype=torch.bfloat16)
    row = torch.full((BLOCK,), float("nan"))

    def described(x: torch.Tensor) -> TensorDescriptor:
        box = (BLOCK, BLOCK)
        return TensorDescriptor(x, list(x.shape), list(x.stride()), list(box), layout(box, x.dtype))

    if fault == "ends while it copies out":
        n = 1
    with hopper_on_the_cpu(seed=seed):
        try:
            product_with_a_fault[(1,)](*map(described, (a, b, c)), row, n, FAULT=fault)
        except AssertionError as error:
            return f"{type(error).__name__}: {error}"
    truth = a[:, : n * BLOCK].double() @ b[: n * BLOCK].double()
    torch.testing.assert_close(c.double(), truth, rtol=0.01, atol=0.05)
    torch.testing.assert_close(row.double(), truth.sum(0), rtol=1e-4, atol=1e-3)
    return ""
