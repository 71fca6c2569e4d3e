"""A played CUPTI: it keeps each question, holds to the order and counts made-up kernels."""
# ruff: noqa: N802  (functions and fields have CUPTI's own names)

from __future__ import annotations

import ctypes
from typing import Any

from warpwatch.instruments.counters import cupti
from warpwatch.instruments.counters.range_profiler import METRICS

# Made with gcc from NVIDIA's headers (nvidia-cuda-cupti 13.0.85 with the cuda.h of
# nvidia-cuda-runtime 13.0.96; 12.6.80 gives the same): each struct's ..._STRUCT_SIZE, and the
# offsetof of each field but structSize (0) and pPriv (8), with which all begin.
LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    "cuptiProfilerInitialize": (16, {}),
    "cuptiProfilerDeInitialize": (16, {}),
    "cuptiDeviceGetChipName": (32, {"deviceIndex": 16, "pChipName": 24}),
    "cuptiProfilerHostInitialize": (
        48,
        {
            "profilerType": 16,
            "pChipName": 24,
            "pCounterAvailabilityImage": 32,
            "pHostObject": 40,
        },
    ),
    "cuptiProfilerHostDeinitialize": (24, {"pHostObject": 16}),
    "cuptiProfilerHostConfigAddMetrics": (
        40,
        {"pHostObject": 16, "ppMetricNames": 24, "numMetrics": 32},
    ),
    "cuptiProfilerHostGetConfigImageSize": (32, {"pHostObject": 16, "configImageSize": 24}),
    "cuptiProfilerHostGetConfigImage": (
        40,
        {"pHostObject": 16, "configImageSize": 24, "pConfigImage": 32},
    ),
    "cuptiProfilerHostEvaluateToGpuValues": (
        72,
        {
            "pHostObject": 16,
            "pCounterDataImage": 24,
            "counterDataImageSize": 32,
            "rangeIndex": 40,
            "ppMetricNames": 48,
            "numMetrics": 56,
            "pMetricValues": 64,
        },
    ),
    "cuptiRangeProfilerEnable": (32, {"ctx": 16, "pRangeProfilerObject": 24}),
    "cuptiRangeProfilerDisable": (24, {"pRangeProfilerObject": 16}),
    "cuptiRangeProfilerGetCounterDataSize": (
        64,
        {
            "pRangeProfilerObject": 16,
            "pMetricNames": 24,
            "numMetrics": 32,
            "maxNumOfRanges": 40,
            "maxNumRangeTreeNodes": 48,
            "counterDataSize": 56,
        },
    ),
    "cuptiRangeProfilerCounterDataImageInitialize": (
        40,
        {"pRangeProfilerObject": 16, "counterDataSize": 24, "pCounterData": 32},
    ),
    "cuptiRangeProfilerSetConfig": (
        90,
        {
            "pRangeProfilerObject": 16,
            "configSize": 24,
            "pConfig": 32,
            "counterDataImageSize": 40,
            "pCounterDataImage": 48,
            "range": 56,
            "replayMode": 60,
            "maxRangesPerPass": 64,
            "numNestingLevels": 72,
            "minNestingLevel": 74,
            "passIndex": 80,
            "targetNestingLevel": 88,
        },
    ),
    "cuptiRangeProfilerStart": (24, {"pRangeProfilerObject": 16}),
    "cuptiRangeProfilerPushRange": (32, {"pRangeProfilerObject": 16, "pRangeName": 24}),
    "cuptiRangeProfilerPopRange": (24, {"pRangeProfilerObject": 16}),
    "cuptiRangeProfilerStop": (
        41,
        {
            "pRangeProfilerObject": 16,
            "passIndex": 24,
            "targetNestingLevel": 32,
            "isAllPassSubmitted": 40,
        },
    ),
    "cuptiRangeProfilerDecodeData": (32, {"pRangeProfilerObject": 16, "numOfRangeDropped": 24}),
    "cuptiRangeProfilerGetCounterDataInfo": (
        40,
        {"pCounterDataImage": 16, "counterDataImageSize": 24, "numTotalRanges": 32},
    ),
    "cuptiRangeProfilerCounterDataGetRangeInfo": (
        56,
        {
            "pCounterDataImage": 16,
            "counterDataImageSize": 24,
            "rangeIndex": 32,
            "rangeDelimiter": 40,
            "rangeName": 48,
        },
    ),
}
CONTEXT, HOST, PROFILER = 0x7001, 0x7002, 0x7003
CYCLES, LONGEST, INSTRUCTIONS, BYTES, PIPE = METRICS
NAMES = {1: b"CUPTI_ERROR_INVALID_PARAMETER", 35: b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}
OPENING = [
    "ProfilerInitialize",
    "DeviceGetChipName",
    "ProfilerHostInitialize",
    "ProfilerHostConfigAddMetrics",
    "ProfilerHostGetConfigImageSize",
    "ProfilerHostGetConfigImage",
    "RangeProfilerEnable",
]
CLOSING = ["RangeProfilerDisable", "ProfilerHostDeinitialize", "ProfilerDeInitialize"]


