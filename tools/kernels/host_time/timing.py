"""Host time of a call in microseconds while the device is busy, and where it goes."""

from __future__ import annotations

import cProfile
import gc
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

CALLS = 50  # times at most four launches: fewer than a stream's queue holds
BUSY = 400_000_000  # cycles, a fifth of a second
# Where a function belongs, by its file or name; the first that fits.
PARTS = (
    ("form and plan", ("kernels/runtime/launch",)),
    ("checks", ("kernels/runtime/checks", "/api/", "common/options", "common/shapes", "autocast")),
    ("torch.library", ("torch/_library", "torch/_ops", "torch/library")),
    ("autograd", ("torch/autograd", "runtime/autograd", "run_backward", "/operators/", "apply")),
    ("descriptors", ("descriptor", "make_tensordesc", "fill_tma", "hopper_rings", "boxes")),
    ("binder", ("triton/runtime/jit", "dynamic_func", "specialize")),
    ("launch", ("triton/backends", "launch>", "method launch", "cuda_utils", "triton/compiler")),
    ("choice", ("/dispatch/", "tuning", "choose", "launch.py", "backends", "targets", "/decode/")),
    ("memory", ("torch.empty", "new_empty", "empty_like", "empty_strided")),
)


def batches(call: Callable[[], Any], runs: int, calls: int = CALLS) -> list[float]:
    """Microseconds a call, one figure a run."""
    for _ in range(5):
        call()
    # Without a GPU nothing is waited for: another process's turn is no cost of the call.
    clock = time.perf_counter_ns if torch.cuda.is_available() else time.process_time_ns
    found = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            _occupy()
            begin = clock()
            for _ in range(calls):
                call()
            found.append((clock() - begin) / 1000 / calls)
            _idle()
    finally:
        gc.enable()
    return found


def synchronised(call: Callable[[], Any], runs: int, calls: int = CALLS) -> list[float]:
    """Microseconds a call that is waited for, one figure a run."""
    found = []
    for _ in range(runs):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
            _idle()
        found.append((time.perf_counter_ns() - begin) / 1000 / calls)
    return found


def _occupy() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda._sleep(BUSY)


def _idle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def middle(samples: list[float]) -> tuple[float, float]:
    """The median, and half the distance of the quartiles as a share of it."""
    low, found, high = statistics.quantiles(samples, n=4)
    return found, (high - low) / 2 / found


def where(call: Callable[[], Any], total_us: float, calls: int = CALLS) -> dict[str, float]:
    """Microseconds of ``total_us`` by part: shares are of a profile, which takes longer itself."""
    profile = cProfile.Profile()
    _occupy()
    profile.enable()
    for _ in range(calls):
        call()
    profile.disable()
    _idle()
    found: dict[str, float] = dict.fromkeys((*(name for name, _ in PARTS), "other"), 0.0)
    stats: Any = pstats.Stats(profile)
    for (file, _, function), row in stats.stats.items():
        text = f"{file} {function}"
        part = next((name for name, marks in PARTS if any(m in text for m in marks)), "other")
        found[part] += row[2]
    whole = sum(found.values())
    return {name: one / whole * total_us for name, one in found.items() if one}
