"""Gluon's words, said of blocks: what stands in for ``gl``, ``tl``, ``tma``, ``mbarrier`` and the
rest while a kernel is interpreted. A word that no kernel uses is not here and raises."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language import nvidia
from triton.experimental.gluon.language.nvidia import ampere, blackwell, hopper
from triton.language import math
from triton.language.extra import cuda, libdevice
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from warpwatch.simulator.errors import EndlessError, MisuseError, UnknownWordError
from warpwatch.simulator.machine import engines
from warpwatch.simulator.machine.engines import program
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer, PointerType
from warpwatch.simulator.machine.shared_memory import Shared
from warpwatch.simulator.values import ptx
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import KEPT
from warpwatch.simulator.values.layouts import Layout
from warpwatch.simulator.words import clusters
from warpwatch.simulator.words.blackwell import BLACKWELL
from warpwatch.simulator.words.global_words import REACHES, make_tensor_descriptor
from warpwatch.simulator.words.library import LIBRARY
from warpwatch.simulator.words.standard import COMPUTES


def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    blocks = [
        Block(one.at, tl.int64) if isinstance(one, Pointer) else block_of(one) for one in args
    ]
    return ptx.run(program(), asm, constraints, blocks, dtype, pack)


def step() -> None:
    """A loop goes round once more."""
    if not engines.running:  # a function of constants
        return
    now = program()
    now.steps -= 1
    if now.steps < 0:
        raise EndlessError("the loop is not over after all steps that a program may take: --steps")


def steps(*bounds: Any) -> Any:
    """range(): its counter is a block."""
    kind = tl.int32
    for one in bounds:
        if isinstance(one, Block) and one.dtype.int_bitwidth > 32:
            kind = tl.int64
    for i in range(*(int(one) for one in bounds)):
        step()
        yield Block(np.asarray(i, KEPT[kind.name]), kind)


class Namespace:
    """Words of one module; another one is not known."""

    def __init__(self, said: str, **words: Any) -> None:
        self.__dict__.update(words)
        self._said = said

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownWordError(f"{self._said}.{name}")


def nothing(*given: Any, **named: Any) -> None:
    """What changes no value and orders nothing that is seen here."""


def allocate_mbarrier(batch: Any = None, two_ctas: bool = False) -> Shared:
    """Barriers, one for each CTA or for two of them."""
    ctas = program().ctas
    each = [ctas // 2 if bool(two_ctas) else ctas]
    shape = each if batch is None else [int(batch), *each]
    return Shared.allocate(program(), tl.int64, shape, layout=Layout.multicta(ctas, bool(two_ctas)))


judged: list[int] = []  # the capability that words must be of, if it was named


def _only_on(major: int, word: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A word of one architecture alone."""

    def said(*given: Any, **named: Any) -> Any:
        if judged and judged[-1] // 10 != major:
            raise MisuseError(
                f"{word} is a word of sm_{major}0, and the target is sm_{judged[-1]}",
                "word of another target",
            )
        return function(*given, **named)

    return said


TMA = Namespace(
    "tma",
    async_copy_global_to_shared=engines.async_copy_global_to_shared,
    async_copy_shared_to_global=engines.async_copy_shared_to_global,
    # The same, as later Tritons call them.
    async_load=engines.async_copy_global_to_shared,
    async_store=engines.async_copy_shared_to_global,
    async_gather=_only_on(10, "tma.async_gather", engines.async_gather),
    async_scatter=_only_on(10, "tma.async_scatter", engines.async_scatter),
    store_wait=engines.store_wait,
    make_tensor_descriptor=make_tensor_descriptor,
    tensor_descriptor=Descriptor,
)
MBARRIER = Namespace(
    "mbarrier",
    MBarrierLayout=Layout,
    allocate_mbarrier=allocate_mbarrier,
    init=engines.init_barrier,
    invalidate=engines.invalidate,
    wait=engines.wait,
    expect=engines.expect,
    arrive=engines.arrive,
    fence_init_release_cluster=clusters.fence_cluster_init,
    sync_cluster_init=clusters.sync_cluster,
)
ASYNC_COPY = Namespace(
    "async_copy",
    async_copy_global_to_shared=engines.copy_past_registers,
    async_load=engines.copy_past_registers,
    mbarrier_arrive=engines.arrive_when_copied,
    commit_group=engines.commit_group,
    wait_group=engines.wait_group,
)


class Language(Namespace):
    """``gl`` and ``tl``."""

    def __getattr__(self, name: str) -> Any:
        for module in (tl, gl):
            found = getattr(module, name, None)
            if isinstance(found, tl.dtype):
                return found
            # What Triton says in words of its own runs as it is written.
            if isinstance(found, JITFunction | InterpretedFunction | ModuleType):
                return TRANSLATE[0](found)
        return super().__getattr__(name)


