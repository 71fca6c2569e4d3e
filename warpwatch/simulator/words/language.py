"""Gluon's words, said of blocks: what stands in for ``gl``, ``tl``, ``tma``, ``mbarrier`` and the
rest while a kernel is interpreted. A word that no kernel uses is not here and raises."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper as nvidia
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra import cuda

from warpwatch.simulator.errors import MisuseError, UnknownWordError
from warpwatch.simulator.machine import engines
from warpwatch.simulator.machine.engines import program
from warpwatch.simulator.machine.global_memory import Pointer
from warpwatch.simulator.machine.shared_memory import Shared
from warpwatch.simulator.values import ptx
from warpwatch.simulator.values.blocks import Block, _sizes, block_of
from warpwatch.simulator.values.elements import KEPT, meeting, rounded


def arange(start: int, end: int | None = None, layout: None = None) -> Block:
    start, end = (0, start) if end is None else (start, end)
    return Block(np.arange(int(start), int(end), dtype=np.int32), tl.int32)


def full(shape: Any, value: Any, dtype: tl.dtype, layout: None = None) -> Block:
    one = block_of(value, dtype).to(dtype).data
    return Block(np.broadcast_to(one, _sizes((shape,))).copy(), dtype)


def zeros(shape: Any, dtype: tl.dtype, layout: None = None) -> Block:
    return full(shape, 0, dtype)


def where(condition: Any, x: Any, y: Any) -> Block | Pointer:
    if isinstance(x, Pointer):
        return x.or_else(block_of(condition).data, y)
    if isinstance(x, Block) or not isinstance(y, Block):
        x = block_of(x, y.dtype if isinstance(y, Block) else None)
        y = block_of(y, x.dtype)
    else:
        y = block_of(y)
        x = block_of(x, y.dtype)
    kind = meeting(x.dtype, y.dtype)
    chosen = np.where(block_of(condition).data, rounded(x.data, kind), rounded(y.data, kind))
    return Block(chosen, kind)


def _larger(at_least: bool) -> Callable[..., Any]:
    def choose(a: Any, b: Any, propagate_nan: Any = tl.PropagateNan.NONE) -> Any:
        if not (isinstance(a, Block) or isinstance(b, Block)):
            return max(a, b) if at_least else min(a, b)
        function: Any
        if propagate_nan == tl.PropagateNan.ALL:
            function = np.maximum if at_least else np.minimum
        else:
            function = np.fmax if at_least else np.fmin
        a = block_of(a, b.dtype if isinstance(b, Block) else None)
        return a._with(b, function)

    return choose


maximum, minimum = _larger(True), _larger(False)


def _of_all(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def choose(*values: Any) -> Any:
        found = values[0]
        for one in values[1:]:
            found = function(found, one)
        return found

    return choose


def cdiv(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


def _rounded_once(function: Any) -> Callable[[Any], Block]:
    def of(x: Any) -> Block:
        x = block_of(x)
        if not x.dtype.is_floating():
            raise MisuseError(f"expected floating point, got {x.dtype}")
        with np.errstate(all="ignore"):
            return Block(rounded(function(x.data.astype(np.float64)), x.dtype), x.dtype)

    return of


def reduce(x: Block, axis: int, combine: Callable[..., Any], keep_dims: bool = False) -> Block:
    """Halves with halves, as a tree does."""
    data = np.moveaxis(x.data, axis, 0)
    while data.shape[0] > 1:
        half = data.shape[0] // 2
        if data.shape[0] % 2:
            raise MisuseError(f"a reduction wants a power of two, got {data.shape[0]}")
        data = combine(Block(data[:half], x.dtype), Block(data[half:], x.dtype)).data
    return Block(np.moveaxis(data, 0, axis) if keep_dims else data[0], x.dtype)


def _sum(x: Block, axis: int | None = None, keep_dims: bool = False) -> Block:
    if axis is None:
        x, axis = x.reshape(x.numel), 0
    if x.dtype.is_int() and x.dtype.int_bitwidth < 32:
        x = x.to(tl.int32)
    return reduce(x, axis, lambda a, b: a + b, keep_dims)


def _max(x: Block, axis: int | None = None, keep_dims: bool = False) -> Block:
    if axis is None:
        x, axis = x.reshape(x.numel), 0
    return reduce(x, axis, maximum, keep_dims)


def join(a: Block, b: Block) -> Block:
    return Block(np.stack(np.broadcast_arrays(a.data, b.data), axis=-1), a.dtype)


def convert_layout(x: Block, layout: None, assert_trivial: bool = False) -> Block:
    return x


def load(pointer: Pointer, mask: Any = None, other: Any = None, **hints: Any) -> Block:
    return pointer.load(mask, other)


def store(pointer: Pointer, value: Any, mask: Any = None, **hints: Any) -> None:
    pointer.store(value, mask)


def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    blocks = [
        Block(one.at, tl.int64) if isinstance(one, Pointer) else block_of(one) for one in args
    ]
    return ptx.run(program(), asm, constraints, blocks, dtype, pack)


def steps(*bounds: Any) -> Any:
    """range(): its counter is a block."""
    kind = tl.int32
    for one in bounds:
        if isinstance(one, Block) and one.dtype.int_bitwidth > 32:
            kind = tl.int64
    for i in range(*(int(one) for one in bounds)):
        yield Block(np.asarray(i, KEPT[kind.name]), kind)


class Layout:
    """Any layout: None. Compiling checks them."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        return None

    @staticmethod
    def get_default_for(*given: Any, **named: Any) -> None:
        return None


