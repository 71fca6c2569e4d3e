"""What one call does, noted while it runs as written."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from .steps import (
    Allocation,
    Applied,
    Described,
    Launch,
    Operation,
    Slot,
    Step,
    Unrepeatable,
    View,
    like,
)

_here = threading.local()
_aten: Any = torch.ops.aten
_RESERVES = frozenset(
    (
        _aten.empty.memory_format,
        _aten.empty_strided.default,
        _aten.empty_like.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    )
)


class Recording(TorchDispatchMode):
    """The steps of a call, as long as ``refused`` is False."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.slots: list[Slot] = []
        self.refused = False
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []  # by slot
        self._alive: list[torch.Tensor] = []  # so that no two tensors have one id
        for one in tensors:
            self._add(one, None)
        self._given = len(self._kept)

    def arguments(self) -> list[torch.Tensor]:
        """The tensors of the call."""
        return self._kept[: self._given]

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # other threads compile meanwhile as if it were not there

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler to leave alone what is never compiled

    def _add(self, tensor: torch.Tensor, of: Slot | None) -> int:
        number = len(self.slots)
        root, offset = number, 0
        if of is not None:
            owner = self._kept[of.root]
            root, offset = of.root, tensor.data_ptr() - owner.data_ptr()
        self.slots.append(Slot(number, root, offset))
        self._kept.append(tensor)
        self._numbers.setdefault(id(tensor), number)
        return number

    def slot(self, tensor: torch.Tensor) -> Slot:
        number = self._numbers.get(id(tensor))
        if number is None:
            raise Unrepeatable
        return self.slots[number]

    def place(self, value: Any) -> Any:
        """``value`` with slots in place of tensors."""
        if isinstance(value, torch.Tensor):
            return self.slot(value)
        if isinstance(value, (tuple, list)):
            return like(value, [self.place(one) for one in value])
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            without = copy.copy(value)
            without.base = None
            return Described(without, self.slot(value.base), value.base.data_ptr())
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if active() is self and not self.refused:
            with self.noting():
                self._note(func, args, kwargs, found)
        return found

    def _note(self, func: Any, args: Any, kwargs: Any, found: Any) -> None:
        if func.namespace != "aten" or torch.Tag.dynamic_output_shape in func.tags:
            raise Unrepeatable
        many = isinstance(found, (tuple, list))
        results = tuple(found) if many else (found,)
        if not all(one is None or isinstance(one, torch.Tensor) for one in results):
            raise Unrepeatable
        if func is _aten.detach.default and (number := self._reserved(args[0])) is not None:
            # What torch hands out while a mode watches: the same memory, nobody's gradient.
            self._alive.append(found)
            self._numbers[id(found)] = number
            return
        placed, named = self.place(args), self.place(tuple(kwargs.items()))
        if func in _RESERVES and not kwargs.get("pin_memory"):
            number, size, stride = self._add(found, None), tuple(found.shape), found.stride()
            nbytes = found.untyped_storage().nbytes()
            kind, device = found.dtype, found.device
            self.steps.append(Allocation(number, size, stride, kind, device, nbytes))
            return
        numbers: list[int | None] = []
        views = not func._schema.is_mutable
        for one in results:
            if one is None or id(one) in self._numbers:
                numbers.append(None)  # of an operation in place
                views = False
                continue
            of = self._owner(one, args)
            views = views and of is not None
            numbers.append(self._add(one, of))
        kind_of_step = View if views else Operation
        self.steps.append(kind_of_step(func, placed, named, tuple(numbers), many))

    def _reserved(self, tensor: torch.Tensor) -> int | None:
        """Its slot where this call reserved it."""
        number = self._numbers.get(id(tensor))
        made = {one.slot for one in self.steps if isinstance(one, Allocation)}
        return number if number in made and not tensor.requires_grad else None

    def _owner(self, tensor: torch.Tensor, args: Any) -> Slot | None:
        """The slot among ``args`` whose memory ``tensor`` has."""
        memory = tensor.untyped_storage()._cdata
        for one in args:
            if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata == memory:
                return self.slot(one)
        return None

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except Unrepeatable:
            self.refused = True

    def launch(self, kernel: Any, grid: Any, args: Any, kwargs: Any) -> Any:
        compiled = kernel[grid](*args, **kwargs)
        with self.noting():
            if not isinstance(kernel, JITFunction) or not isinstance(compiled, CompiledKernel):
                raise Unrepeatable
            if callable(grid) or kernel.pre_run_hooks:
                raise Unrepeatable
            names = kernel.arg_names
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            values = [
                given[name] if name in given else kernel.signature.parameters[name].default
                for name in names
            ]
            whole = (*grid, 1, 1)[:3]
            arguments = tuple(self.place(one) for one in values)
            self.steps.append(Launch(kernel, compiled, whole, arguments))
        return compiled

    def apply(self, function: Callable[..., Any], learn: Any, args: tuple[Any, ...]) -> Any:
        _here.recording = None
        try:
            found = function(*args)
            node = learn(args, found)
        finally:
            _here.recording = self
        with self.noting():
            many = isinstance(found, (tuple, list))
            results = tuple(found) if many else (found,)
            numbers = tuple(None if one is None else self._add(one, None) for one in results)
            self.steps.append(Applied(function, self.place(args), (), numbers, many, node))
        return found


def active() -> Recording | None:
    """The recording of this thread's call, if there is one."""
    return getattr(_here, "recording", None)


def records(driver: Any) -> bool:
    """Whether it is a driver that notes launches and does none."""
    return bool(getattr(driver, "records_launches", False))


def noted(kernel: Any, grid: Any) -> Any:
    """``kernel[grid]``, as every launch is written, noted where its call is recorded."""
    found = active()
    if found is None:
        return kernel[grid]
    return lambda *args, **kwargs: found.launch(kernel, grid, args, kwargs)


def applied(function: Callable[..., Any], learn: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, a function of autograd: one step of a call that is recorded, whose node
    ``learn(args, results)`` makes."""
    found = active()
    return function(*args) if found is None else found.apply(function, learn, args)


def repeated(function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``function(*args, **kwargs)``, at every call of the form: it is about addresses, or about
    what autograd knows of tensors."""
    function(*args, **kwargs)
    found = active()
    if found is not None:
        with found.noting():
            placed, named = found.place(args), found.place(tuple(kwargs.items()))
            found.steps.append(Operation(function, placed, named, (), False))


@contextmanager
def recording(tensors: Iterable[torch.Tensor]) -> Iterator[Recording]:
    """Notes what this thread does inside; ``tensors`` are the arguments of the call."""
    found = Recording(tensors)
    _here.recording = found
    try:
        with found:
            yield found
    finally:
        _here.recording = None
