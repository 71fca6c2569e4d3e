"""Runs Gluon's kernels for Hopper on the CPU, as Python, and judges what they do with memory.

Triton's interpreter does not know Gluon. Here the functions of a kernel run as they are written,
their words said of numpy's blocks (language.py), their partitions one at a time (order.py). What
only a compiler sees (layouts, registers, which instruction) is not seen; tests/hopper compiles the
same kernels for that.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from pkgutil import walk_packages
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
import triton
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle
from triton.runtime.jit import ConstexprFunction, JITFunction

from kernels.attention.hopper.backward.one_pass import kernel as hopper_backward
from kernels.device import hopper_rings
from kernels.runtime import targets
from warpwatch.simulator import engines, language, ptx
from warpwatch.simulator.blocks import OF_TORCH, Block, MisuseError, block_of, decode, encode
from warpwatch.simulator.memory import Descriptor, Pointer, Storage
from warpwatch.simulator.order import Program

STANDS_FOR = {
    **language.STANDS_FOR,
    id(hopper_rings.partition_barrier): language.nothing,
    id(hopper_backward.add_to_global): engines.add_to_global,
}
BUILTINS = {
    "range": language.steps,
    "max": language._of_all(language.maximum),
    "min": language._of_all(language.minimum),
}
called: set[FunctionType] = set()  # which functions of kernels have run
changed: dict[FunctionType, CodeType] = {}  # what runs in the place of a function's own code
beside: dict[str, Any] = {}  # what such code knows beside its module's globals
_translated: dict[int, Any] = {}
_keep: list[Any] = []  # whose ids are in use
_globals: dict[tuple[int, bool], dict[str, Any]] = {}


def translate(value: Any) -> Any:
    """What stands for ``value``, a global of a module of kernels, while one is interpreted."""
    if id(value) in STANDS_FOR:
        return STANDS_FOR[id(value)]
    if id(value) in _translated:
        return _translated[id(value)]
    if isinstance(value, triton.language.constexpr):
        return value.value
    if isinstance(value, ConstexprFunction):
        found = _function(value.fn, {})
    elif isinstance(value, JITFunction | InterpretedFunction):
        found = _function(value.fn, BUILTINS)
    elif getattr(value, "__triton_aggregate__", False):
        found = _aggregate(value)
    elif getattr(value, "__triton_builtin__", False):
        name = getattr(value, "__name__", "a builtin")

        def found(*given: Any, **named: Any) -> None:
            raise MisuseError(f"{name} is not known: teach it to warpwatch/simulator/language.py")

    else:
        return value
    _translated[id(value)] = found
    _keep.append(value)
    return found


def _function(plain: FunctionType, builtins: dict[str, Any]) -> FunctionType:
    """``plain`` with its globals translated, when first called: modules refer to one another."""
    made: dict[CodeType, FunctionType] = {}

    def call(*given: Any, **named: Any) -> Any:
        called.add(plain)
        code = changed.get(plain, plain.__code__)
        if code not in made:
            world = _world(plain, builtins)
            if code is not plain.__code__:
                world = {**world, **beside}
            made[code] = FunctionType(code, world, plain.__name__, plain.__defaults__)
            made[code].__kwdefaults__ = plain.__kwdefaults__
        return made[code](*given, **named)

    call.__name__ = plain.__name__
    return call


def _world(plain: FunctionType, builtins: dict[str, Any]) -> dict[str, Any]:
    module = plain.__globals__
    key = (id(module), bool(builtins))
    if key not in _globals:
        _globals[key] = world = dict(builtins)
        _keep.append(module)
        world |= {name: translate(value) for name, value in module.items()}
    return _globals[key]


def _aggregate(value: Any) -> type:
    members = {
        name: translate(member)
        for name, member in vars(value).items()
        if isinstance(member, JITFunction | ConstexprFunction | InterpretedFunction)
    }
    plain = value.hash_attrs[0]  # __init__, which the class of Triton's own hides
    members["__init__"] = _function(getattr(plain, "fn", plain), {})
    return type(value.__name__, (), members)


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        storage = Storage(value)
        return Pointer((storage,), storage.first, OF_TORCH[value.dtype])
    if isinstance(value, TensorDescriptor):
        return Descriptor(value)
    if isinstance(value, tuple | list):
        return tuple(_argument(one) for one in value)
    return value if value is None else block_of(value)


def compiled(plain: FunctionType, change: Callable[[ast.Module], Any]) -> CodeType:
    """The code of ``plain`` with its source changed, for ``changed``."""
    lines, first = inspect.getsourcelines(plain)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    # In a module that postpones no annotation they would be computed.
    for one in (*function.args.args, *function.args.kwonlyargs):
        one.annotation = None
    change(tree)
    space: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), plain.__code__.co_filename, "exec"), space)
    return space[plain.__name__].__code__


class Launches:
    """What was interpreted, in order: the names of kernels, and what each was launched for by
    name, its constants and the compiler's options."""

    def __init__(self) -> None:
        self.kernels: list[str] = []
        self.named: list[dict[str, Any]] = []