class Card:
    """A driver with one device, which works when it is waited for."""

    def __init__(self) -> None:
        self.context: int | None = CONTEXT
        self.failed = 0
        self.queued: list[dict[str, float]] = []
        self.counters = dict.fromkeys(METRICS, 0.0)

    def launch(self, cycles: float = 1000, instructions: float = 64) -> None:
        counted = {CYCLES: cycles, LONGEST: 2 * cycles, INSTRUCTIONS: instructions}
        self.queued.append({**counted, BYTES: 4096, PIPE: 50})

    def cuCtxGetCurrent(self, context: Any) -> int:
        context.contents.value = self.context
        return 0

    def cuCtxGetDevice(self, device: Any) -> int:
        device.contents.value = 3
        return 0

    def cuCtxSynchronize(self) -> int:
        for work in self.queued:
            for name, count in work.items():
                self.counters[name] += count
        self.queued.clear()
        return self.failed


class Library:
    """Plays CUPTI on a :class:`Card`: it refuses what comes out of order, and counts in ranges."""

    def __init__(self, card: Card, lacking: str = "") -> None:
        self.card, self.lacking = card, lacking
        self.asked: list[str] = []
        self.fields: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, int] = {}
        self.passes, self.dropped, self.lost = 1, 0, 0
        self.unread: set[str] = set()
        self.state = "stopped"
        self.begun: tuple[bytes, dict[str, float]] = (b"", {})
        self.ranges: list[tuple[bytes, dict[str, float]]] = []

    def __getattr__(self, function: str) -> Any:
        if function not in cupti.FUNCTIONS or function == self.lacking:
            raise AttributeError(function)
        name = function.removeprefix("cupti")

        def play(pointer: Any) -> int:
            params = pointer.contents
            assert params.structSize == LAYOUTS[function][0]
            self.asked.append(name)
            self.fields[name] = {one: getattr(params, one) for one in LAYOUTS[function][1]}
            if error := self.errors.get(name, 0):
                return error
            return int(getattr(self, f"_{name}", lambda _: None)(params) or 0)

        return play

    def cuptiGetResultString(self, result: int, text: Any) -> int:
        if result not in NAMES:
            return 1
        text.contents.value = NAMES[result]
        return 0

    def _become(self, state: str, *, only: str) -> int:
        if self.state != only:
            return 7
        self.state = state
        return 0

    def _DeviceGetChipName(self, params: Any) -> None:
        params.pChipName = b"GH100"

    def _ProfilerHostInitialize(self, params: Any) -> None:
        params.pHostObject = HOST

    def _ProfilerHostGetConfigImageSize(self, params: Any) -> None:
        params.configImageSize = 5

    def _ProfilerHostGetConfigImage(self, params: Any) -> None:
        ctypes.memmove(params.pConfigImage, b"sched", 5)

    def _RangeProfilerEnable(self, params: Any) -> None:
        params.pRangeProfilerObject = PROFILER

    def _RangeProfilerGetCounterDataSize(self, params: Any) -> None:
        params.counterDataSize = 7 * params.maxNumOfRanges

    def _RangeProfilerSetConfig(self, params: Any) -> None:
        self.config = ctypes.string_at(params.pConfig, params.configSize)
        self.ranges.clear()

    def _RangeProfilerStart(self, params: Any) -> int:
        return self._become("started", only="stopped")

    def _RangeProfilerPushRange(self, params: Any) -> int:
        self.begun = (params.pRangeName, dict(self.card.counters))
        return self._become("in a range", only="started")

    def _RangeProfilerPopRange(self, params: Any) -> int:
        name, before = self.begun
        now = self.card.counters
        self.ranges.append((name, {one: now[one] - before[one] for one in now}))
        return self._become("started", only="in a range")

    def _RangeProfilerStop(self, params: Any) -> int:
        params.isAllPassSubmitted = self.passes == 1
        return self._become("stopped", only="started")

    def _RangeProfilerDecodeData(self, params: Any) -> None:
        params.numOfRangeDropped = self.dropped
        self.ranges.reverse()  # CUPTI promises no order

    def _RangeProfilerGetCounterDataInfo(self, params: Any) -> None:
        params.numTotalRanges = len(self.ranges) - self.lost

    def _RangeProfilerCounterDataGetRangeInfo(self, params: Any) -> None:
        params.rangeName = self.ranges[params.rangeIndex][0]

    def _ProfilerHostEvaluateToGpuValues(self, params: Any) -> None:
        values = self.ranges[params.rangeIndex][1]
        for at in range(params.numMetrics):
            name = params.ppMetricNames[at].decode()
            params.pMetricValues[at] = float("nan") if name in self.unread else values[name]
