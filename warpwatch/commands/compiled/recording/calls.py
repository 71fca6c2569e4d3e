"""Which calls of a package launch kernels: the outermost whose arguments can be written down."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd.function import FunctionCtx
from torch.utils._python_dispatch import _disable_current_modes

from warpwatch.config.arguments import TensorSpec, tensors, written
from warpwatch.config.calls import Call
from warpwatch.workload.call import dtype_name

# Lengths and offsets; larger tensors of integers are labels, and hold zeros.
_MOST_VALUES = 64
_APPLY = "apply"


@dataclass
class _Open:
    """A call of the package that has not returned: how it is written, or why it cannot be."""

    code: CodeType
    path: str = ""
    args: str = ""
    why: str = ""
    function: type | None = None  # whose ``forward`` it is
    context: int = 0  # by which a backward knows its forward
    launches: int = 0
    inner: list[_Open] = field(default_factory=list)

    def functions(self) -> Iterator[tuple[type, int]]:
        """The autograd functions that run inside, each with its context."""
        if self.function is not None:
            yield self.function, self.context
        for one in self.inner:
            yield from one.functions()


class Calls:
    """The calls of ``package`` that launch kernels while this is Python's profiler.

    Args:
        package: The import name of the package.
        known: Whether all values of a tensor are known, and its numbers.
    """

    def __init__(self, package: str, known: Any) -> None:
        self.found: dict[tuple[str, str, bool], Call] = {}
        self.unwritten: Counter[str] = Counter()
        self.launches = 0
        # Of functions whose kernels torch.compile would generate: each call launches.
        self.generated: set[CodeType] = set()
        self._package = package
        self._known = known
        self._open: list[_Open] = []
        self._ours: dict[CodeType, bool] = {}
        self._last: dict[type, tuple[str, str]] = {}
        # By the context of a forward, how it is written; ``None`` where it cannot be.
        self._forwards: dict[int, tuple[str, str] | None] = {}
        self._names: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            module = str(frame.f_globals.get("__name__", ""))
            ours = f"{module}.".startswith(f"{self._package}.") and code.co_name[0] != "<"
            self._ours[code] = ours
        if event == "call" and ours:
            self._open.append(self._begun(frame))
            self._open[-1].launches = -self.launches
        if event == "call" and code in self.generated:
            self.launches += 1
        if event == "return" and ours and self._open and self._open[-1].code is code:
            self._ended(self._open.pop())

    def _ended(self, one: _Open) -> None:
        one.launches += self.launches
        if not one.launches:
            return
        if self._open:
            self._open[-1].inner.append(one)
        else:
            self._take(one)

    def _take(self, one: _Open) -> None:
        if one.path:
            self._add(one.path, one.args, backward=False)
            for function, context in one.functions():
                self._last[function] = (one.path, one.args)
                self._forwards[context] = (one.path, one.args)
            return
        if one.function is not None and one.why == "":  # a backward
            # A context that a forward did not get itself is of the newest call of its function.
            newest = self._last.get(one.function)
            before = self._forwards.get(one.context, newest)
            if before is not None:
                self._add(*before, backward=True)
                return
        for inner in one.inner:
            self._take(inner)
        if not one.inner:
            self.unwritten[f"{one.code.co_qualname}: {one.why}"] += 1

    def _add(self, path: str, args: str, *, backward: bool) -> None:
        key = (path, args, backward)
        if key in self.found:
            return
        shapes = [one.shape for one in _tensors_of(args)]
        parts = [path.partition(":")[2].removesuffix(f".{_APPLY}"), dtype_name(args)]
        parts += ["x".join(map(str, shapes[0]))] if shapes and shapes[0] else []
        parts += ["backward"] if backward else []
        name = "-".join(parts).lstrip("_.-")[:110]  # as a workload may be called
        self._names[name] += 1
        name += f".{self._names[name]}" if self._names[name] > 1 else ""
        self.found[key] = Call(name, path, args, backward)

    def _begun(self, frame: FrameType) -> _Open:
        code = frame.f_code
        one = _Open(code)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        first = frame.f_locals.get(names[0]) if names else None
        owner, _, method = code.co_qualname.rpartition(".")
        module = str(frame.f_globals["__name__"])
        if isinstance(first, FunctionCtx):
            found = _resolved(module, owner) if owner and "<locals>" not in owner else None
            if not isinstance(found, type):
                one.why = "a wrapper"
                return one
            one.function, one.context = found, id(first)
            if method == "backward":
                return one
            self._forwards[one.context] = None  # whoever had this address is gone
            path, function, skip = f"{module}:{owner}.{_APPLY}", getattr(found, "forward", None), 1
        elif "<locals>" in code.co_qualname or (owner and names[:1] in (("self",), ("cls",))):
            one.why = "a method, or a function inside another"
            return one
        else:
            path, function, skip = f"{module}:{code.co_qualname}", None, 0
            function = _resolved(module, code.co_qualname)
        if not callable(function):
            one.why = "not found by its name"
            return one
        try:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                one.args = self._arguments(function, frame, skip)
            one.path = path
        except (ValueError, TypeError) as error:
            one.why = str(error)
        return one

    def _arguments(self, function: Callable[..., Any], frame: FrameType, skip: int) -> str:
        """The arguments of a call that begins, those left out that are the default."""
        own = _own(function, frame.f_code)
        if own is None:
            raise ValueError("a decorator hides its signature")
        parameters = list(inspect.signature(own).parameters.values())[skip:]
        given = frame.f_locals
        grads = any(
            one.requires_grad for name in given for one in _of_torch(given.get(name)) if one.is_leaf
        )
        words: list[str] = []
        waiting: list[str] = []  # defaults, written only where something positional follows
        for one in parameters:
            value = given.get(one.name)
            if one.kind is one.VAR_POSITIONAL:
                words += [*waiting, *(written(self._spec(each, grads)) for each in value or ())]
                continue
            if one.kind is one.VAR_KEYWORD:
                words += [
                    f"{key}={written(self._spec(each, grads))}"
                    for key, each in (value or {}).items()
                ]
                continue
            if _is_default(value, one.default):
                if skip:
                    waiting.append(written(self._spec(value, grads)))
                continue
            text = written(self._spec(value, grads))
            if skip:
                words += [*waiting, text]
                waiting = []
            else:
                plain = one.default is one.empty and one.kind is not one.KEYWORD_ONLY
                named = not plain or any("=" in word for word in words)
                words.append(f"{one.name}={text}" if named else text)
        return " ".join(words)

    def _spec(self, value: Any, grads: bool) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._spec(one, grads) for one in value)
        if not isinstance(value, torch.Tensor):
            return value
        dtype = str(value.dtype).removeprefix("torch.")
        shape = tuple(value.shape)
        floats = value.is_floating_point() or value.is_complex()
        few = len(shape) == 1 and 0 < value.numel() <= _MOST_VALUES
        if not floats and few and dtype != "bool" and self._known(value):
            return TensorSpec(dtype, shape, tuple(value.tolist()))
        return TensorSpec(dtype, shape, gradient=value.requires_grad or not grads or not floats)


def _own(function: Any, code: CodeType) -> Any:
    """The function whose code runs, which decorators may have wrapped; ``None`` where they hide
    it."""
    waiting, seen = [function], 0
    while waiting and seen < 50:
        one = waiting.pop(0)
        seen += 1
        if getattr(one, "__code__", None) is code:
            return one
        cells = getattr(one, "__closure__", None) or ()
        inside = [cell.cell_contents for cell in cells if _is_filled(cell)]
        waiting += [each for each in (getattr(one, "__wrapped__", None), *inside) if callable(each)]
    return None


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    plain = (bool, int, float, str, type(None))
    return isinstance(value, plain) and isinstance(default, plain) and value == default


def _of_torch(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _of_torch(one)


def _tensors_of(args: str) -> list[TensorSpec]:
    from warpwatch.config.arguments import parse_arguments

    positional, keywords = parse_arguments(args)
    return tensors((*positional, *keywords.values()))


def _resolved(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
