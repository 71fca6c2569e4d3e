"""Launches of kernels on CPU tensors: every program of a grid, one after the other.

``simulated`` puts this in the place of Triton's own launcher.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.nvidia.compiler import CUDAOptions
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor as PlainDescriptor

from warpwatch.simulator.errors import LaunchError
from warpwatch.simulator.machine import engines
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer, Storage
from warpwatch.simulator.machine.grid import Grid
from warpwatch.simulator.machine.order import STEPS, Program
from warpwatch.simulator.machine.regions import Partitioning
from warpwatch.simulator.session.interpreter import translate
from warpwatch.simulator.timeline.log import Log
from warpwatch.simulator.values import ptx
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import OF_TORCH, decode, encode, quiet


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype not in OF_TORCH:
            raise LaunchError(f"no kernel takes a tensor of {value.dtype}")
        storage = Storage(value)
        return Pointer((storage,), storage.first, OF_TORCH[value.dtype])
    if isinstance(value, TensorDescriptor | PlainDescriptor):
        return Descriptor.of_host(value)
    if isinstance(value, tuple | list):
        parts = [_argument(one) for one in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value if value is None else block_of(value)


class Compiled:
    """What host code may ask of a compiled kernel. Nothing was compiled.

    Args:
        kernel: The kernel.
        named: What it was compiled for, by name.
    """

    n_regs, n_spills = 32, 0
    asm: Mapping[str, str] = MappingProxyType({})

    def __init__(self, kernel: Any, named: dict[str, Any]) -> None:
        self._kernel, self._named = kernel, named
        self.metadata = SimpleNamespace(shared=1024, num_warps=named.get("num_warps", 4))

    def _init_handles(self) -> None:
        """There are none."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launch it as it was compiled."""

        def launched(*given: Any) -> Any:
            wanted = self._kernel.signature.parameters
            own = {name: one for name, one in self._named.items() if name not in wanted}
            return self._kernel.run(*given, grid=grid, warmup=False, **own)

        return launched


class Launches:
    """What was interpreted, in order: the names of kernels, and what each was launched for by
    name, its constants and the compiler's options."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.named: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Settings:
    """How launches run: the ``seed`` of their order, whether barriers want a fence behind their
    init, where it is noted what their first programs do, and how many ``steps`` of loops each
    program may take."""

    seed: int = 0
    strict: bool = False
    logs: list[Log] | None = None
    steps: int = STEPS


_OPTIONS = {one.name for one in dataclasses.fields(CUDAOptions)}


def _bound(
    kernel: Any, signature: inspect.Signature, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[inspect.BoundArguments, dict[str, Any]]:
    """Arguments of a kernel, and the compiler's options among them."""
    options = {name: one for name, one in named.items() if name not in signature.parameters}
    for name in options:
        if name not in _OPTIONS:
            raise LaunchError(f"{kernel.__name__} has no argument {name}, nor is it an option")
    try:
        bound = signature.bind(*given, **{n: v for n, v in named.items() if n not in options})
    except TypeError as error:
        raise LaunchError(f"{kernel.__name__}: {error}") from None
    bound.apply_defaults()
    return bound, options


def _sizes(grid: Any, arguments: dict[str, Any]) -> tuple[int, int, int]:
    if callable(grid):
        grid = grid(arguments)
    try:
        width, height, depth = (int(one) for one in (*grid, 1, 1)[:3])
    except (TypeError, ValueError):
        raise LaunchError(f"expected a grid of up to three numbers, got {grid!r}") from None
    return width, height, depth


def _power(options: dict[str, Any], name: str, default: int) -> int:
    found = options.get(name, default)
    number = int(default if found is None else found)
    if number < 1 or number & (number - 1):
        raise LaunchError(f"expected a power of two as {name}, got {number}")
    return number


def launch(
    kernel: Any, given: tuple[Any, ...], named: dict[str, Any], grid: Any, settings: Settings
) -> None:
    """Run every program of a launch."""
    signature = inspect.signature(kernel.fn)
    bound, options = _bound(kernel, signature, given, named)
    sizes = _sizes(grid, bound.arguments)
    arguments = {
        name: value.value if isinstance(value, triton.language.constexpr) else value
        for name, value in bound.arguments.items()
    }
    for name, value in arguments.items():
        known = "constexpr" in str(signature.parameters[name].annotation)
        arguments[name] = translate(value) if known else _argument(value)
    body = translate(kernel)
    places = list(product(*(range(one) for one in sizes)))
    chance = Program((0, 0, 0), sizes, 4, settings.seed).chance
    chance.shuffle(places)
    parts: dict[tuple[int, int], Partitioning] = {}
    warps, ctas = _power(options, "num_warps", 4), _power(options, "num_ctas", 1)
    programs = [
        Program((x, y, z), sizes, warps, chance.randrange(2**31), parts, ctas) for x, y, z in places
    ]

    def run(one: Program) -> None:
        try:
            with quiet():
                body(**arguments)
            one.finish()
        except Exception as error:
            told = f"{kernel.__name__}, program {one.place} of {sizes}"
            error.add_note(f"in {told}")
            vars(error).setdefault("launched", told)
            raise

    grid_of = Grid(programs, run, engines.running, chance)
    for one in programs:
        one.others, one.strict, one.steps = grid_of, settings.strict, settings.steps
        if settings.logs is not None and one.place == (0, 0, 0):
            one.log = Log(kernel.__name__)
            settings.logs.append(one.log)
    try:
        grid_of.run()
    except Exception:
        for one in programs:
            if one.log is not None:
                one.log.failed = True
        raise


@contextmanager
def simulated(
    seed: int = 0, strict: bool = False, logs: list[Log] | None = None, steps: int = STEPS
) -> Iterator[Launches]:
    """Inside, launches of kernels run here, on the CPU.

    Args:
        seed: Draws the order in which partitions and programs run.
        strict: Whether a barrier that the copy engine uses wants a fence after its init. PTX
            says so; Triton's own tutorials have none.
        logs: Where it is noted what the first program of each launch does.
        steps: How many steps of loops each program may take.

    Yields:
        What was launched so far.
    """
    launches = Launches()
    plain_run, plain_asm = JITFunction.run, InterpreterBuilder.create_inline_asm

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if warmup:
            return Compiled(kernel, named)
        launches.kernels.append(kernel.__name__)
        launches.named.append(named)
        settings = Settings(seed + len(launches.kernels), strict, logs, steps)
        launch(kernel, given, named, grid, settings)
        return Compiled(kernel, named)

    JITFunction.run = run
    InterpreterBuilder.create_inline_asm = _inline_asm
    try:
        yield launches
    finally:
        JITFunction.run, InterpreterBuilder.create_inline_asm = plain_run, plain_asm


def _inline_asm(
    self: Any, asm: str, constraints: str, given: Any, kinds: Any, pure: bool, pack: int
) -> Any:
    """PTX of Triton's own interpreter."""
    blocks = [Block(decode(one.data, one.dtype.scalar), one.dtype.scalar) for one in given]
    found = ptx.run(None, asm, constraints, blocks, tuple(one.scalar for one in kinds), pack)
    handles = [TensorHandle(encode(one.data, one.dtype), one.dtype) for one in found]
    return SimpleNamespace(get_result=lambda i: handles[i])
