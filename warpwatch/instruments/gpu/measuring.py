"""All that one process reads off a GPU for one workload: answer, latency, memory, derived shares.

Everything derived (share of peak, bytes a second) comes from the one latency measured here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.instruments.gpu.card.interface import (
    Call,
    DeviceLostError,
    Gpu,
    OutOfMemoryError,
    says_lost,
)
from warpwatch.instruments.outcome import Outcome, Status
from warpwatch.workload.kernel import find_kernel

from . import accuracy, ceilings, latency
from .latency import Latency, Limits, Method

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

FAR_BEHIND_NOTE = "far behind: "  # begins the note of who was placed by a few samples


def missing(workload: Workload) -> Outcome | None:
    """Why the measured package cannot run ``workload`` at all, if so."""
    if hasattr(workload, "missing"):  # a peer's, which comes from no commit
        why = workload.missing
        return Outcome(workload.name, "not applicable", why) if why else None
    name = configuration.load().name
    try:
        kernel = find_kernel(importlib.import_module(name), workload.kernel)
    except Exception as error:  # a broken commit may raise anything on import
        return Outcome(workload.name, "import failed", f"import {name}: {first_line(error)}")
    if kernel is None:
        return Outcome(workload.name, "not applicable", f"{name} has no {workload.kernel}")
    if workload.needs:
        known = inspect.signature(kernel).parameters
        for argument in workload.needs:
            if argument not in known:
                why = f"{name}.{workload.kernel} has no argument {argument}"
                return Outcome(workload.name, "not applicable", why)
    return None


def measure(
    gpu: Gpu,
    workload: Workload,
    *,
    torch_device: str = "cuda",
    methods: Sequence[Method] = latency.METHODS,
    limits: Limits | None = None,
) -> Outcome:
    """Check, time and check again. Never raises for what the measured code does."""
    if (absent := missing(workload)) is not None:
        return absent
    try:
        return _measure(gpu, workload, torch_device, methods, limits)
    except Exception as error:  # the code under test may raise anything
        return failure(workload.name, error)
    finally:
        gc.collect()


def failure(name: str, error: Exception) -> Outcome:
    """The outcome of a workload whose measuring raised ``error``."""
    return Outcome(name, status_of(error), first_line(error))


def status_of(error: Exception) -> Status:
    """What an exception of the measured code, or of a library that reads the card, means for its
    workload."""
    text = str(error).lower()
    if isinstance(error, DeviceLostError):
        return "device lost"
    if isinstance(error, OutOfMemoryError) or "out of memory" in text:
        return "out of memory"
    if isinstance(error, accuracy.WrongAnswerError):
        return "wrong answer"
    if isinstance(error, NotImplementedError):
        return "not applicable"
    if isinstance(error, TypeError) and "unexpected keyword argument" in text:
        return "not applicable"  # the commit's kernel has no such option yet
    return "device lost" if says_lost(text) or _context_is_gone() else "failed"


def _context_is_gone() -> bool:
    """Whether the error before this was one that a context does not survive, whatever it said: then
    all that is asked of it fails alike."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def first_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {text}"[:300]


def _measure(
    gpu: Gpu,
    workload: Workload,
    torch_device: str,
    methods: Sequence[Method],
    limits: Limits | None,
) -> Outcome:
    inputs = workload.inputs(torch_device, seed=0)
    output = workload.call(inputs)
    before = accuracy.check(workload, inputs, output) if workload.has_reference else math.nan
    del output

    def call() -> object:
        return workload.call(inputs)

    taken = {method: latency.measure(gpu, call, method, limits) for method in methods}

    def again() -> float | str:
        if not workload.has_reference:
            return "not checked: the workload has no reference"
        try:
            fresh = workload.inputs(torch_device, seed=1)
            truth = workload.reference(fresh, "float64")
        except Exception as raised:  # it was ready once: most likely it does not fit beside these
            if status_of(raised) == "device lost":
                raise
            return unchecked(raised)
        return accuracy.check(workload, fresh, workload.call(fresh), truth)

    return checked(gpu, workload, call, taken, before, again)


def unchecked(raised: Exception) -> str:
    """What an outcome says whose second check had no fresh inputs or no reference."""
    return f"not checked again after timing: {first_line(raised)}"


def checked(
    gpu: Gpu,
    workload: Workload,
    call: Call,
    taken: Mapping[Method, Latency],
    error_before: float,
    again: Callable[[], float | str] | str,
) -> Outcome:
    """The outcome of latencies whose call was right before, if it still is: ``again`` checks it on
    fresh inputs and gives the error, or is or gives a text why that cannot be done."""
    samples, evidence, notes = timed(gpu, workload, taken)
    if hasattr(gpu, "peak_bytes"):
        samples["peak_bytes"] = (float(gpu.peak_bytes(call)),)
    error_after = again if isinstance(again, str) else again()
    if isinstance(error_after, str):
        notes.append(error_after)
        if not math.isnan(error_before):
            samples["relative_error"] = (error_before,)
    else:
        samples["relative_error"] = (error_before, error_after)
    return Outcome(workload.name, "ok", "; ".join(notes), samples, evidence)


