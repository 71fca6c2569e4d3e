"""The compiled metrics of one workload on one target."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from warpwatch import devices
from warpwatch.config import metrics
from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.formats.recording import HarnessError, Recording

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

    from .reading import Reading

Status = Literal["ok", "compile failed", "not applicable", "import failed", "not measured"]


@dataclass(frozen=True)
class Measurement:
    """Values by metric name (NaN where a metric does not apply) and what explains them. ``code``
    holds the compressed listing of each kernel's machine code by the hash of the code.

    *Compile failed* is said of the code under test: a kernel or its host code. *Not measured* is
    said of the instrument: it failed, or does not answer what host code asked, or gave up waiting.
    """

    workload: str
    target: str
    status: Status
    detail: str
    values: Mapping[str, float]
    evidence: Mapping[str, object] = field(default_factory=dict)
    code: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def without_values(cls, workload: str, target: str, status: Status, detail: str) -> Measurement:
        """One that only says why there are no values."""
        values = dict.fromkeys((metric.name for metric in metrics.COMPILED), math.nan)
        if status == "compile failed":
            values["compile_failures"] = 1.0
        return cls(workload, target, status, detail, values)


class _UnavailableError(Exception):
    """The measured package cannot run this at all."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status: Status = status


def measure(workload: Workload, target: Target) -> Measurement:
    """Record one call of ``workload`` on ``target`` and read its code. Never raises for what the
    measured package does: the status says what went wrong."""

    def inputs() -> Any:
        package = _import_package(workload)
        try:
            return workload.inputs("cpu", values="none")
        except Exception as error:
            if _passes_through(error, package):
                raise
            raise HarnessError(f"inputs of {workload.name}: {_one_line(error)}") from error

    return _record(workload.name, target, workload.call, inputs)


def measure_call(
    name: str, target: Target, *, arguments: str = "", backward: bool = False
) -> Measurement:
    """The same for anyone's function, ``package.module:callable``: see :mod:`.callables`."""
    from warpwatch.instruments.compiled.record import callables

    def inputs() -> Any:
        try:
            return callables.prepare(name, arguments, backward=backward)
        except callables.UsageError as error:
            raise _UnavailableError("not applicable", str(error)) from error

    return _record(name, target, lambda call: call(), inputs)


def _record(
    name: str, target: Target, call: Callable[[Any], Any], inputs: Callable[[], Any]
) -> Measurement:
    from warpwatch.instruments.compiled.record import callables
    from warpwatch.instruments.compiled.record.call import record
    from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

    theirs: list[BaseException] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:
                theirs.append(error)
                raise

        return watching

    try:
        return _measured(name, target, record(watched(call), target, inputs=watched(inputs)))
    except _UnavailableError as error:
        return Measurement.without_values(name, target.name, error.status, str(error))
    except callables.UsageError as error:
        return Measurement.without_values(name, target.name, "not applicable", str(error))
    except torch_cuda.NotAnsweredError as error:
        return Measurement.without_values(name, target.name, "not measured", _one_line(error))
    except (Exception, SystemExit) as error:  # the code under test may raise anything
        if error in theirs and not isinstance(error, HarnessError | MemoryError):
            return _raised(name, target, error)
        # Loud, and never the kernel's fault.
        traceback.print_exc(file=sys.stderr)
        detail = f"harness error: {_one_line(error)}"[:300]
        return Measurement.without_values(name, target.name, "not measured", detail)


def _one_line(error: BaseException) -> str:
    text = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {text}"[:300]


