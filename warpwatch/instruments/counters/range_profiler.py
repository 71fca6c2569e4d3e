"""Hardware counters of calls within a living process, through CUPTI's range profiler.

``ncu`` starts a process of its own and profiles kernel by kernel; here one *range* of the driver
stands around one call, whatever kernels it launches, in the process that also times it. Nothing is
replayed behind the caller's back: what needs several passes is called once a pass. Clocks are left
alone, as under ``ncu --clock-control none``.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.method import method_hash
from warpwatch.instruments.outcome import Outcome

from . import cupti, ncu
from .ncu import CountersRefusedError

if TYPE_CHECKING:
    from types import TracebackType

    from warpwatch.workload.base import Workload

METRICS = tuple(ncu.COLUMNS)
REFUSED = "no counters in this process: "
UNREAD = "CUPTI gave no number for "
CALL = "(whole call)"  # where ncu's evidence has the name of a kernel

Do = Callable[[], object]


class RangeProfiler:
    """Counts calls on the current CUDA context until it is closed.

    Example:
        >>> with RangeProfiler(METRICS) as profiler:
        ...     counted = profiler.count(lambda: a @ b, repeats=10, before=clear_caches)
        >>> counted[0]["dram__bytes.sum"]
        100663296.0
    """

    range, replay = cupti.USER_RANGE, cupti.USER_REPLAY

    def __init__(
        self, metrics: Sequence[str] = METRICS, library: Any = None, driver: Any = None
    ) -> None:
        """Enable the profiler on the current context and schedule ``metrics``.

        Args:
            metrics: Names as ``ncu --metrics`` has them.
            library: CUPTI, loaded; looked for if left out.
            driver: ``libcuda.so.1``, loaded; looked for if left out.

        Raises:
            CountersRefusedError: No CUPTI, or one that refuses; the message says what would help.
        """
        self.metrics = tuple(metrics)
        self._names = (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))
        self._undo: list[Callable[[], object]] = []
        self._cupti = cupti.Cupti(*(cupti.load() if library is None else (library, "given")))
        self._context, device = _current(driver or _driver())
        try:
            self._enable(device)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """Where the library lies."""
        return self._cupti.path

    @property
    def version(self) -> int:
        """CUPTI's version, such as 130001."""
        return self._cupti.version

    def _enable(self, device: int) -> None:
        ask = self._cupti.call
        ask("cuptiProfilerInitialize")
        self._undo.append(lambda: ask("cuptiProfilerDeInitialize"))
        name = ask("cuptiDeviceGetChipName", deviceIndex=device).pChipName
        self.chip = name.decode()
        available = self._available()
        self._host = ask(
            "cuptiProfilerHostInitialize",
            profilerType=cupti.RANGE_PROFILER,
            pChipName=name,
            pCounterAvailabilityImage=ctypes.addressof(available) if available else None,
        ).pHostObject
        self._undo.append(lambda: ask("cuptiProfilerHostDeinitialize", pHostObject=self._host))
        self._config = self._configuration()
        self.passes = int(
            ask(
                "cuptiProfilerHostGetNumOfPasses",
                configImageSize=len(self._config),
                pConfigImage=ctypes.addressof(self._config),
            ).numOfPasses
        )
        self._profiler = ask("cuptiRangeProfilerEnable", ctx=self._context).pRangeProfilerObject
        self._undo.append(lambda: self._ask("Disable"))

    def _available(self) -> ctypes.Array[ctypes.c_char] | None:
        """Which counters this card lets us read; asking needs the right to read them."""
        ask = "cuptiProfilerGetCounterAvailability"
        size = self._cupti.call(ask, ctx=self._context).counterAvailabilityImageSize
        image = ctypes.create_string_buffer(size)
        self._cupti.call(
            ask,
            ctx=self._context,
            counterAvailabilityImageSize=size,
            pCounterAvailabilityImage=ctypes.addressof(image),
        )
        return image

    def _configuration(self) -> ctypes.Array[ctypes.c_char]:
        """The image that schedules the metrics."""
        ask, host = self._cupti.call, self._host
        ask(
            "cuptiProfilerHostConfigAddMetrics",
            pHostObject=host,
            ppMetricNames=self._names,
            numMetrics=len(self._names),
        )
        size = ask("cuptiProfilerHostGetConfigImageSize", pHostObject=host).configImageSize
        image = ctypes.create_string_buffer(size)
        ask(
            "cuptiProfilerHostGetConfigImage",
            pHostObject=host,
            configImageSize=size,
            pConfigImage=ctypes.addressof(image),
        )
        return image

    def _ask(self, what: str, **fields: Any) -> Any:
        name = f"cuptiRangeProfiler{what}"
        return self._cupti.call(name, pRangeProfilerObject=self._profiler, **fields)

    def __enter__(self) -> RangeProfiler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give everything back, in the reverse order; a second call does nothing.

        Every part is given back even if one refuses. What went wrong is not told: the process is
        no worse off than before, and an error would hide the one that led here.
        """
        while self._undo:
            _quietly(self._undo.pop())

    def count(
        self,
        call: Do,
        repeats: int,
        before: Do | None = None,
        synchronize: Do | None = None,
    ) -> list[dict[str, float]]:
        """Count ``call`` so many times.

        Args:
            call: Launches the kernels that are counted together.
            repeats: How many ranges; each is one call in each pass.
            before: Called outside of each range, such as what clears the caches.
            synchronize: Waits for the device; torch's if left out.

        Returns:
            The metrics' values by name, one dictionary for each repeat.

        Raises:
            CountersRefusedError: CUPTI refused, or lost a range.
        """
        if synchronize is None:
            import torch

            synchronize = torch.cuda.synchronize
        image = self._arm(repeats)
        for _ in range(self.passes):
            self._ask("Start")
            try:
                for repeat in range(repeats):
                    if before is not None:
                        before()
                    synchronize()
                    self._in_range(str(repeat), call, synchronize)
            except BaseException:
                _quietly(lambda: self._ask("Stop"))
                raise
            done = bool(self._ask("Stop").isAllPassSubmitted)
        if not done:
            raise CountersRefusedError(f"CUPTI wants more than the {self.passes} passes it named")
        if dropped := self._ask("DecodeData").numOfRangeDropped:
            raise CountersRefusedError(f"CUPTI dropped {dropped} of {repeats} ranges")
        return self._read(image, repeats)

    def _in_range(self, name: str, call: Do, synchronize: Do) -> None:
        self._ask("PushRange", pRangeName=name.encode())
        try:
            call()
            synchronize()
        except BaseException:
            _quietly(lambda: self._ask("PopRange"))
            raise
        self._ask("PopRange")

    def _arm(self, ranges: int) -> ctypes.Array[ctypes.c_char]:
        """An empty image for so many ranges, set as what is written next."""
        size = self._ask(
            "GetCounterDataSize",
            pMetricNames=self._names,
            numMetrics=len(self._names),
            maxNumOfRanges=ranges,
            maxNumRangeTreeNodes=ranges,
        ).counterDataSize
        image = ctypes.create_string_buffer(size)
        where = ctypes.addressof(image)
        self._ask("CounterDataImageInitialize", counterDataSize=size, pCounterData=where)
        self._ask(
            "SetConfig",
            configSize=len(self._config),
            pConfig=ctypes.addressof(self._config),
            counterDataImageSize=size,
            pCounterDataImage=where,
            range=self.range,
            replayMode=self.replay,
            maxRangesPerPass=ranges,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=0,
            targetNestingLevel=1,
        )
        return image

    def _read(
        self, image: ctypes.Array[ctypes.c_char], expected: int | None
    ) -> list[dict[str, float]]:
        """Every range's values, in the order of the ranges' numbers."""
        ask = self._cupti.call
        data = {"pCounterDataImage": ctypes.addressof(image), "counterDataImageSize": len(image)}
        ranges = int(ask("cuptiRangeProfilerGetCounterDataInfo", **data).numTotalRanges)
        if expected is not None and ranges != expected:
            raise CountersRefusedError(f"CUPTI kept {ranges} of {expected} ranges")
        found: dict[int, dict[str, float]] = {}
        for index in range(ranges):
            info = ask(
                "cuptiRangeProfilerCounterDataGetRangeInfo",
                **data,
                rangeIndex=index,
                rangeDelimiter=b"/",
            )
            values = (ctypes.c_double * len(self.metrics))()
            ask(
                "cuptiProfilerHostEvaluateToGpuValues",
                **data,
                pHostObject=self._host,
                rangeIndex=index,
                ppMetricNames=self._names,
                numMetrics=len(self._names),
                pMetricValues=values,
            )
            found[int(info.rangeName)] = dict(zip(self.metrics, values, strict=True))
        return [found[number] for number in sorted(found)]


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CountersRefusedError(f"no NVIDIA driver: {error}") from None


def _current(driver: Any) -> tuple[int, int]:
    """The current context and its device's number."""
    context, device = ctypes.c_void_p(), ctypes.c_int()
    if driver.cuCtxGetCurrent(ctypes.pointer(context)) or not context.value:
        raise CountersRefusedError(
            "no CUDA context is current: use the device first, as torch.zeros(1, device='cuda')"
        )
    driver.cuCtxGetDevice(ctypes.pointer(device))
    return int(context.value), int(device.value)


