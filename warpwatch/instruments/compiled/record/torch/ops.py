"""What torch itself does in a recorded call, on CPU tensors that pass for device tensors.

Two modes work together. The function mode lets host code find its tensors on ``cuda:0`` and sends
tensors it makes there to the CPU. The dispatch mode notes every operation that is not a view, with
its bytes (:mod:`.traffic`).

Small operations on known values are computed, because sizes, grids and the tables loop bounds are
read from are made of them: integers up to a few million elements, floating point to some thousand.
Of all others only the shape is, and their values are unknown (:mod:`.known`). Host code that reads
an unknown value reads 0, and a note says so.

Operators that a library added in Python run, so that their kernels and operations are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from warpwatch import devices
from warpwatch.instruments.compiled.formats.recording import TorchOp
from warpwatch.instruments.compiled.record import custom_ops
from warpwatch.instruments.compiled.record.known_values import Known

from .traffic import TEMPLATED, operands, products, puts_into_places, tensors, traffic

COMPUTED_ELEMENTS = 1 << 14
COMPUTED_INTEGERS = 1 << 22
# Memory nobody wrote reads as 0 where it is small enough to be a size or a table.
_ZEROED_BYTES = 1 << 20

_COPIES = {
    "aten::clone",
    "aten::copy_",
    "aten::_to_copy",
    "aten::cat",
    "aten::stack",
    "aten::repeat",
    "aten::constant_pad_nd",
    "aten::contiguous",
    "aten::copy",
}
# No kernel runs: memory is only reserved, or the host waits for a value.
_NO_LAUNCH = {
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::_local_scalar_dense",
    "aten::_efficientzerotensor",
    "aten::record_stream",
}
# Torch's schemas call the result of these new memory; it is the operand's.
_UNDECLARED_VIEWS = {
    "aten::_unsafe_view",  # the end of a reshape that copied
    "aten::lift",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
}
_MAKES_MEMORY = {name for name in _NO_LAUNCH if "empty" in name}
_REAL = (torch.Tensor, torch.nn.Parameter)
_DEVICE_QUESTIONS = {"is_cuda": True, "is_cpu": False}
_PARSE_TO: Any = torch._C._nn._parse_to
_READS_ON_HOST = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)


def _is_view(func: Any) -> bool:
    """Whether only sizes and strides are made, of a new tensor or (``squeeze_``) its operand."""
    if torch.Tag.inplace_view in func.tags or func._schema.name in _UNDECLARED_VIEWS:
        return True
    return any(one.alias_info is not None for one in func._schema.returns) and not (
        func._schema.is_mutable
    )


def _shapes(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func`` without memory, or ``NotImplemented`` where it depends on values."""

    def to_meta(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device="meta")
        return torch.device("meta") if isinstance(one, torch.device) else one

    try:
        return func(*tree_map(to_meta, args), **tree_map(to_meta, kwargs))
    except (NotImplementedError, RuntimeError):
        return NotImplemented


def _written(func: Any, changed: list[torch.Tensor]) -> Any:
    """What an operation in place returns, or ``NotImplemented`` where that is not clear."""
    returns = func._schema.returns
    if not returns:
        return None
    alone = len(returns) == len(changed) == 1 and returns[0].alias_info is not None
    return changed[0] if alone else NotImplemented


def _reserve(one: Any) -> Any:
    """Memory for a result nobody computes."""
    if not isinstance(one, torch.Tensor):
        return one
    made = torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device="cpu")
    return _cleared(made)