def _passes_through(error: BaseException, package: str) -> bool:
    """Whether code of ``package`` was at work when ``error`` was raised."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    return any(name == package or name.startswith(f"{package}.") for name in names)


def _raised(name: str, target: Target, error: BaseException) -> Measurement:
    detail = _one_line(error)
    unknown_option = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    missing = isinstance(error, NotImplementedError) or unknown_option
    status: Status = "not applicable" if missing else "compile failed"
    return Measurement.without_values(name, target.name, status, detail)


def _measured(name: str, target: Target, recording: Recording) -> Measurement:
    from warpwatch.instruments.compiled.machine_code import identity

    from . import packing, reading

    readings = reading.read(recording.launches)
    values = summarize(recording, readings)
    explained: dict[str, object] = {
        "launches": [one.evidence() for one in readings],
        "torch_ops": [
            {
                "name": op.name,
                "launches": op.launches,
                "bytes_moved": op.bytes_moved,
                "copied_bytes": op.copied_bytes,
            }
            for op in recording.torch_ops
        ],
        "failures": [
            {"kernel": one.kernel, "stage": one.stage, "error": one.error}
            for one in recording.failures
        ],
        "notes": list(recording.notes),
    }
    code = {
        key: packing.pack(identity.listing(one.code.program))
        for key, one in reading.by_kernel(readings).items()
    }
    full = {metric.name: float(values.get(metric.name, math.nan)) for metric in metrics.COMPILED}
    status: Status = "compile failed" if recording.failures else "ok"
    detail = "".join(f"{first.kernel}: {first.error}" for first in recording.failures[:1])
    return Measurement(name, target.name, status, detail, full, explained, code)


def _import_package(workload: Workload) -> str:
    """Import the measured package, under the recording driver: what it decides at its import, it
    decides for the target."""
    import importlib

    from warpwatch.config import package as configuration
    from warpwatch.workload.kernel import find_kernel

    name = configuration.load().name
    try:
        package: Any = importlib.import_module(name)
    except Exception as error:  # a broken commit may raise anything on import
        raise _UnavailableError("import failed", f"import {name}: {_one_line(error)}"[:300]) from (
            error
        )
    if find_kernel(package, workload.kernel) is None:
        raise _UnavailableError("not applicable", f"{name} has no {workload.kernel}")
    return name


def summarize(recording: Recording, readings: tuple[Reading, ...]) -> dict[str, float]:
    """The metrics of one call. Where a call launches several kernels: sums of what adds up; the
    worst level of those that multiply matrices; what belongs to one kernel (registers, blocks)
    from the launch whose bound is longest. A call with failures has only its failures: the rest
    would look better for what is missing."""
    if recording.failures:
        return {"compile_failures": len(recording.failures)}
    device = devices.load(recording.target.device)
    moved = sum(op.bytes_moved for op in recording.torch_ops)
    moved_us = moved / (device.kernel_bandwidth_gbps * 1e3)
    values: dict[str, float] = {
        "compile_failures": 0,
        "launches": len(recording.launches) + sum(op.launches for op in recording.torch_ops),
        "copied_bytes": sum(op.copied_bytes for op in recording.torch_ops),
        "bound_us": sum(one.bound.us for one in readings) + moved_us,
    }
    if not readings:
        return values
    longest = max(readings, key=lambda one: one.bound.us)
    kernels = {one.code.hash: one for one in readings}.values()
    multiplying = [one.code for one in readings if one.multiplies]
    values |= {
        "spilled_bytes": sum(one.code.spilled_bytes for one in kernels),
        "advisories": sum(len(one.code.advisories) for one in kernels),
        "tensor_core_level": min((code.tensor_level for code in multiplying), default=0),
        "blocks_in_flight": longest.occupancy.blocks,
        "registers": longest.code.registers,
        "shared_bytes": longest.launch.kernel.shared_bytes,
        "code_bytes": sum(one.code.code_bytes for one in kernels),
        "compile_seconds": sum(one.launch.kernel.compile_seconds for one in kernels),
    }
    if multiplying:
        values["async_copy_level"] = min(code.async_copy_level for code in multiplying)
        tensor_us = sum(one.bound.tensor_us for one in readings)
        active_us = sum(one.bound.active_us for one in readings) + moved_us
        values["bound_utilization"] = 100 * tensor_us / active_us
    return values
