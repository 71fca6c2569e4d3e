"""A GPU for host code to see where there is none: its questions are answered, its tensors are the
CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton._C import libtriton
from triton.backends.compiler import GPUTarget
from triton.runtime.autotuner import Autotuner

from warpwatch.simulator.session import cuda

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Card:
    """The GPU that host code is shown: its ``capability`` (9, 0) for Hopper, (10, 0) for
    Blackwell, and how many multiprocessors it has. If it is ``judged``, words of another
    architecture are faults."""

    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 4
    judged: bool = False

    @property
    def number(self) -> int:
        """The capability as Triton counts it."""
        return 10 * self.capability[0] + self.capability[1]

    def properties(self, device: Any = None) -> Any:
        """What torch says of it."""
        major, minor = self.capability
        return SimpleNamespace(
            name=f"simulated sm_{self.number}",
            major=major,
            minor=minor,
            multi_processor_count=self.multiprocessors,
            total_memory=cuda.MEMORY,
            shared_memory_per_block_optin=227 << 10,
            warp_size=32,
            max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536,
            L2_cache_size=50 << 20,
        )


def _on_cpu(value: Any) -> Any:
    """``value`` where it named a CUDA device: the CPU."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return CPU
    return value


class _OnCpu(TorchFunctionMode):
    """Tensors that are said to be on the GPU are made on the CPU."""

    def __init__(self, watch: Callable[[str, Any, Any, Any], None] | None) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        if name in ("cuda", "pin_memory"):
            return args[0]
        if name == "get_device":
            return 0
        if name == "__get__":
            owner = getattr(func, "__self__", None)
            if owner is torch.Tensor.is_cuda:
                return True
            if owner is torch.Tensor.device:
                return torch.device("cuda", 0)
        given = tuple(_on_cpu(one) for one in args)
        named = {key: _on_cpu(one) for key, one in (kwargs or {}).items() if key != "pin_memory"}
        if type(named.get("device")) is int:  # a card's number
            named["device"] = CPU
        found = func(*given, **named)
        if self._watch is not None:
            self._watch(name, given, named, found)
        return found


class _Driver:
    """What Triton and host code ask of the driver."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {
                "max_shared_mem": 227 << 10,
                "multiprocessor_count": card.multiprocessors,
                "max_num_regs": 65536,
                "warpSize": 32,
            }
        )

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._card.number, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._card.capability

    def get_benchmarker(self) -> Callable[..., Any]:
        return _called_once

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none."""


class _Cublas:
    """Triton's way to cuBLAS, which host code compares with: torch multiplies instead."""

    def __init__(self, workspace: torch.Tensor) -> None:
        self._workspace = workspace

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c = a @ b.T"""
        c.copy_(a @ b.T)


def _called_once(function: Callable[[], Any], *given: Any, **named: Any) -> Any:
    """A benchmark calls it once: time is not simulated."""
    function()
    quantiles = named.get("quantiles")
    return [1.0] * len(quantiles) if quantiles else 1.0


def _first_of(tuner: Any, *given: Any, **named: Any) -> Any:
    """An autotuned kernel runs with the first configuration that is left."""
    tuner.nargs = dict(zip(tuner.arg_names, given, strict=False))
    chosen = tuner.prune_configs(named)[0] if tuner.configs else None
    tuner.nargs = None
    extra = chosen.all_kwargs() if chosen is not None else {}
    return tuner.fn.run(*given, **{**named, **extra})


@contextmanager
def shown(card: Card, watch: Callable[[str, Any, Any, Any], None] | None = None) -> Iterator[None]:
    """Inside, host code sees a GPU.

    Args:
        card: The GPU.
        watch: Called behind every function of torch: its name, arguments and result.
    """
    stream = cuda.Stream()
    answers: dict[str, Any] = {
        **cuda.ANSWERS,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: card.properties().name,
        "get_device_capability": lambda device=None: card.capability,
        "get_device_properties": card.properties,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "empty_cache": lambda: None,
        "device": lambda device: nullcontext(),
        "stream": lambda stream: nullcontext(),
        "is_bf16_supported": lambda *given: True,
    }
    active = triton.runtime.driver
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        # All tensors seem to be on the GPU in any case.
        stack.enter_context(mock.patch.object(torch, "set_default_device", lambda device: None))
        stack.enter_context(
            mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None)
        )
        stack.enter_context(mock.patch.object(torch, "Generator", cuda.Generator))
        stack.enter_context(mock.patch.object(triton.testing, "do_bench", _called_once))
        stack.enter_context(mock.patch.object(Autotuner, "run", _first_of))
        stack.enter_context(mock.patch.object(active, "_active", _Driver(card)))
        stack.enter_context(mock.patch.object(libtriton.nvidia.cublas, "CublasLt", _Cublas))
        stack.enter_context(_OnCpu(watch))
        yield
