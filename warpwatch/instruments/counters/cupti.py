"""NVIDIA's CUPTI, as far as its range profiler goes: where it lies, its structs, its errors.

Every function takes one struct, whose ``structSize`` is the offset behind its last field: the
library compares it with the sizes of the releases it knows. The layouts are those of CUDA 12.6 and
13.0, which later releases only add to.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .ncu import REMEDY, CountersRefusedError

NAMES = ("libcupti.so.13", "libcupti.so.12")
TOOLKITS = Path("/usr/local")
PLACES = ("cuda*/extras/CUPTI/lib64", "cuda*/lib64")  # within TOOLKITS
PACKAGES = ("cu13/lib", "cuda_cupti/lib")  # within site-packages/nvidia, of CUDA 13 and of 12
HOST = "libnvperf_host.so"  # what CUPTI computes metrics with
RANGE_PROFILER, USER_RANGE, USER_REPLAY = 0, 2, 3

_OLD = "this CUPTI is older than the card: install a newer nvidia-cuda-cupti"
# What helps, by the function ("" for any) and the number of the error.
HELP = {
    ("cuptiProfilerHostInitialize", 1): _OLD,  # CUPTI 12.6; later ones say 46
    ("cuptiProfilerHostConfigAddMetrics", 1): "this card lacks one of the metrics",
    ("cuptiRangeProfilerStart", 1): "close every other RangeProfiler of this process",
    ("cuptiProfilerInitialize", 15): "CUPTI was finalized in this process: start another",
    ("cuptiProfilerHostInitialize", 15): f"{HOST} of the same release must lie beside libcupti",
    ("", 26): "another process holds the counters: end ncu, nsys and dcgm's profiling",
    ("", 35): REMEDY,
    ("", 39): "this process runs under ncu, nsys or cuda-gdb: run it alone",
    ("", 40): "the host of this virtual GPU must allow profiling for it",
    ("", 43): "a MIG instance has no counters of its own: profile the whole card",
    ("", 46): _OLD,
}


class Params(ctypes.Structure):
    """What every struct begins with."""

    _fields_ = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]


def _with(**fields: Any) -> type[Params]:
    return type("Params", (Params,), {"_fields_": list(fields.items())})


_SIZE, _POINTER, _TEXT, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_PROFILER: dict[str, Any] = {"pRangeProfilerObject": _POINTER}
_HOST: dict[str, Any] = {"pHostObject": _POINTER}
_CONFIG: dict[str, Any] = {"configImageSize": _SIZE, "pConfigImage": _POINTER}
_DATA: dict[str, Any] = {"pCounterDataImage": _POINTER, "counterDataImageSize": _SIZE}
_METRICS: dict[str, Any] = {"ppMetricNames": ctypes.POINTER(_TEXT), "numMetrics": _SIZE}

FUNCTIONS: dict[str, type[Params]] = {
    "cuptiProfilerInitialize": Params,
    "cuptiProfilerDeInitialize": Params,
    "cuptiDeviceGetChipName": _with(deviceIndex=_SIZE, pChipName=_TEXT),
    "cuptiProfilerHostInitialize": _with(
        profilerType=_INT, pChipName=_TEXT, pCounterAvailabilityImage=_POINTER, **_HOST
    ),
    "cuptiProfilerHostDeinitialize": _with(**_HOST),
    "cuptiProfilerHostConfigAddMetrics": _with(**_HOST, **_METRICS),
    "cuptiProfilerHostGetConfigImageSize": _with(**_HOST, configImageSize=_SIZE),
    "cuptiProfilerHostGetConfigImage": _with(**_HOST, **_CONFIG),
    "cuptiProfilerHostEvaluateToGpuValues": _with(
        **_HOST,
        **_DATA,
        rangeIndex=_SIZE,
        **_METRICS,
        pMetricValues=ctypes.POINTER(ctypes.c_double),
    ),
    "cuptiRangeProfilerEnable": _with(ctx=_POINTER, **_PROFILER),
    "cuptiRangeProfilerDisable": _with(**_PROFILER),
    "cuptiRangeProfilerGetCounterDataSize": _with(
        **_PROFILER,
        pMetricNames=ctypes.POINTER(_TEXT),
        numMetrics=_SIZE,
        maxNumOfRanges=_SIZE,
        maxNumRangeTreeNodes=ctypes.c_uint32,
        counterDataSize=_SIZE,
    ),
    "cuptiRangeProfilerCounterDataImageInitialize": _with(
        **_PROFILER, counterDataSize=_SIZE, pCounterData=_POINTER
    ),
    "cuptiRangeProfilerSetConfig": _with(
        **_PROFILER,
        configSize=_SIZE,
        pConfig=_POINTER,
        counterDataImageSize=_SIZE,
        pCounterDataImage=_POINTER,
        range=_INT,
        replayMode=_INT,
        maxRangesPerPass=_SIZE,
        numNestingLevels=ctypes.c_uint16,
        minNestingLevel=ctypes.c_uint16,
        passIndex=_SIZE,
        targetNestingLevel=ctypes.c_uint16,
    ),
    "cuptiRangeProfilerStart": _with(**_PROFILER),
    "cuptiRangeProfilerPushRange": _with(**_PROFILER, pRangeName=_TEXT),
    "cuptiRangeProfilerPopRange": _with(**_PROFILER),
    "cuptiRangeProfilerStop": _with(
        **_PROFILER, passIndex=_SIZE, targetNestingLevel=_SIZE, isAllPassSubmitted=ctypes.c_uint8
    ),
    "cuptiRangeProfilerDecodeData": _with(**_PROFILER, numOfRangeDropped=_SIZE),
    "cuptiRangeProfilerGetCounterDataInfo": _with(**_DATA, numTotalRanges=_SIZE),
    "cuptiRangeProfilerCounterDataGetRangeInfo": _with(
        **_DATA, rangeIndex=_SIZE, rangeDelimiter=_TEXT, rangeName=_TEXT
    ),
}


def struct_size(params: type[Params]) -> int:
    """The offset behind the last field: ``ctypes.sizeof`` without the padding at the end."""
    last = getattr(params, params._fields_[-1][0])
    return int(last.offset) + int(last.size)


class Cupti:
    """The loaded library."""

    def __init__(self, library: Any, path: str) -> None:
        """``CountersRefusedError`` if ``library`` came before the range profiler."""
        self._library = library
        if lacking := [name for name in FUNCTIONS if not hasattr(library, name)]:
            raise CountersRefusedError(
                f"{path} has no {lacking[0]}: its range profiler came with CUDA 12.6, so install a "
                "later nvidia-cuda-cupti"
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
            >>> load().call("cuptiDeviceGetChipName", deviceIndex=0).pChipName
            b'GH100'
        """
        kind = FUNCTIONS[function]
        params = kind(structSize=struct_size(kind), **fields)
        result = int(getattr(self._library, function)(ctypes.pointer(params)))
        if result:
            raise CountersRefusedError(self._refusal(function, result))
        return params

    def _refusal(self, function: str, result: int) -> str:
        text = ctypes.c_char_p()
        unknown = self._library.cuptiGetResultString(result, ctypes.pointer(text))
        name = "unknown error" if unknown or not text.value else text.value.decode()
        advice = HELP.get((function, result)) or HELP.get(("", result))
        return f"{function}: {name} ({result})" + (f": {advice}" if advice else "")


