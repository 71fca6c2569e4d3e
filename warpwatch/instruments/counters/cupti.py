"""NVIDIA's CUPTI, as far as its range profiler goes: where it lies, its structs, its errors.

Every function takes one struct, whose ``structSize`` is the offset behind its last field: the
library compares it with the sizes of the releases it knows. The layouts are those of CUDA 13.0,
which later releases only add to.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .ncu import REMEDY, CountersRefusedError

NAMES = ("libcupti.so.13", "libcupti.so.12")
PLACES = ("cuda*/extras/CUPTI/lib64", "cuda*/lib64")  # within /usr/local
PACKAGES = ("cu13/lib", "cuda_cupti/lib")  # within site-packages/nvidia, of CUDA 13 and of 12
RANGE_PROFILER, USER_RANGE, USER_REPLAY, AUTO_RANGE, KERNEL_REPLAY = 0, 2, 3, 1, 2

# What helps, by the number of the error.
_BUSY = (
    "another profiler holds the counters: end ncu, nsys, torch.profiler and dcgm's profiling, and "
    "close every other RangeProfiler of this process"
)
HELP = {
    7: _BUSY,  # enabled twice, in this process
    11: "this CUPTI has no such function: install nvidia-cuda-cupti of CUDA 12.6 or later",
    15: "libnvperf_host.so and libnvperf_target.so of the same release must lie beside libcupti",
    17: "this card has no such metric",
    23: "the driver has turned profiling off",
    26: _BUSY,
    35: REMEDY,
    36: _BUSY,
    39: _BUSY,
    40: "the host of this virtual GPU must allow profiling for it",
    41: "a card in confidential-computing mode lets nobody read counters",
    43: "a MIG instance has no counters of its own: profile the whole card",
    46: "this CUPTI is older than the card: install a newer nvidia-cuda-cupti",
}


class Params(ctypes.Structure):
    """What every struct begins with."""

    _fields_ = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]


class Initialize(Params):
    pass


class Deinitialize(Params):
    pass


class ChipName(Params):
    _fields_ = [("deviceIndex", ctypes.c_size_t), ("pChipName", ctypes.c_char_p)]


class Availability(Params):
    _fields_ = [
        ("ctx", ctypes.c_void_p),
        ("counterAvailabilityImageSize", ctypes.c_size_t),
        ("pCounterAvailabilityImage", ctypes.c_void_p),
    ]


class HostInitialize(Params):
    _fields_ = [
        ("profilerType", ctypes.c_int),
        ("pChipName", ctypes.c_char_p),
        ("pCounterAvailabilityImage", ctypes.c_void_p),
        ("pHostObject", ctypes.c_void_p),
    ]


class HostDeinitialize(Params):
    _fields_ = [("pHostObject", ctypes.c_void_p)]


class AddMetrics(Params):
    _fields_ = [
        ("pHostObject", ctypes.c_void_p),
        ("ppMetricNames", ctypes.POINTER(ctypes.c_char_p)),
        ("numMetrics", ctypes.c_size_t),
    ]


class ConfigImageSize(Params):
    _fields_ = [("pHostObject", ctypes.c_void_p), ("configImageSize", ctypes.c_size_t)]


class ConfigImage(Params):
    _fields_ = [
        ("pHostObject", ctypes.c_void_p),
        ("configImageSize", ctypes.c_size_t),
        ("pConfigImage", ctypes.c_void_p),
    ]


class NumOfPasses(Params):
    _fields_ = [
        ("configImageSize", ctypes.c_size_t),
        ("pConfigImage", ctypes.c_void_p),
        ("numOfPasses", ctypes.c_size_t),
    ]


class Evaluate(Params):
    _fields_ = [
        ("pHostObject", ctypes.c_void_p),
        ("pCounterDataImage", ctypes.c_void_p),
        ("counterDataImageSize", ctypes.c_size_t),
        ("rangeIndex", ctypes.c_size_t),
        ("ppMetricNames", ctypes.POINTER(ctypes.c_char_p)),
        ("numMetrics", ctypes.c_size_t),
        ("pMetricValues", ctypes.POINTER(ctypes.c_double)),
    ]


class Enable(Params):
    _fields_ = [("ctx", ctypes.c_void_p), ("pRangeProfilerObject", ctypes.c_void_p)]


class OfProfiler(Params):
    """What ``Disable``, ``Start`` and ``PopRange`` take."""

    _fields_ = [("pRangeProfilerObject", ctypes.c_void_p)]


class SetConfig(Params):
    _fields_ = [
        ("pRangeProfilerObject", ctypes.c_void_p),
        ("configSize", ctypes.c_size_t),
        ("pConfig", ctypes.c_void_p),
        ("counterDataImageSize", ctypes.c_size_t),
        ("pCounterDataImage", ctypes.c_void_p),
        ("range", ctypes.c_int),
        ("replayMode", ctypes.c_int),
        ("maxRangesPerPass", ctypes.c_size_t),
        ("numNestingLevels", ctypes.c_uint16),
        ("minNestingLevel", ctypes.c_uint16),
        ("passIndex", ctypes.c_size_t),
        ("targetNestingLevel", ctypes.c_uint16),
    ]


class Stop(Params):
    _fields_ = [
        ("pRangeProfilerObject", ctypes.c_void_p),
        ("passIndex", ctypes.c_size_t),
        ("targetNestingLevel", ctypes.c_size_t),
        ("isAllPassSubmitted", ctypes.c_uint8),
    ]


class PushRange(Params):
    _fields_ = [("pRangeProfilerObject", ctypes.c_void_p), ("pRangeName", ctypes.c_char_p)]


class Decode(Params):
    _fields_ = [
        ("pRangeProfilerObject", ctypes.c_void_p),
        ("numOfRangeDropped", ctypes.c_size_t),
    ]


class CounterDataSize(Params):
    _fields_ = [
        ("pRangeProfilerObject", ctypes.c_void_p),
        ("pMetricNames", ctypes.POINTER(ctypes.c_char_p)),
        ("numMetrics", ctypes.c_size_t),
        ("maxNumOfRanges", ctypes.c_size_t),
        ("maxNumRangeTreeNodes", ctypes.c_uint32),
        ("counterDataSize", ctypes.c_size_t),
    ]


class CounterDataInitialize(Params):
    _fields_ = [
        ("pRangeProfilerObject", ctypes.c_void_p),
        ("counterDataSize", ctypes.c_size_t),
        ("pCounterData", ctypes.c_void_p),
    ]


class CounterDataInfo(Params):
    _fields_ = [
        ("pCounterDataImage", ctypes.c_void_p),
        ("counterDataImageSize", ctypes.c_size_t),
        ("numTotalRanges", ctypes.c_size_t),
    ]


class RangeInfo(Params):
    _fields_ = [
        ("pCounterDataImage", ctypes.c_void_p),
        ("counterDataImageSize", ctypes.c_size_t),
        ("rangeIndex", ctypes.c_size_t),
        ("rangeDelimiter", ctypes.c_char_p),
        ("rangeName", ctypes.c_char_p),
    ]


FUNCTIONS: dict[str, type[Params]] = {
    "cuptiProfilerInitialize": Initialize,
    "cuptiProfilerDeInitialize": Deinitialize,
    "cuptiProfilerGetCounterAvailability": Availability,
    "cuptiDeviceGetChipName": ChipName,
    "cuptiProfilerHostInitialize": HostInitialize,
    "cuptiProfilerHostDeinitialize": HostDeinitialize,
    "cuptiProfilerHostConfigAddMetrics": AddMetrics,
    "cuptiProfilerHostGetConfigImageSize": ConfigImageSize,
    "cuptiProfilerHostGetConfigImage": ConfigImage,
    "cuptiProfilerHostGetNumOfPasses": NumOfPasses,
    "cuptiProfilerHostEvaluateToGpuValues": Evaluate,
    "cuptiRangeProfilerEnable": Enable,
    "cuptiRangeProfilerDisable": OfProfiler,
    "cuptiRangeProfilerStart": OfProfiler,
    "cuptiRangeProfilerPopRange": OfProfiler,
    "cuptiRangeProfilerSetConfig": SetConfig,
    "cuptiRangeProfilerStop": Stop,
    "cuptiRangeProfilerPushRange": PushRange,
    "cuptiRangeProfilerDecodeData": Decode,
    "cuptiRangeProfilerGetCounterDataSize": CounterDataSize,
    "cuptiRangeProfilerCounterDataImageInitialize": CounterDataInitialize,
    "cuptiRangeProfilerGetCounterDataInfo": CounterDataInfo,
    "cuptiRangeProfilerCounterDataGetRangeInfo": RangeInfo,
}


def struct_size(params: type[Params]) -> int:
    """The offset behind the last field: ``ctypes.sizeof`` without the padding at the end."""
    own = params.__dict__.get("_fields_") or Params._fields_
    last = getattr(params, own[-1][0])
    return int(last.offset) + int(last.size)


class Cupti:
    """The loaded library. ``path`` is where it lies; ``version`` counts as NVIDIA does."""

    def __init__(self, library: Any, path: str) -> None:
        """``CountersRefusedError`` if ``library`` came before the range profiler."""
        self.path = path
        self._library = library
        version = ctypes.c_uint32()
        library.cuptiGetVersion(ctypes.pointer(version))
        self.version = int(version.value)
        if lacking := [name for name in FUNCTIONS if not hasattr(library, name)]:
            raise CountersRefusedError(
                f"{path} (CUPTI version {self.version}) has no {lacking[0]}: its range profiler "
                "came with CUDA 12.6, so install a later nvidia-cuda-cupti"
            )

    def call(self, function: str, **fields: Any) -> Any:
        """Call ``function`` with its struct.

        Args:
            function: One of :data:`FUNCTIONS`.
            fields: The fields that go in; what comes out is set to zero before.

        Returns:
            The struct, with what the library wrote into it.

        Raises:
            CountersRefusedError: The library returned an error; the message has its number, its
                name and what would help.

        Example:
            >>> Cupti(*load()).call("cuptiDeviceGetChipName", deviceIndex=0).pChipName
            b'GH100'
        """
        kind = FUNCTIONS[function]
        params = kind(**fields)
        params.structSize = struct_size(kind)
        result = int(getattr(self._library, function)(ctypes.pointer(params)))
        if result:
            raise CountersRefusedError(self._refusal(function, result))
        return params

    def _refusal(self, function: str, result: int) -> str:
        text = ctypes.c_char_p()
        unknown = self._library.cuptiGetResultString(result, ctypes.pointer(text))
        name = "unknown error" if unknown or not text.value else text.value.decode()
        advice = HELP.get(result, "")
        return f"{function}: {name} ({result})" + (f": {advice}" if advice else "")


def load() -> tuple[Any, str]:
    """The CUPTI of this process and its path.

    A copy that is loaded already comes first: torch is linked to one, and two copies of CUPTI in
    one process fight over the driver's hooks. ``CountersRefusedError`` names the places looked at.
    """
    for name in NAMES:
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW), _path_of(name)
        except OSError:
            continue
    places = list(folders())
    failed: list[str] = []
    for name in NAMES:
        found = [str(place / name) for place in places if (place / name).is_file()]
        found += [name] if ctypes.util.find_library("cupti") else []
        for path in found:
            try:
                return ctypes.CDLL(path), path if path != name else _path_of(name)
            except OSError as error:
                failed.append(str(error))
    toolkits = (f"/usr/local/{place}" for place in PLACES)
    looked = ", ".join([*map(str, places), *toolkits, "the loader's path"])
    raise CountersRefusedError(
        "; ".join([f"no {' or '.join(NAMES)} in {looked}: install nvidia-cuda-cupti", *failed])
    )


def folders() -> Iterator[Path]:
    """Where a CUPTI may lie: the folders of its packages, then the toolkits, newest first."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from (Path(root) / package for package in PACKAGES)
    for place in PLACES:
        yield from sorted(Path("/usr/local").glob(place), reverse=True)


def _path_of(name: str) -> str:
    """Where a loaded library lies, as the kernel says."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return name
    return next((line.split(maxsplit=5)[5] for line in lines if name in line), name)