def _cleared(made: torch.Tensor) -> torch.Tensor:
    if made.numel() * made.element_size() <= _ZEROED_BYTES:
        made.zero_()
    return made


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(
        self, note: Callable[[TorchOp], None], remark: Callable[[str], None], known: Known
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note
        self._remark = remark
        self._known = known

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is traced here, and asking Dynamo to skip this mode imports all of it: 1 s.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # torch.compile traces without this mode; what it made runs with it.
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_view(func) or _traces():
            return func(*args, **kwargs)
        kernel = custom_ops.python_kernel(func)
        if kernel is not None:
            # As below autograd, with both modes on again for what it does.
            with torch.no_grad(), _OnDevice(self._known, self._remark), self:
                return kernel(*args, **kwargs)
        name = func._schema.name
        if name == "aten::_local_scalar_dense":
            self._note(TorchOp("aten.item", launches=0, bytes_moved=0, copied_bytes=0))
            if not self._known(args[0]):
                self._remark(_unknown_read("item"))
                return 0 if not args[0].is_floating_point() else 0.0
            return func(*args, **kwargs)
        result = self._run(func, args, kwargs)
        inputs, outputs = tensors((args, kwargs)), tensors(result)
        on_device = [one for one in (*inputs, *outputs) if one.device.type != "meta"]
        if name not in _NO_LAUNCH and on_device:
            read, written = traffic(func, args, kwargs, result)
            self._note(
                TorchOp(
                    name=name.replace("::", "."),
                    launches=1,
                    bytes_moved=read + written,
                    copied_bytes=written if name in _COPIES else 0,
                    flops=products(func, args, kwargs, result),
                    dtype=_multiplied(inputs),
                )
            )
        return result

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Compute, or reserve memory for, what ``func`` gives, and keep which of it is known."""
        if func._schema.name in _MAKES_MEMORY:
            result = func(*args, **kwargs)
            for one in tensors(result):
                self._known.mark(_cleared(one), False)
            return result
        if func._schema.name in _NO_LAUNCH:
            return func(*args, **kwargs)
        given = list(operands(func, args, kwargs))
        changed = [one for one, _, writes in given if writes]
        involved = [one for one, _, _ in given]
        template = func._schema.name in TEMPLATED
        known = template or all(self._known(one) for one, reads, _ in given if reads)
        if puts_into_places(func):
            known = known and self._known(given[0][0])
        result = NotImplemented
        if func._schema.is_mutable:
            if not (known and _small(involved)):
                result, known = _written(func, changed), False
        elif not (known and involved and _small(involved)):
            shapes = _shapes(func, args, kwargs)
            if shapes is NotImplemented:
                known = known and bool(involved) and _small(involved)
            elif not (known and _small([*involved, *tensors(shapes)])):
                result, known = tree_map(_reserve, shapes), False
        if result is NotImplemented:
            result = func(*args, **kwargs)
            if not known and (not tensors(result) or torch.Tag.dynamic_output_shape in func.tags):
                self._remark(_unknown_read(func._schema.name.replace("::", ".")))
        for one in (*changed, *tensors(result)):
            self._known.mark(one, known)
        return result


def _multiplied(inputs: list[torch.Tensor]) -> str:
    """The dtype of a product, as datasheets call it. Torch multiplies fp32 as such by default."""
    try:
        return devices.canonical_dtype(str(inputs[0].dtype) if inputs else "")
    except ValueError:
        return "fp32"


def _unknown_read(what: str) -> str:
    return f"host code reads a value that is not computed here ({what}): 0 is assumed"


def _small(involved: list[torch.Tensor]) -> bool:
    """Whether to compute with these costs next to nothing."""
    return all(
        one.numel() <= (COMPUTED_ELEMENTS if one.is_floating_point() else COMPUTED_INTEGERS)
        for one in involved
    )


class _OnDevice(TorchFunctionMode):
    """CPU tensors say they lie on ``cuda:0``; requests for a CUDA device are met on the CPU."""

    def __init__(self, known: Known, remark: Callable[[str], None]) -> None:
        super().__init__()
        self._known = known
        self._remark = remark

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if _traces() and not (args and type(args[0]) in _REAL):
            return func(*args, **kwargs)
        question = getattr(func, "__self__", None)
        if question is torch.Tensor.device and args and args[0].device.type == "cpu":
            return torch.device("cuda", 0)
        for name, answer in _DEVICE_QUESTIONS.items():
            if question is getattr(torch.Tensor, name):
                return answer
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda or func is torch.Tensor.pin_memory:
            self._known.put(args[0], on_host=False)
            return args[0]
        if func is torch.Tensor.record_stream:
            return args[0]
        if func is _PARSE_TO:  # Module.to asks where to, and then moves each tensor there
            return func(*args, **kwargs)
        if func in _READS_ON_HOST and not self._known(args[0]):
            self._remark(_unknown_read(func.__name__))
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = "cpu"
        pinned = kwargs.pop("pin_memory", False)  # which is for those who have a device
        result = func(*map(to_cpu, args), **{key: to_cpu(one) for key, one in kwargs.items()})
        if self._known.follows_host:
            said = any(to_cpu(one) is not one for one in args) or pinned
            self._place(args, kwargs, result, said=said or kwargs.get("device") is not None)
        return result

    def _place(self, args: Any, kwargs: Mapping[str, Any], result: Any, *, said: bool) -> None:
        """Keep which tensors lie on the host: those that are made of nothing else, or of nothing,
        where no word is ``said`` of a device or of memory that devices reach."""
        strided = (one for one in tensors(result) if one.layout is torch.strided)
        made = [one for one in strided if one.device.type == "cpu"]
        if not made:
            return
        given = tensors((args, kwargs))
        on_host = not said and all(
            one.layout is torch.strided and self._known.is_on_host(one) for one in given
        )
        for one in made:
            self._known.put(one, on_host=on_host)


def _traces() -> bool:
    """Whether somebody traces with tensors that have no memory, and may have a device."""
    functions: Any = torch._C
    return functions._get_dispatch_mode(functions._TorchDispatchModeKey.FAKE) is not None


def to_cpu(value: Any) -> Any:
    """A device that is not there, as the one where its tensors lie; anything else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


# Both modes, and the Python that torch calls of each.
HANDLERS = ((_OnDevice, "__torch_function__"), (_Operations, "__torch_dispatch__"))


def is_ours(mode: object) -> bool:
    """Whether a mode of torch is the recorder's."""
    return isinstance(mode, _OnDevice | _Operations)


def is_watching() -> bool:
    """Whether the recorder hears of what is requested of torch now."""
    return any(map(is_ours, map(torch._C._get_function_stack_at, range(_depth()))))


@contextmanager
def unwatched() -> Iterator[None]:
    """Inside, no mode of torch is on, neither the recorder's nor another."""
    functions: Any = torch._C
    modes = [functions._pop_torch_function_stack() for _ in range(_depth())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for one in reversed(modes):
            functions._push_on_torch_function_stack(one)


def _depth() -> int:
    return int(torch._C._len_torch_function_stack())


@contextmanager
def watched(
    note: Callable[[TorchOp], None], remark: Callable[[str], None], known: Known
) -> Iterator[None]:
    """Inside, ``note`` hears of every operation of torch, ``remark`` of what could not be known,
    and CPU tensors pass for CUDA's."""
    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward

    def run_backward_on_device(*args: Any, **kwargs: Any) -> Any:
        # torch leaves the function mode when it handles Tensor.backward; a backward written in
        # Python needs it again.
        with _OnDevice(known, remark):
            return run_backward(*args, **kwargs)

    autograd._engine_run_backward = run_backward_on_device
    try:
        with _OnDevice(known, remark), _Operations(note, remark, known), custom_ops.noted():
            yield
    finally:
        autograd._engine_run_backward = run_backward
