"""Which calls are of one form, and which plan serves it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch.autograd import forward_ad
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernels.runtime import targets, tracing

from . import latest, recording
from .latest import OTHER, check_of, recognised
from .plan import Plan
from .steps import Unrepeatable

P = ParamSpec("P")
R = TypeVar("R")

# Of one function; a caller whose every call is new would fill the memory otherwise.
MOST_FORMS = 2048
# Calls that are recognised before their form is written down: a step has few kinds.
MOST_LATEST = 4
FEW_BYTES = 1 << 31
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_SCALARS = frozenset((bool, int, float, str, type(None), torch.dtype, torch.device))
# Looked up once: every call asks them.
_compiling = torch.compiler.is_compiling
_with_grad = torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_lowers, _lowered = torch.is_autocast_enabled, torch.get_autocast_dtype
_RUN = JITFunction.run
_INTERPRETS = targets.interpreting()
# Triton's knob, and how a user sets it.
_STORES, _STORES_VARIABLE = "store_binary_only", "TRITON_STORE_BINARY_ONLY"

Form = tuple[Any, ...]
# What a form has before it has a plan: it was called once, or its call cannot be repeated.
_SEEN, _ORDINARY = object(), object()
_generation = 0


class Forms(dict[Form, Any]):
    """What is known of each form of a function, and the calls that were served last."""

    __slots__ = ("latest", "lookups")

    def __init__(self) -> None:
        super().__init__()
        # Of each the state that held, its plan, the hooks of that, and what serves such calls.
        self.latest: tuple[tuple[tuple[Any, ...], Plan, list[Any], Callable[..., Any]], ...] = ()
        self.lookups = 0

    def served(self, plan: Plan, args: Any, kwargs: Any, tensors: Any, state: Any) -> None:
        """Keep a call that had to be looked up; where kinds are many, few of them."""
        self.lookups += 1
        if len(self.latest) == MOST_LATEST and self.lookups % 16:
            return
        check = check_of(tensors)
        if check is not None:
            others = tuple(one for one in self.latest if one[1] is not plan)
            found = (state, plan, plan.hooks, recognised(plan.run, args, kwargs, check))
            self.latest = (found, *others)[:MOST_LATEST]

    def clear(self) -> None:
        super().clear()
        self.latest = ()


_tables: dict[Callable[..., Any], Forms] = {}


def prepared(body: Callable[P, R]) -> Callable[P, R]:
    """Replay ``body`` where a call of the same form was recorded.

    Args:
        body: A function of tensors and plain values. Whatever it decides follows from the
            tensors' metadata, the values, the device and the modes of torch; it reads no element.

    Returns:
        The same function, which costs a look-up from the third call of a form on.
    """
    plans = Forms()

    @functools.wraps(body)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, serve(plans, body, args, kwargs))

    _tables[call] = plans
    return call


def serve(
    plans: Forms, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``body(*args, **kwargs)`` by one of ``plans``, where there is one of its form."""
    if _INTERPRETS or _compiling() or recording.active():
        return body(*args, **kwargs)
    if plans.latest:
        state = _state()
        for before, _, hooks, run in plans.latest:
            if state == before and not any(hooks):
                result = run(args, kwargs)
                if result is not OTHER:
                    return result
    found = _describe(args, kwargs)
    if found is None:
        return body(*args, **kwargs)
    form, tensors, addresses = found
    plan = plans.get(form)
    if type(plan) is Plan:
        if any(plan.hooks):
            return body(*args, **kwargs)
        if not _counts_bytes(driver.active):
            plans.served(plan, args, kwargs, tensors, _state())
        return plan.run(tensors, addresses)
    if plan is None:
        if len(plans) >= MOST_FORMS:  # those of long ago make room
            for old in list(plans)[: MOST_FORMS // 4]:
                plans.pop(old, None)
        with _binaries_only():
            result = body(*args, **kwargs)
        plans[form] = _SEEN
        return result
    if plan is _ORDINARY:
        return body(*args, **kwargs)
    result, made = _record(body, args, kwargs, tensors)
    plans[form] = _ORDINARY if made is None else made
    return result


@contextmanager
def _binaries_only() -> Iterator[None]:
    """Triton keeps no text of what it compiles inside, unless somebody reads or has set that.

    A process that finds a kernel on disk reads each text that lies there: for two megabytes of
    LLVM's that takes longer than all else of a first call.
    """
    settings = knobs.compilation
    own = vars(settings)  # a knob that is set by its name sets the environment of children, too
    if _STORES in own or _STORES_VARIABLE in os.environ or settings.listener is not None:
        yield
        return
    own[_STORES] = True
    try:
        yield
    finally:
        own.pop(_STORES, None)


def known(call: Callable[..., Any], args: tuple[Any, ...]) -> Plan | None:
    """The plan by which ``call(*args)`` is served, of a function that ``prepared`` made."""
    found = _describe(args, {})
    plan = None if found is None else _tables[call].get(found[0])
    return plan if type(plan) is Plan else None


def _record(
    body: Callable[..., R], args: Any, kwargs: Any, tensors: list[torch.Tensor]
) -> tuple[R, Plan | None]:
    """The result of ``body(*args, **kwargs)`` and a plan that repeats it, None where none can."""
    try:
        with recording.recording(tensors) as found:
            result = body(*args, **kwargs)
    except torch.OutOfMemoryError:
        found = None  # a recording keeps what a call as written gives back
    if found is None:
        return body(*args, **kwargs), None
    if found.refused:
        return result, None
    try:
        made = Plan(found, found.place(result), driver.active)
    except Unrepeatable:
        return result, None
    _watch()
    return result, made


class _Watched(ModuleType):
    """A module of this package: who puts another value in it, a test or a sweep, gets calls that
    are decided anew."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not isinstance(value, ModuleType):  # one that was just imported changes nothing
            forget()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        forget()


def _watch() -> None:
    package = __name__.partition(".")[0] + "."
    for name, module in list(sys.modules.items()):
        if name.startswith(package) and type(module) is ModuleType:
            module.__class__ = _Watched


def forget() -> None:
    """Drop every plan: what they were made from has changed. Those of graphs that are alive, and
    those that other threads are making, are of an older generation."""
    global _generation
    _generation += 1
    for plans in _tables.values():
        plans.clear()


def _describe(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Form, list[torch.Tensor], list[int]] | None:
    """The form of a call, its tensors and their addresses; None where it is to run as written."""
    parts: list[Any] = []
    tensors: list[torch.Tensor] = []
    addresses: list[int] = []
    values = args if not kwargs else (*args, *kwargs, *kwargs.values())
    try:
        for value in values:
            kind = type(value)
            if kind in _TENSORS:
                if value.is_neg() or value.is_nested:
                    return None
                address = value.data_ptr()
                parts += (
                    value.shape,
                    value.stride(),
                    value.dtype,
                    value.device,
                    address % latest.LINE,
                    value.requires_grad,
                )
                tensors.append(value)
                addresses.append(address)
            elif kind in _SCALARS:
                parts += (kind, value)
            elif kind is tuple and _SCALARS.issuperset(map(type, value)):
                parts += (*map(type, value), value)
            else:
                return None
        state = _whole_state(tensors[0])
    except (RuntimeError, NotImplementedError, IndexError):
        return None  # sparse and the like, no tensor at all, or no driver: the call itself says so
    if state is None:
        return None
    parts += state
    if _counts_bytes(state[0]):
        parts.append(tuple(one.untyped_storage().nbytes() < FEW_BYTES for one in tensors))
    if len(tensors) > 1 and len(set(map(id, tensors))) < len(tensors):
        first: dict[int, int] = {}
        parts.append(tuple(first.setdefault(id(one), i) for i, one in enumerate(tensors)))
    return tuple(parts), tensors, addresses


def _whole_state(lead: torch.Tensor) -> tuple[Any, ...] | None:
    """What else a call depends on; None where somebody watches torch or Triton at work."""
    state = None if tracing.watched() else _state()
    if state is None:
        return None
    active, device = state[0], state[2]
    if lead.is_cuda and lead.device.index != device and not recording.records(active):
        return None
    return state


def _autocast() -> tuple[Any, ...] | None:
    """The dtypes that autocast lowers tensors of CUDA and of the CPU to; None where it is off."""
    if not _any_autocast():
        return None
    return tuple([(_lowers(kind), _lowered(kind)) for kind in ("cuda", "cpu")])


def _state() -> tuple[Any, ...] | None:
    """As :func:`_whole_state`, without what a check of tensors covers."""
    runtime = knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    if (
        forward_ad._current_level >= 0
        or JITFunction.run is not _RUN
        or getattr(enter, "calls", enter)
        or getattr(leave, "calls", leave)
    ):
        return None
    active = driver.active
    return (
        active,
        _generation,
        active.get_current_device(),
        _with_grad(),
        runtime.debug,
        runtime.add_stages_inspection_hook,
        knobs.compilation.instrumentation_mode,
        _autocast(),
    )


@functools.lru_cache(maxsize=8)
def _counts_bytes(active: Any) -> bool:
    """Whether Triton compiles for how much memory a tensor has behind it, as for AMD."""
    return bool(active.get_current_target().backend == "hip")