TRANSLATE: list[Callable[[Any], Any]] = []  # the interpreter's, which knows this module
LANGUAGE = Language("gl")
LANGUAGE.__dict__.update(
    **COMPUTES,
    **REACHES,
    constexpr=lambda value: value,
    PropagateNan=tl.PropagateNan,
    program_id=lambda axis: block_of(program().place[axis]),
    num_programs=lambda axis: block_of(program().grid[axis]),
    num_warps=lambda: program().now.warps,
    num_ctas=lambda: program().ctas,
    static_range=range,
    range=lambda *bounds, **hints: steps(*bounds),
    tensor=(Block, Pointer),
    pointer_type=lambda element_ty, address_space=1: PointerType(element_ty),
    assume=nothing,
    static_print=nothing,
    device_print=nothing,
    debug_barrier=nothing,
    barrier=clusters.meet_all,
    thread_barrier=nothing,
    multiple_of=lambda x, n: x,
    max_contiguous=lambda x, n: x,
    max_constancy=lambda x, n: x,
    set_auto_layout=lambda x, layout: x,
    inline_asm_elementwise=inline_asm_elementwise,
    allocate_shared_memory=lambda element_ty, shape, layout, value=None: Shared.allocate(
        program(), element_ty, shape, value, layout
    ),
    shared_memory_descriptor=Shared,
    warp_specialize=lambda functions_and_args, worker_num_warps, worker_num_regs=None: (
        program().specialize(functions_and_args, worker_num_warps)
    ),
    **dict.fromkeys(
        (
            "AutoLayout",
            "BlockedLayout",
            "CoalescedLayout",
            "DistributedLinearLayout",
            "DotOperandLayout",
            "NVMMADistributedLayout",
            "NVMMASharedLayout",
            "PaddedSharedLayout",
            "SharedLinearLayout",
            "SliceLayout",
            "SwizzledSharedLayout",
        ),
        Layout,
    ),
)

HOPPER: dict[str, Any] = {
    "tma": TMA,
    "mbarrier": MBARRIER,
    "async_copy": ASYNC_COPY,
    "cluster": Namespace("cluster", arrive=clusters.cluster_arrive, wait=clusters.cluster_wait),
    "fence_async_shared": lambda cluster=False: program().fence(),
    "warpgroup_mma": _only_on(9, "warpgroup_mma", engines.warpgroup_mma),
    "warpgroup_mma_init": _only_on(9, "warpgroup_mma_init", lambda value: value),
    "warpgroup_mma_wait": _only_on(9, "warpgroup_mma_wait", engines.warpgroup_mma_wait),
    "mma_v2": lambda a, b, acc, input_precision=None: COMPUTES["dot"](a, b, acc),
}
TENSOR_MEMORY: dict[str, Any] = {
    word: _only_on(10, word, function)
    if word.startswith("tcgen05") or word == "allocate_tensor_memory"
    else function
    for word, function in BLACKWELL.items()
}
NVIDIA = Namespace(
    "gl.nvidia",
    hopper=Namespace("gl.nvidia.hopper", **HOPPER),
    blackwell=Namespace("gl.nvidia.blackwell", **HOPPER, **TENSOR_MEMORY),
    ampere=Namespace("gl.nvidia.ampere", **HOPPER),
)
LANGUAGE.__dict__["nvidia"] = NVIDIA
PLAIN = Language("tl")
PLAIN.__dict__.update({**LANGUAGE.__dict__, "_said": "tl"})
DEVICE = Namespace("libdevice", **LIBRARY)

# What kernels import by name, or as a module.
STANDS_FOR: dict[int, Any] = {
    id(gl): LANGUAGE,
    id(tl): PLAIN,
    id(triton): Namespace("triton", cdiv=COMPUTES["cdiv"], language=LANGUAGE),
    id(nvidia): NVIDIA,
    id(hopper): NVIDIA.hopper,
    id(blackwell): NVIDIA.blackwell,
    id(ampere): NVIDIA.ampere,
    id(hopper.tma): TMA,
    id(blackwell.tma): TMA,
    id(hopper.mbarrier): MBARRIER,
    id(ampere.mbarrier): MBARRIER,
    id(ampere.async_copy): ASYNC_COPY,
    id(tl.static_range): range,
    id(tl.range): LANGUAGE.range,
    id(tl.core): PLAIN,
    id(math): Namespace(
        "tl.math", **{name: COMPUTES[name] for name in dir(math) if name in COMPUTES}
    ),
    id(libdevice): DEVICE,
    id(cuda.libdevice): DEVICE,
    id(cuda.gdc_wait): nothing,
    id(cuda.gdc_launch_dependents): nothing,
}
for _module, _words in ((hopper, HOPPER), (blackwell, {**HOPPER, **TENSOR_MEMORY})):
    for _name, _word in _words.items():
        if hasattr(_module, _name):
            STANDS_FOR.setdefault(id(getattr(_module, _name)), _word)
for _name, _word in [*COMPUTES.items(), *LANGUAGE.__dict__.items()]:
    for _module in (gl, tl):
        # A word that a kernel imports by its own name.
        _found = getattr(_module, _name, None)
        if getattr(_found, "__triton_builtin__", False) or isinstance(_found, JITFunction):
            STANDS_FOR.setdefault(id(_found), _word)
for _name, _word in LIBRARY.items():
    for _module in (libdevice, cuda.libdevice):
        if hasattr(_module, _name):
            STANDS_FOR[id(getattr(_module, _name))] = _word
for _name, _word in COMPUTES.items():
    # Words that are said of a tensor: x.sum(0).
    if hasattr(tl.tensor, _name) and not hasattr(Block, _name):
        setattr(Block, _name, lambda x, *given, _word=_word, **named: _word(x, *given, **named))