def timed(
    gpu: Gpu, workload: Workload, taken: Mapping[Method, Latency]
) -> tuple[dict[str, tuple[float, ...]], dict[str, Any], list[str]]:
    """Samples, evidence and notes of latencies; ``ValueError`` for one that no hardware reaches."""
    device = devices.identify(gpu.card.name)
    roof = ceilings.roof(gpu.card.name)
    dtype = dtype_of(workload)
    samples: dict[str, tuple[float, ...]] = {}
    evidence: dict[str, Any] = {}
    notes: list[str] = []
    if device is None:
        notes.append(no_datasheet(gpu.card.name, dtype, roof))
    for method, measured in taken.items():
        if device is not None:
            # fp8 is decoded where the hardware has none.
            rate = dtype if device.has(dtype) else "fp16"
            floor_us = device.floor_us(workload.flops, workload.bytes_moved, rate)
            latency.check_floor(measured.us, floor_us, f"{workload.name} {method}")
        samples[f"latency_{method}"] = tuple(sample.us for sample in measured.samples)
        evidence[f"latency_{method}"] = summary(measured)
        notes += [f"{method}: {remark}" for remark in (*measured.remarks, *how_well(measured))]
        if method == "cold" and roof is not None and roof.has(dtype):
            samples["peak_share"] = peak_shares(workload, roof, measured)
        if method == "cold":
            samples["unheld"] = tuple(0.0 if one.held else 100.0 for one in measured.samples)
    return samples, evidence, notes


def call_once(workload: Workload, torch_device: str = "cuda") -> Outcome:
    """One call, neither timed nor checked: what it compiles is on disk afterwards."""
    import torch

    if (absent := missing(workload)) is not None:
        return absent
    try:
        workload.call(workload.inputs(torch_device))
        if torch_device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:  # the code under test may raise anything
        return failure(workload.name, error)
    finally:
        gc.collect()
    return Outcome(workload.name, "ok")


def call_each_once(workloads: Sequence[Workload], processes: int) -> Iterator[Outcome]:
    """Call several workloads once, in forks of this process: it imports torch and Triton for all.

    The measured package is imported by each fork, since an import may ask the driver for something,
    and no fork survives that.

    Args:
        workloads: What to call; what they compile is on disk afterwards.
        processes: How many forks. With fewer than two all is called in this process.

    Yields:
        The outcomes. Of a fork that ends early, what it did not get to has failed.
    """
    if processes < 2:
        yield from map(call_once, workloads)
        return
    for tool in ("torch", "triton"):
        with contextlib.suppress(ImportError):  # a workload that needs it says so
            importlib.import_module(tool)
    forks = []
    for first in range(min(processes, len(workloads))):
        share = workloads[first::processes]
        forks.append((share, *_forked(share)))
    for share, pid, answers in forks:
        left = [one.name for one in share]
        with answers:
            for line in answers:
                outcome = Outcome.from_json(json.loads(line))
                left.remove(outcome.workload)
                yield outcome
        os.waitpid(pid, 0)
        yield from (Outcome(name, "failed", "the compiling process ended") for name in left)


def _forked(workloads: Sequence[Workload]) -> tuple[int, TextIO]:
    """The number of a fork that calls ``workloads``, and where its answers come from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, os.fdopen(reading, encoding="utf-8")
    try:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as answers:
            for one in workloads:
                answers.write(json.dumps(call_once(one).to_json()) + "\n")
                answers.flush()
    finally:
        os._exit(0)


def dtype_of(workload: Workload) -> str:
    """The dtype whose peak counts: fp32 inputs are multiplied as tf32 where that is asked for."""
    return "tf32" if getattr(workload, "tf32", False) else workload.dtype


def no_datasheet(card: str, dtype: str, roof: devices.Roof | None) -> str:
    """What an unknown card's outcomes say of their shares."""
    if roof is None or not roof.has(dtype):
        return f"no datasheet of {card!r}: no share of a peak, no floor"
    return (
        f"no datasheet of {card!r}: share of a measured ceiling of {roof.peak(dtype):.0f} TFLOP/s, "
        "no floor"
    )


def how_well(measured: Latency) -> tuple[str, ...]:
    """How well the median is known, where that is less well than any sampling aims at; nothing of
    who is far behind and has but a few samples on purpose."""
    low, high = measured.interval_us
    half = (high - low) / 2 / measured.us
    if half <= Limits().target or any(note.startswith(FAR_BEHIND_NOTE) for note in measured.notes):
        return ()
    return (f"known to ±{100 * half:.2f} %",)


def peak_shares(workload: Workload, device: devices.Roof, measured: Latency) -> tuple[float, ...]:
    """Percent of the peak at each sample's own clock; at the roof's where that is unknown."""
    return tuple(
        100
        * workload.flops
        / sample.us
        / 1e6
        / device.peak(
            dtype_of(workload), clock_ghz=sample.mhz / 1000 if sample.mhz is not None else None
        )
        for sample in measured.samples
    )


def summary(measured: Latency) -> dict[str, Any]:
    """What is kept beside a latency: how it was reached and the state of the card."""
    return {
        "us": measured.us,
        "interval_us": measured.interval_us,
        "spread": measured.spread,
        "mhz": measured.mhz,
        "timed_out": measured.timed_out,
        "throttled": measured.throttled,
        "unstable": measured.unstable,
        "notes": measured.notes,
        "samples": [asdict(sample) for sample in measured.samples],
        "set_apart": [asdict(sample) for sample in measured.set_apart],
    }
