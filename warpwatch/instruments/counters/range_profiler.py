"""Hardware counters of calls within a living process, through CUPTI's range profiler.

``ncu`` starts a process of its own and profiles kernel by kernel; here one *range* of the driver
stands around one call, whatever kernels it launches, in the process that also times it. Nothing is
replayed: the metrics take one pass on every card from Turing to Blackwell. Clocks are left alone,
as under ``ncu --clock-control none``.

Time first, count afterwards: once something was counted, the host may launch kernels more slowly,
even after :meth:`RangeProfiler.close`. Within ``torch.profiler`` kernels count a little more than
they do alone, and nothing says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable
from typing import Any

from warpwatch.instruments.method import method_hash

from . import cupti
from .ncu import CountersRefusedError

# No duration: that of a range holds the gaps in which the GPU waits for the host. The SM that was
# active longest tells how long the kernels took: it has all their waves and the longest tail. It is
# the counter of the average, so it takes no further pass.
METRICS = {
    "sm__cycles_active.avg": "sm_cycles",
    "sm__cycles_active.max": "kernel_cycles",
    "smsp__inst_executed.sum": "instructions",
    "dram__bytes.sum": "dram_bytes",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe",
}
UNREAD = "CUPTI gave no number for "
REFUSED = "no counters: "  # begins what an outcome says that has none

Do = Callable[[], object]
Image = ctypes.Array[ctypes.c_char]


class RangeProfiler:
    """Counts calls on the current CUDA context until it is closed.

    Example:
        >>> profiler = RangeProfiler()
        >>> profiler.count(lambda: a @ b, repeats=3, before=clear_caches)[0]["dram_bytes"]
        173527296.0
        >>> profiler.close()
    """

    def __init__(self, library: cupti.Cupti | None = None, driver: Any = None) -> None:
        """Enable the profiler on the current context.

        Args:
            library: CUPTI, loaded; looked for if left out.
            driver: ``libcuda.so.1``, loaded; looked for if left out.

        Raises:
            CountersRefusedError: No CUPTI, or one that refuses; the message says what would help.
        """
        self._names = (ctypes.c_char_p * len(METRICS))(*(name.encode() for name in METRICS))
        self._undo: list[Callable[[], object]] = []
        self._driver = driver or _driver()
        context, device = _current(self._driver)
        self._ask = (library or cupti.load()).call
        try:
            self._enable(context, device)
        except BaseException:
            self.close()
            raise

    def _enable(self, context: int, device: int) -> None:
        ask = self._ask
        ask("cuptiProfilerInitialize")
        self._undo.append(lambda: ask("cuptiProfilerDeInitialize"))
        chip = ask("cuptiDeviceGetChipName", deviceIndex=device).pChipName
        # Which counters the card has is left to CUPTI: asking the card changes no value.
        self._host = ask(
            "cuptiProfilerHostInitialize", profilerType=cupti.RANGE_PROFILER, pChipName=chip
        ).pHostObject
        host = {"pHostObject": self._host}
        self._undo.append(lambda: ask("cuptiProfilerHostDeinitialize", **host))
        self._config = self._configuration(host)
        self._profiler = ask("cuptiRangeProfilerEnable", ctx=context).pRangeProfilerObject
        self._undo.append(lambda: self._range("Disable"))

    def _configuration(self, host: dict[str, Any]) -> Image:
        """The image that schedules the metrics."""
        names = {"ppMetricNames": self._names, "numMetrics": len(METRICS)}
        self._ask("cuptiProfilerHostConfigAddMetrics", **host, **names)
        size = self._ask("cuptiProfilerHostGetConfigImageSize", **host).configImageSize
        image = ctypes.create_string_buffer(size)
        where = {"configImageSize": size, "pConfigImage": ctypes.addressof(image)}
        self._ask("cuptiProfilerHostGetConfigImage", **host, **where)
        return image

    def _range(self, what: str, **fields: Any) -> Any:
        name = f"cuptiRangeProfiler{what}"
        return self._ask(name, pRangeProfilerObject=self._profiler, **fields)

    def close(self) -> None:
        """Give everything back, in the reverse order; a second call does nothing.

        Every part is given back even if one refuses. What went wrong is not told: the process is
        no worse off than before, and an error would hide the one that led here.
        """
        while self._undo:
            _quietly(self._undo.pop())

    def count(self, call: Do, repeats: int, before: Do | None = None) -> list[dict[str, float]]:
        """Count ``call`` so many times.

        It is called once more before, and that is dropped: the first call of a session finds its
        code in no cache, whatever ran before. A short matmul took 4288 cycles, then 2987.

        Args:
            call: Launches the kernels that are counted together.
            repeats: How many ranges; each is one call.
            before: Called outside of each range, such as what clears the caches.

        Returns:
            The values by the names in :data:`METRICS`, one dictionary for each repeat.

        Raises:
            CountersRefusedError: CUPTI refused, or lost a range.
            RuntimeError: The device failed.
            BaseException: Whatever ``call`` and ``before`` raise; the profiler stays usable.

        Example:
            >>> [one["instructions"] for one in profiler.count(lambda: a @ b, 2)]
            [2359296.0, 2359296.0]
        """
        ranges = repeats + 1
        image = self._arm(ranges)
        self._range("Start")
        try:
            for number in range(ranges):
                if before is not None:
                    before()
                self._wait()
                self._count_one(str(number), call)
        except BaseException:
            _quietly(lambda: self._range("Stop"))
            raise
        if not self._range("Stop").isAllPassSubmitted:
            raise CountersRefusedError("the metrics take more than one pass on this card")
        if dropped := self._range("DecodeData").numOfRangeDropped:
            raise CountersRefusedError(f"CUPTI dropped {dropped} of {ranges} ranges")
        return self._values(image, ranges)[1:]

    def _count_one(self, name: str, call: Do) -> None:
        self._range("PushRange", pRangeName=name.encode())
        try:
            call()
            self._wait()
        except BaseException:
            _quietly(lambda: self._range("PopRange"))
            raise
        self._range("PopRange")

    def _wait(self) -> None:
        if failed := self._driver.cuCtxSynchronize():
            raise RuntimeError(f"CUDA error {failed}: the device failed at the counted call")

    def _arm(self, ranges: int) -> Image:
        """An empty image for so many ranges, set as what is written next."""
        size = self._range(
            "GetCounterDataSize",
            pMetricNames=self._names,
            numMetrics=len(METRICS),
            maxNumOfRanges=ranges,
            maxNumRangeTreeNodes=ranges,
        ).counterDataSize
        image = ctypes.create_string_buffer(size)
        where = ctypes.addressof(image)
        self._range("CounterDataImageInitialize", counterDataSize=size, pCounterData=where)
        self._range(
            "SetConfig",
            configSize=len(self._config),
            pConfig=ctypes.addressof(self._config),
            counterDataImageSize=size,
            pCounterDataImage=where,
            range=cupti.USER_RANGE,
            replayMode=cupti.USER_REPLAY,
            maxRangesPerPass=ranges,
            numNestingLevels=1,
            minNestingLevel=1,
            targetNestingLevel=1,
        )
        return image

    def _values(self, image: Image, expected: int) -> list[dict[str, float]]:
        """Every range's values, in the order of the ranges' numbers."""
        data = {"pCounterDataImage": ctypes.addressof(image), "counterDataImageSize": len(image)}
        ranges = int(self._ask("cuptiRangeProfilerGetCounterDataInfo", **data).numTotalRanges)
        if ranges != expected:
            raise CountersRefusedError(f"CUPTI kept {ranges} of {expected} ranges")
        found: dict[int, dict[str, float]] = {}
        for index in range(ranges):
            at = {**data, "rangeIndex": index}
            info = self._ask("cuptiRangeProfilerCounterDataGetRangeInfo", **at, rangeDelimiter=b"/")
            values = (ctypes.c_double * len(METRICS))()
            self._ask(
                "cuptiProfilerHostEvaluateToGpuValues",
                **at,
                pHostObject=self._host,
                ppMetricNames=self._names,
                numMetrics=len(METRICS),
                pMetricValues=values,
            )
            found[int(info.rangeName)] = dict(zip(METRICS.values(), values, strict=True))
        return [found[number] for number in range(ranges)]


def read(
    profiler: RangeProfiler, call: Do, before: Do | None, repeats: int = 3
) -> dict[str, tuple[float, ...]]:
    """Read the counters of a call as samples.

    Args:
        profiler: Open on the context that the call runs in.
        call: Launches the kernels that are counted together.
        before: Called before each call and not counted, such as what clears the caches.
        repeats: How many calls; each is one sample.

    Returns:
        Samples of ``sm_cycles``, ``kernel_cycles``, ``instructions``, ``dram_bytes`` and
        ``tensor_pipe`` (percent).

    Raises:
        CountersRefusedError: CUPTI refused, or a metric has no number.
        ValueError: The call launched no kernel.
        RuntimeError: The device failed.
        BaseException: Whatever ``call`` and ``before`` raise.

    Example:
        >>> read(RangeProfiler(), lambda: a @ b, None)["instructions"]
        (2359296.0, 2359296.0, 2359296.0)
    """
    counted = profiler.count(call, repeats, before)
    samples = {name: tuple(one[name] for one in counted) for name in METRICS.values()}
    if 0 in samples["instructions"]:
        raise ValueError("the call launched no kernel")  # other calls have counters
    unread = [name for name, row in samples.items() if not all(map(math.isfinite, row))]
    if unread:
        raise CountersRefusedError(f"{UNREAD}{' '.join(unread)}")
    return samples


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


METHOD_VERSION = "cupti-" + method_hash(__file__, cupti.__file__)