def load() -> Cupti:
    """Load CUPTI.

    A copy that is loaded already comes first: torch is linked to one, and two copies of CUPTI in
    one process fight over the driver's hooks.

    Returns:
        The library.

    Raises:
        CountersRefusedError: There is none; the message names the places looked at.

    Example:
        >>> load().call("cuptiProfilerInitialize").structSize
        16
    """
    for name in NAMES:
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        return _complete(library, _path_of(name))
    places = list(folders())
    failed: list[str] = []
    for name in NAMES:
        for path in (*(str(place / name) for place in places if (place / name).is_file()), name):
            try:
                library = ctypes.CDLL(path)
            except OSError as error:
                failed.append(str(error))
                continue
            return _complete(library, path if path != name else _path_of(name))
    looked = [*map(str, places), *(str(TOOLKITS / place) for place in PLACES)]
    raise CountersRefusedError(
        f"no {' or '.join(NAMES)} in {', '.join(looked)}, nor on the loader's path: install "
        f"nvidia-cuda-cupti ({'; '.join(failed)})"
    )


def folders() -> Iterator[Path]:
    """Where a CUPTI may lie: the folders of its packages, then the toolkits, newest first."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from (Path(root) / package for package in PACKAGES)
    for place in PLACES:
        yield from sorted(TOOLKITS.glob(place), reverse=True)


def _complete(library: Any, path: str) -> Cupti:
    """Load what CUPTI looks for on the loader's path only, whereas packages have it beside it."""
    beside = Path(path).with_name(HOST)
    if beside.is_absolute() and beside.is_file():
        with contextlib.suppress(OSError):  # CUPTI says so, and HELP what to do
            ctypes.CDLL(str(beside))
    return Cupti(library, path)


def _path_of(name: str) -> str:
    """Where a loaded library lies, as the kernel says."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return name
    return next((line.split(maxsplit=5)[5] for line in lines if name in line), name)
