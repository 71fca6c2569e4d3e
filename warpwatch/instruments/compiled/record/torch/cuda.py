"""Which questions to ``torch.cuda`` are answered for a GPU that is not there; the rest refuse.

Answers come from the target's datasheet; ``docs/explanation/compiled-instrument.md`` lists them.
Anything that would need a real device (memory numbers, event times, graphs) raises
:class:`NotAnsweredError` that names the call, so that host code never continues on an invented
figure.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from warpwatch import devices
from warpwatch.config.targets import Target


class NotAnsweredError(RuntimeError):
    """Host code asked a question only a real device can answer."""


def capability(target: Target) -> tuple[int, int]:
    """What ``torch.cuda.get_device_capability`` says on this target."""
    if isinstance(target.arch, int):
        return divmod(target.arch, 10)
    digits = target.arch.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16)


def properties(target: Target) -> types.SimpleNamespace:
    """``torch.cuda.get_device_properties`` of the target's default device."""
    device = devices.load(target.device)
    major, minor = capability(target)
    return types.SimpleNamespace(
        name=device.title,
        major=major,
        minor=minor,
        multi_processor_count=device.kernel_sms,
        total_memory=int(device.memory_gb * 1e9) // device.dies,
        warp_size=device.warp_size,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        max_threads_per_block=device.max_threads_per_block,
        regs_per_multiprocessor=device.registers_per_sm,
        shared_memory_per_block=min(49152, device.shared_bytes_per_block)
        if target.backend == "cuda"
        else device.shared_bytes_per_block,
        shared_memory_per_block_optin=device.shared_bytes_per_block,
        shared_memory_per_multiprocessor=device.shared_bytes_per_sm,
        L2_cache_size=device.l2_bytes // device.dies,
        gcnArchName=str(target.arch),
        is_integrated=0,
        is_multi_gpu_board=0,
    )


Waits = Callable[[str], None]  # gets the name of a call that waits for the device
# What was there, and what is there instead, of each recording that stands: one may be in another.
_in_force: list[tuple[list[tuple[Any, str, Any]], list[tuple[Any, str, Any]]]] = []


def _unheard(_: str) -> None: ...


class _Stream:
    """Order is all a stream means here, and calls are recorded in order."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    waits: Waits = staticmethod(_unheard)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None:
        self.waits("torch.cuda.Stream.synchronize")

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or self.event()

    def event(self) -> Any:
        return type("Event", (_Event,), {"waits": staticmethod(self.waits)})()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...


class _Event:
    waits: Waits = staticmethod(_unheard)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def synchronize(self) -> None:
        self.waits("torch.cuda.Event.synchronize")

    def elapsed_time(self, _: Any) -> float:
        raise NotAnsweredError(_refusal("Event.elapsed_time"))


def _refusal(call: str) -> str:
    return (
        f"torch.cuda.{call} is not answered while launches are recorded without a GPU: "
        f"answered are {', '.join(sorted(ANSWERED))}"
    )


def _answers(target: Target, waits: Waits) -> dict[str, Any]:
    device = devices.load(target.device)
    described = properties(target)
    hears = {"waits": staticmethod(waits)}
    stream_type = type("Stream", (_Stream,), hears)
    stream = stream_type()
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: capability(target),
        "get_device_name": lambda device=None: device_title,
        "get_device_properties": lambda device=None: described,
        "get_arch_list": lambda: [str(target.name)],
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "set_stream": lambda stream: None,
        "stream": lambda stream=None: nullcontext(stream),
        "synchronize": lambda device=None: waits("torch.cuda.synchronize"),
        "device": lambda device=None: nullcontext(device),
        "device_of": lambda tensor=None: nullcontext(tensor),
        "empty_cache": lambda: None,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "is_tf32_supported": lambda: _multiplies_tf32(target),
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device="cuda": _rng_state(),
        "set_rng_state": lambda new_state, device="cuda": None,
        "Stream": stream_type,
        "Event": type("Event", (_Event,), hears),
    }
    device_title = device.title
    return answers


ANSWERED: tuple[str, ...] = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
)


def _multiplies_tf32(target: Target) -> bool:
    """As torch says it of each architecture."""
    if target.backend == "hip":
        return str(target.arch).startswith(("gfx94", "gfx95"))
    return capability(target) >= (8, 0)


def _rng_state() -> Any:
    """A generator's state, as torch has it: a seed and an offset, 8 bytes each."""
    import torch

    return torch.zeros(16, dtype=torch.uint8)


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise NotAnsweredError(_refusal(name))

    return refused


def _replacements(target: Target, waits: Waits) -> Iterator[tuple[Any, str, Any]]:
    """(module, name, what it is replaced by): what is answered, and a refusal for every other
    public function, and for every class that stands for something on a device."""
    import torch

    answers = _answers(target, waits)
    for name, value in answers.items():
        yield torch.cuda, name, value
    cuda: Any = torch.cuda
    for module in (cuda, cuda.memory, cuda.random, cuda.graphs, cuda.nvtx):
        inside = module.__name__.removeprefix("torch.cuda").lstrip(".")
        for name, value in list(vars(module).items()):
            asks = isinstance(value, types.FunctionType)
            asks |= isinstance(value, type) and value.__module__.startswith("torch.cuda.")
            ours = str(getattr(value, "__module__", "")).startswith("torch.cuda")
            if name.startswith("_") or not asks or not ours:
                continue
            if name in answers:
                if inside:
                    yield module, name, answers[name]
                continue
            refused: Any = _refuse(f"{inside}.{name}".lstrip("."))
            # A class stays one, for those who ask isinstance.
            if isinstance(value, type):
                refused = type(name, (), {"__new__": refused})
            yield module, name, refused


@contextmanager
def answered(target: Target, waits: Waits = _unheard) -> Iterator[None]:
    """Inside, ``torch.cuda`` and ``torch.version`` speak for ``target``'s default device; ``waits``
    gets the name of each call that waits for it."""
    import torch

    if target.backend == "hip":
        version: dict[str, Any] = {"hip": "7.0.0", "cuda": None}
    else:
        version = {"cuda": "12.8", "hip": None}
    replaced = list(_replacements(target, waits))
    replaced += [(torch.version, name, value) for name, value in version.items()]
    kept = [(module, name, getattr(module, name, None)) for module, name, _ in replaced]
    _in_force.append((kept, replaced))
    try:
        _put(replaced)
        yield
    finally:
        _in_force.pop()
        _put(kept)


@contextmanager
def unanswered() -> Iterator[None]:
    """Inside, ``torch.cuda`` is as torch made it: modules of torch that are imported there keep no
    answer for themselves."""
    for kept, _ in reversed(_in_force):
        _put(kept)
    try:
        yield
    finally:
        for _, replaced in _in_force:
            _put(replaced)


def _put(values: list[tuple[Any, str, Any]]) -> None:
    for module, name, value in values:
        setattr(module, name, value)