def launch(
    kernel: Any, given: tuple[Any, ...], named: dict[str, Any], grid: Any, seed: int
) -> None:
    signature = inspect.signature(kernel.fn)
    options = {name: one for name, one in named.items() if name not in signature.parameters}
    bound = signature.bind(*given, **{n: v for n, v in named.items() if n not in options})
    bound.apply_defaults()
    if callable(grid):
        grid = grid(bound.arguments)
    grid = (*grid, 1, 1)[:3]
    grid = tuple(int(one) for one in grid)
    arguments = {
        name: value.value if isinstance(value, triton.language.constexpr) else value
        for name, value in bound.arguments.items()
    }
    for name, value in arguments.items():
        if "constexpr" not in str(signature.parameters[name].annotation):
            arguments[name] = _argument(value)
    body = translate(kernel)
    places = list(product(*(range(one) for one in grid)))
    chance = Program((0, 0, 0), grid, 4, seed).chance
    chance.shuffle(places)
    for place in places:
        one = Program(place, grid, options.get("num_warps", 4), chance.randrange(2**31))
        engines.running.append(one)
        try:
            body(**arguments)
            one.finish()
        except Exception as error:
            error.add_note(f"in {kernel.__name__}, program {place} of {grid}")
            raise
        finally:
            engines.running.pop()


@contextmanager
def hopper_on_the_cpu(multiprocessors: int = 4, seed: int = 0) -> Iterator[Launches]:
    """Inside, calls of ``kernels`` on CPU tensors take what serves on Hopper, interpreted.

    For a process in which Triton interprets: its own interpreter runs what is no Gluon.
    """
    if not targets.interpreting():
        raise RuntimeError("expected TRITON_INTERPRET=1, which Triton reads when it is imported")
    launches = Launches()
    plain = (targets.current, targets.multiprocessors, JITFunction.run)
    plain_asm = InterpreterBuilder.create_inline_asm

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        launches.kernels.append(kernel.__name__)
        launches.named.append(named)
        launch(kernel, given, named, grid, seed + len(launches.kernels))

    for one in walk_packages(import_module("kernels").__path__, "kernels."):
        if ".hopper." in one.name:
            import_module(one.name)
    everywhere = _without_launch_order()
    hopper_target = targets.Target("sm_90", "cuda", 90)
    targets.current = lambda: hopper_target
    targets.multiprocessors = lambda: multiprocessors
    JITFunction.run = run
    InterpreterBuilder.create_inline_asm = _inline_asm
    try:
        yield launches
    finally:
        targets.current, targets.multiprocessors, JITFunction.run = plain
        InterpreterBuilder.create_inline_asm = plain_asm
        for module, name, value in everywhere:
            setattr(module, name, value)


def _without_launch_order() -> list[tuple[Any, str, Any]]:
    """Triton's interpreter does not know what orders overlapping launches: here none overlap."""
    found = []
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("kernels."):
            for name in ("gdc_wait", "gdc_launch_dependents"):
                if hasattr(module, name):
                    found.append((module, name, getattr(module, name)))
                    setattr(module, name, language.nothing)
    return found


def _inline_asm(
    self: Any, asm: str, constraints: str, given: Any, kinds: Any, pure: bool, pack: int
) -> Any:
    """PTX of Triton's own interpreter."""
    blocks = [Block(decode(one.data, one.dtype.scalar), one.dtype.scalar) for one in given]
    found = ptx.run(None, asm, constraints, blocks, tuple(one.scalar for one in kinds), pack)
    handles = [TensorHandle(encode(one.data, one.dtype), one.dtype) for one in found]
    return SimpleNamespace(get_result=lambda i: handles[i])