def nothing(*given: Any, **named: Any) -> None:
    """What changes no value and orders nothing that is seen here."""


TMA = SimpleNamespace(
    async_copy_global_to_shared=engines.async_copy_global_to_shared,
    async_copy_shared_to_global=engines.async_copy_shared_to_global,
    store_wait=engines.store_wait,
)
MBARRIER = SimpleNamespace(
    MBarrierLayout=Layout,
    init=engines.init_barrier,
    wait=engines.wait,
    expect=engines.expect,
    arrive=engines.arrive,
)
ASYNC_COPY = SimpleNamespace(
    async_copy_global_to_shared=engines.copy_past_registers,
    commit_group=engines.commit_group,
    wait_group=engines.wait_group,
)


class Language:
    """``gl`` and ``tl``."""

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(tl, name, None), tl.dtype):
            return getattr(tl, name)
        raise UnknownWordError(f"gl.{name}")


LANGUAGE = Language()
LANGUAGE.__dict__.update(
    constexpr=lambda value: value,
    PropagateNan=tl.PropagateNan,
    program_id=lambda axis: block_of(program().place[axis]),
    num_programs=lambda axis: block_of(program().grid[axis]),
    num_warps=lambda: program().now.warps,
    static_range=range,
    arange=arange,
    full=full,
    zeros=zeros,
    where=where,
    maximum=maximum,
    minimum=minimum,
    cdiv=cdiv,
    exp2=_rounded_once(np.exp2),
    log2=_rounded_once(np.log2),
    exp=_rounded_once(np.exp),
    log=_rounded_once(np.log),
    sqrt=_rounded_once(np.sqrt),
    div_rn=lambda a, b: a / b,
    erf=_rounded_once(lambda x: torch.erf(torch.from_numpy(x)).numpy()),
    abs=lambda x: Block(np.abs(x.data), x.dtype),
    reduce=reduce,
    sum=_sum,
    max=_max,
    join=join,
    trans=lambda x: x.trans(),
    permute=lambda x, *order: x.permute(*order),
    reshape=lambda x, *shape: x.reshape(*shape),
    convert_layout=convert_layout,
    load=load,
    store=store,
    to_tensor=block_of,
    tensor=(Block, Pointer),
    assume=nothing,
    multiple_of=lambda x, n: x,
    static_assert=nothing,
    inline_asm_elementwise=inline_asm_elementwise,
    allocate_shared_memory=lambda dtype, shape, layout, value=None: Shared.allocate(
        program(), dtype, shape, value
    ),
    warp_specialize=lambda parts, warps, registers=None: program().specialize(parts, warps),
    **dict.fromkeys(
        (
            "SliceLayout",
            "BlockedLayout",
            "DistributedLinearLayout",
            "SwizzledSharedLayout",
            "DotOperandLayout",
            "NVMMADistributedLayout",
            "NVMMASharedLayout",
        ),
        Layout,
    ),
)

# What kernels import by name.
STANDS_FOR: dict[int, Any] = {
    id(gl): LANGUAGE,
    id(tl): LANGUAGE,
    id(nvidia.tma): TMA,
    id(nvidia.mbarrier): MBARRIER,
    id(async_copy): ASYNC_COPY,
    id(nvidia.fence_async_shared): lambda: program().fence(),
    id(nvidia.warpgroup_mma): engines.warpgroup_mma,
    id(nvidia.warpgroup_mma_wait): engines.warpgroup_mma_wait,
    id(cuda.gdc_wait): nothing,
    id(cuda.gdc_launch_dependents): nothing,
}
