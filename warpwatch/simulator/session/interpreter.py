"""Turns the functions of a kernel into Python that runs: their globals are translated.

Triton's interpreter does not know Gluon. Here the functions of a kernel run as they are written.
Their words are said of numpy's blocks (language.py). What only a compiler sees is not seen:
layouts, registers, which instruction.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from contextlib import suppress
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import triton
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction

from warpwatch.simulator.errors import UnknownAttributeError, UnknownWordError
from warpwatch.simulator.values.layouts import ANY_LAYOUT, Layout
from warpwatch.simulator.words import language, standard

BUILTINS = {
    "range": language.steps,
    "max": standard._of_all(standard.maximum),
    "min": standard._of_all(standard.minimum),
}
called: set[FunctionType] = set()  # which functions of kernels have run
changed: dict[FunctionType, CodeType] = {}  # what runs in the place of a function's own code
extra_globals: dict[str, Any] = {}  # what such code knows besides its module's globals
_own: dict[FunctionType, CodeType] = {}  # what runs else: some ask constants for a value
_translated: dict[int, Any] = {}
_keep: list[Any] = []  # whose ids are in use
_globals: dict[tuple[int, bool], dict[str, Any]] = {}


def translate(value: Any) -> Any:
    """What stands for ``value``, a global of a module of kernels, while one is interpreted."""
    if id(value) in language.STANDS_FOR:
        return language.STANDS_FOR[id(value)]
    if id(value) in _translated:
        return _translated[id(value)]
    if isinstance(value, triton.language.constexpr):
        return value.value
    found: Any
    if isinstance(value, ConstexprFunction):
        found = _of_layouts(_function(value.fn, {}))
    elif isinstance(value, JITFunction | InterpretedFunction):
        found = _function(value.fn, BUILTINS)
        if _is_tritons(value.fn):
            found = _named(found, _said(value.fn))
    elif isinstance(value, ModuleType):
        found = _Module(value)
    elif getattr(value, "__triton_aggregate__", False):
        found = _aggregate(value)
    elif getattr(value, "__triton_builtin__", False) or _is_extern(value):
        found = _refused(_said(value))
    else:
        return value
    _translated[id(value)] = found
    _keep.append(value)
    return found


language.TRANSLATE.append(translate)


def _is_tritons(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("triton.")


def _is_extern(value: Any) -> bool:
    """Whether only a compiler knows what a function does: its Python says nothing of it."""
    return isinstance(value, FunctionType) and value.__module__.startswith("triton.language.extra")


def _said(value: Any) -> str:
    """A word of Triton's as kernels say it."""
    module, name = str(getattr(value, "__module__", "")), getattr(value, "__name__", "a builtin")
    *_, last = module.split(".")
    if not module.startswith("triton."):
        return name
    if module.startswith("triton.language.") and last in ("core", "standard", "math", "random"):
        return f"tl.{name}"
    return f"gl.{name}" if last.startswith("_") else f"{last}.{name}"


def _refused(word: str) -> Callable[..., Any]:
    def unknown(*given: Any, **named: Any) -> None:
        raise UnknownWordError(word)

    return unknown


def _named(function: Callable[..., Any], word: str) -> Callable[..., Any]:
    """A function of Triton's own: a word of it that is not known is told as the user's."""

    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except UnknownWordError:
            raise UnknownWordError(word) from None

    call.__name__ = function.__name__
    return call


class _Module:
    """A module that a kernel names: words of it are translated."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return translate(getattr(self._module, name))


def _function(plain: FunctionType, builtins: dict[str, Any]) -> Callable[..., Any]:
    """``plain`` with its globals translated, when first called: modules refer to one another."""
    made: dict[int, FunctionType] = {}  # by the code's id: to hash it takes longer than many a word

    def make(code: CodeType) -> FunctionType:
        world = _world(plain, builtins)
        cells = {
            name: translate(one.cell_contents)
            for name, one in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True)
        }
        closure: tuple[CellType, ...] | None = None
        if code is not plain.__code__:
            world = {**world, **cells, **extra_globals, **_ASKED}
        elif cells:
            closure = tuple(CellType(one) for one in cells.values())
        made[id(code)] = function = FunctionType(
            code, world, plain.__name__, _values(plain.__defaults__), closure
        )
        function.__kwdefaults__ = plain.__kwdefaults__
        return function

    def call(*given: Any, **named: Any) -> Any:
        called.add(plain)
        code = changed.get(plain) or _own.get(plain) or _code_of(plain)
        function = made.get(id(code)) or make(code)
        return function(*given, **named)

    call.__name__ = plain.__name__
    return call


def _values(defaults: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Default values of arguments; constants among them are wrapped."""
    wraps = triton.language.constexpr
    return defaults and tuple(one.value if isinstance(one, wraps) else one for one in defaults)


def _value_of(one: Any) -> Any:
    """The value of a constant, which is itself here."""
    plain = (bool, int, float, str, tuple, list, type(None), triton.language.dtype, Layout)
    return one if isinstance(one, plain) else one.value


_ASKED = {"_value_of": _value_of, "_step": language.step}  # by the code that runs


class _Values(ast.NodeTransformer):
    """Has ``x.value`` be x where that is a constant: kernels see constants wrapped. Has loops
    count their steps: one may never end."""

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        counts = ast.Expr(ast.Call(ast.Name("_step", ast.Load()), [], []))
        node.body.insert(0, _at(counts, node))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "value" or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(ast.Name("_value_of", ast.Load()), [node.value], [])
        return ast.copy_location(call, node)


def _at(made: ast.stmt, place: ast.stmt) -> ast.stmt:
    """A statement that is told as the line of another one's head."""
    for one in ast.walk(made):
        ast.copy_location(one, place)
    return made


def _code_of(plain: FunctionType) -> CodeType:
    _own[plain] = plain.__code__
    with suppress(OSError, SyntaxError, AssertionError):  # its source cannot be read
        if "value" in plain.__code__.co_names or "while" in inspect.getsource(plain):
            _own[plain] = compiled(plain, lambda tree: tree)
    return _own[plain]


def _of_layouts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of constants: one that looks into a layout makes a layout, and all are one."""

    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except UnknownAttributeError as error:
            if not error.word.startswith(f"{Layout.said}."):
                raise
            return ANY_LAYOUT

    call.__name__ = function.__name__
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
    _Values().visit(tree)
    space: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), plain.__code__.co_filename, "exec"), space)
    code: CodeType = space[plain.__name__].__code__
    return code
