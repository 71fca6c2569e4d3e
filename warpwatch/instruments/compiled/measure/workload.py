"""The compiled metrics of one workload on one target."""

from __future__ import annotations

import hashlib
import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from warpwatch.config import metrics
from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.formats import errors
from warpwatch.instruments.compiled.formats.recording import (
    Argument,
    DescriptorArgument,
    HarnessError,
    Launch,
    Recording,
    TensorArgument,
)

from .summary import of_torch, spaces_of, summarize

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

# How the detail begins of what only the user of the harness can mend.
MISTAKE = "mistake in the workload"
_INDUCTOR = (
    "torch.compile: Inductor generates no code for this without a card ({}): "
    "name the function as it was before torch.compile, or measure it on a card"
)
_ALIGNMENT = 16  # what Triton specialises for
Status = Literal[
    "ok", "compile failed", "call failed", "not applicable", "import failed", "not measured"
]
_ALARMS: tuple[Status, ...] = ("compile failed", "call failed")


@dataclass(frozen=True)
class Measurement:
    """Values by metric name (NaN where a metric does not apply) and what explains them. ``code``
    holds the compressed listing of each kernel's machine code by the hash of the code.

    *Compile failed* is said of a kernel under test, *call failed* of its host code, which raised.
    *Not measured* is said of the instrument: it failed, or does not answer what host code asked, or
    gave up waiting.
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
        if status in _ALARMS:
            values["compile_failures"] = 1.0
        return cls(workload, target, status, detail, values)


class _UnavailableError(Exception):
    """The measured package cannot run this at all."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status: Status = status


@dataclass(frozen=True)
class Recorded:
    """One call that was recorded. Its code is read later, perhaps with that of others."""

    asked: _Asked
    recording: Recording
    sources: tuple[list[str], ...]

    def read(self) -> Measurement:
        """What its code says. Never raises: the status says what went wrong."""
        try:
            return _measured(self)
        except Exception as error:
            return _not_read(self.asked, error)


def measure(workload: Workload, target: Target) -> Measurement:
    """Record one call of ``workload`` on ``target`` and read its code. Never raises for what the
    measured package does: the status says what went wrong."""
    return read(recorded(workload, target))


def measure_call(
    name: str, target: Target, *, arguments: str = "", backward: bool = False
) -> Measurement:
    """The same for anyone's function, ``package.module:callable``: see :mod:`.callables`."""
    return read(recorded_call(name, target, arguments=arguments, backward=backward))


def read(found: Recorded | Measurement) -> Measurement:
    """What came of a call that was recorded, or could not be."""
    return found.read() if isinstance(found, Recorded) else found


def recorded(workload: Workload, target: Target) -> Recorded | Measurement:
    """The first half of :func:`measure`: the call, or why there is none."""

    def inputs() -> Any:
        package = _import_package(workload)
        try:
            return workload.inputs("cpu", values="none")
        except Exception as error:
            if errors.passes_through(error, package):
                raise
            raise _UnavailableError(
                "not measured", f"{MISTAKE} (inputs): {errors.located(error, package)}"
            ) from error

    return _record(_Asked(workload.name, target, kernel=workload.kernel), workload.call, inputs)


def recorded_call(
    name: str, target: Target, *, arguments: str = "", backward: bool = False
) -> Recorded | Measurement:
    """The same of :func:`measure_call`."""
    from warpwatch.instruments.compiled.record import callables

    def inputs() -> Any:
        try:
            return callables.prepare(name, arguments, backward=backward)
        except callables.UsageError as error:
            raise _UnavailableError("not applicable", str(error)) from error

    return _record(_Asked(name, target, function=name), lambda call: call(), inputs)


@dataclass(frozen=True)
class _Asked:
    """What is measured: a workload, of ``kernel`` below the package, or anyone's ``function``."""

    name: str
    target: Target
    kernel: str = ""
    function: str = ""

    @property
    def package(self) -> tuple[str, str]:
        """The package whose code is under test, and its folder in the repository."""
        from warpwatch.config import package as configuration

        if self.function:
            top = self.function.partition(":")[0].partition(".")[0]
            return top, top
        package = configuration.load()
        return package.name, package.path

    def sources(self, launches: Sequence[Launch]) -> tuple[list[str], ...]:
        """Files of the package: of the kernels and the function, and what those import."""
        from . import origins

        return origins.of(launches, self.entry, *self.package)

    @property
    def entry(self) -> Any:
        """The function of the package that is called, ``None`` where that is not known."""
        from warpwatch.workload.kernel import find_kernel

        name, _ = self.package
        path = self.function.partition(":")[0].removeprefix(name).lstrip(".")
        below = self.kernel or ":".join((path, self.function.partition(":")[2])).strip(":")
        try:
            return find_kernel(sys.modules[name], below) if name in sys.modules and below else None
        except Exception:  # a module may raise anything on import
            return None

    def is_to_blame(self, error: BaseException) -> bool:
        """Whether code under test was at work when ``error`` was raised: the package's, or that of
        the module which its function comes from."""
        modules = {self.package[0], str(getattr(self.entry, "__module__", ""))}
        return any(errors.passes_through(error, one) for one in modules if one)


