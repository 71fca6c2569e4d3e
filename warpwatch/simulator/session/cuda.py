"""Stand-ins for ``torch.cuda`` where there is no GPU: nothing runs beside the host code there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from warpwatch.simulator.errors import UnknownWordError

MEMORY = 80 << 30


class Stream:
    """A stream: all work is done when it is asked for."""

    cuda_stream, device_index, priority = 0, 0, 0

    def __init__(self, *given: Any, **named: Any) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *given: Any) -> None:
        """Work goes on where it was."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def wait_stream(self, other: Any) -> None:
        """There is nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """There is nothing to wait for."""

    def query(self) -> bool:
        """Whether all is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """An event of this stream."""
        return Event() if event is None else event


class Event:
    """An event: it has happened when it is recorded."""

    cuda_event = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """It happens."""

    def wait(self, stream: Any = None) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Time is not simulated."""
        return 0.0


class _Real(type):
    _kind = torch.Generator

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, cls._kind)


class Generator(metaclass=_Real):
    """A generator for the GPU is one for the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Real._kind(device="cpu")


def _refused(word: str) -> Callable[..., Any]:
    def refuse(*given: Any, **named: Any) -> Any:
        raise UnknownWordError(f"torch.cuda.{word}")

    return refuse


def _nothing(*given: Any, **named: Any) -> None:
    """What changes nothing here."""


def _none_used(*given: Any, **named: Any) -> int:
    return 0


ANSWERS: dict[str, Any] = {
    "Stream": Stream,
    "Event": Event,
    **{word: _refused(word) for word in ("CUDAGraph", "graph", "make_graphed_callables")},
    # torch.manual_seed calls these.
    "manual_seed": torch.default_generator.manual_seed,
    "manual_seed_all": torch.default_generator.manual_seed,
    "seed": torch.default_generator.seed,
    "seed_all": torch.default_generator.seed,
    "initial_seed": torch.default_generator.initial_seed,
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    "memory_allocated": _none_used,
    "max_memory_allocated": _none_used,
    "memory_reserved": _none_used,
    "max_memory_reserved": _none_used,
    "memory_stats": lambda device=None: {},
    "memory_summary": lambda *given, **named: "",
    "mem_get_info": lambda device=None: (MEMORY, MEMORY),
    "reset_peak_memory_stats": _nothing,
    "reset_max_memory_allocated": _nothing,
    "reset_accumulated_memory_stats": _nothing,
    "ipc_collect": _nothing,
}