def _quietly(do: Callable[[], object]) -> None:
    """Clean up while an error is under way that must not be hidden."""
    with contextlib.suppress(CountersRefusedError):
        do()


def count_in_process(
    workload: Workload,
    repeats: int,
    clear_caches: Do | None = None,
    profiler: Callable[[], RangeProfiler] = RangeProfiler,
) -> Outcome:
    """Count a workload's call here, in the form of :func:`ncu.combine`.

    Args:
        workload: What is called; its inputs are made before.
        repeats: How many calls; each is one sample.
        clear_caches: Called before each call; left out, that of :class:`TorchGpu`.
        profiler: Makes the profiler.

    Returns:
        The samples ``sm_cycles``, ``instructions``, ``dram_bytes`` and ``tensor_pipe``; evidence
        ``calls`` has one entry for each call. Where no counters are to be had, the detail begins
        with :data:`REFUSED`.

    Raises:
        Nothing: whatever the workload or CUPTI raises is an outcome.

    Example:
        >>> count_in_process(workload, 3).samples["instructions"]
        (2359296.0, 2359296.0, 2359296.0)
    """
    import torch

    if (absent := measuring.missing(workload)) is not None:
        return absent
    try:
        if clear_caches is None:
            from warpwatch.instruments.gpu.card.through_torch import TorchGpu

            clear_caches = TorchGpu().clear_caches
        inputs = workload.inputs("cuda", seed=0)
        workload.call(inputs)  # compiles
        clear_caches()
        torch.cuda.synchronize()
        with profiler() as counting:
            counted = counting.count(lambda: workload.call(inputs), repeats, clear_caches)
    except CountersRefusedError as refused:
        return Outcome(workload.name, "failed", f"{REFUSED}{refused}"[:300])
    except Exception as error:  # the code under test may raise anything
        return measuring.failure(workload.name, error)
    calls = [
        [ncu.KernelCounters(CALL, **{ncu.COLUMNS[name]: value for name, value in one.items()})]
        for one in counted
    ]
    unread = sorted({name for one in counted for name in one if not math.isfinite(one[name])})
    if unread:
        return Outcome(workload.name, "failed", f"{UNREAD}{' '.join(unread)}")
    evidence = [[asdict(launch) for launch in call] for call in calls]
    return Outcome(workload.name, "ok", "", ncu.of_calls(calls), {"calls": evidence})


METHOD_VERSION = "cupti-" + method_hash(__file__, cupti.__file__, ncu.__file__)