def _record(
    asked: _Asked, call: Callable[[Any], Any], inputs: Callable[[], Any]
) -> Recorded | Measurement:
    import triton

    from warpwatch.instruments.compiled.record import callables
    from warpwatch.instruments.compiled.record.call import record
    from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

    name, target = asked.name, asked.target
    if mistake := target.mistake(triton.__version__):
        return Measurement.without_values(name, target.name, "not measured", mistake)
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
        recording = record(watched(call), target, inputs=watched(inputs), refuse_host=True)
        return Recorded(asked, recording, asked.sources(recording.launches))
    except _UnavailableError as error:
        return Measurement.without_values(name, target.name, error.status, str(error))
    except callables.UsageError as error:
        return Measurement.without_values(name, target.name, "not applicable", str(error))
    except torch_cuda.NotAnsweredError as error:
        return Measurement.without_values(name, target.name, "not measured", errors.one_line(error))
    except (Exception, SystemExit) as error:  # the code under test may raise anything
        if error in theirs and not isinstance(error, HarnessError | MemoryError):
            return _raised(asked, error)
        return _not_read(asked, error)


def _not_read(asked: _Asked, error: BaseException) -> Measurement:
    """Loud, and never the kernel's fault."""
    traceback.print_exception(error, file=sys.stderr)
    detail = f"harness error: {errors.one_line(error)}"[:300]
    return Measurement.without_values(asked.name, asked.target.name, "not measured", detail)


def _raised(asked: _Asked, error: BaseException) -> Measurement:
    """What an error of a call says: of the code under test, or of the workload that calls it."""
    package, _ = asked.package
    detail = errors.located(error, package)
    status: Status = "call failed"
    if reason := errors.of_inductor(error):
        status, detail = "not measured", _INDUCTOR.format(reason)
    elif others := errors.other_generator(error):
        status, detail = "not measured", others
    elif isinstance(error, NotImplementedError) or errors.is_unknown_option(error, package):
        status = "not applicable"
    elif not asked.function and not asked.is_to_blame(error):
        status = "not applicable" if _is_elsewhere(error, package) else "not measured"
        detail = detail if status == "not applicable" else f"{MISTAKE} (call): {detail}"
    return Measurement.without_values(asked.name, asked.target.name, status, detail[:300])


def _is_elsewhere(error: BaseException, package: str) -> bool:
    """Whether a commit has a function by another name, or with other parameters."""
    if isinstance(error, AttributeError):
        return f"{getattr(error.obj, '__name__', '')}.".startswith(f"{package}.")
    if isinstance(error, ImportError):
        return f"{error.name}.".startswith(f"{package}.")
    return isinstance(error, TypeError) and any(
        words in str(error) for words in ("required positional", "positional argument")
    )


def _measured(found: Recorded) -> Measurement:
    from warpwatch.instruments.compiled.machine_code import identity

    from . import packing, reading

    asked, recording = found.asked, found.recording
    readings = reading.read(recording.launches)
    values = summarize(recording, readings)
    explained: dict[str, object] = {
        "launches": [one.evidence() for one in readings],
        **reading.times(readings),
        **of_torch(recording),
        "failures": [
            {"kernel": one.kernel, "stage": one.stage, "error": one.error}
            for one in recording.failures
        ],
        "notes": list(recording.notes),
        "tuned": [
            {
                "kernel": one.kernel,
                "configurations": list(one.configurations),
                "recorded": one.recorded,
                "why": one.why,
            }
            for one in spaces_of(recording)
        ],
        "arguments": [_digest(one) for one in recording.launches],
        "sources": dict(zip(("own", "imported"), found.sources, strict=True)),
    }
    code = {
        key: packing.pack(identity.listing(one.code.program))
        for key, one in reading.by_kernel(readings).items()
    }
    full = {metric.name: float(values.get(metric.name, math.nan)) for metric in metrics.COMPILED}
    status: Status = "compile failed" if recording.failures else "ok"
    detail = "".join(f"{first.kernel}: {first.error}" for first in recording.failures[:1])
    return Measurement(asked.name, asked.target.name, status, detail, full, explained, code)


def _digest(launch: Launch) -> str:
    """Stands for every argument of a launch: numbers, and tensors with shape, strides, how their
    place is aligned and, where they are known, elements. Places themselves differ by process."""

    def plain(value: Argument) -> object:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        if isinstance(value, DescriptorArgument):
            return plain(value.base), value.shape, value.strides, value.block_shape
        if isinstance(value, TensorArgument):
            elements = None if value.values is None else value.values.tolist()
            place = value.address % _ALIGNMENT
            return value.dtype, value.shape, value.strides, value.nbytes, place, elements
        return repr(value)

    given = [(name, plain(value)) for name, value in sorted(launch.arguments.items())]
    return hashlib.sha256(repr(given).encode()).hexdigest()[:16]


def _import_package(workload: Workload) -> str:
    """Import the measured package, under the recording driver: what it decides at its import, it
    decides for the target."""
    import importlib

    from warpwatch.config import package as configuration
    from warpwatch.workload.kernel import absent, find_kernel

    name = configuration.load().name
    try:
        package: Any = importlib.import_module(name)
        kernel = find_kernel(package, workload.kernel)
    except Exception as error:  # a broken commit may raise anything on import
        raise _UnavailableError(
            "import failed", f"import {name}: {errors.located(error, name)}"[:300]
        ) from (error)
    if kernel is None:
        raise _UnavailableError("not applicable", absent(package, workload.kernel))
    return name
