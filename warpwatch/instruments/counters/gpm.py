"""Tensor-core activity as NVIDIA's driver samples it (NVML GPM): Hopper and later, no profiler.

It needs no right to the counters, and it averages over a second of repeated calls, launch gaps
included: a tier of its own, never compared with the counters of one call.
"""

from __future__ import annotations

import importlib
import math
import time
from typing import TYPE_CHECKING, Any

from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.method import method_hash
from warpwatch.instruments.outcome import Outcome

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

ANY_TENSOR = 5
SECONDS = 0.6


class GpmRefusedError(RuntimeError):
    """The card or its driver offers no such sampling."""


def sample_tensor_pipe(workload: Workload, uuid: str) -> Outcome:
    """Runs in a worker: repeat the call between two samples of the driver."""
    import torch

    if (absent := measuring.missing(workload)) is not None:
        return absent
    try:
        inputs = workload.inputs("cuda", seed=0)
        sampler = Sampler(uuid)
        workload.call(inputs)
        torch.cuda.synchronize()

        def busy() -> None:
            begin = time.monotonic()
            while time.monotonic() - begin < SECONDS:
                for _ in range(16):
                    workload.call(inputs)
                torch.cuda.synchronize()

        busy()  # the first sample must lie within steady work
        values = tuple(sampler.over(busy) for _ in range(3))
    except Exception as error:
        return Outcome(workload.name, measuring.status_of(error), measuring.first_line(error))
    return Outcome(workload.name, "ok", samples={"tensor_pipe_sampled": values})


class Sampler:
    """Reads GPM metric 5 of the card called ``uuid``; ``GpmRefusedError`` says why it cannot."""

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        if nvml is None:
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                raise GpmRefusedError("NVML is not to be had: install nvidia-ml-py") from None
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            support = nvml.nvmlGpmQueryDeviceSupport(self._handle)
        except nvml.NVMLError as error:
            raise GpmRefusedError(f"NVML offers no GPM here: {error}") from error
        if not support.isSupportedDevice:
            raise GpmRefusedError("this card has no GPM: it came with Hopper")

    def over(self, busy: Any) -> float:
        """Percent of the time the tensor cores were active while ``busy()`` ran;
        ``GpmRefusedError`` where that was not read, which leaves a value of 0."""
        nvml = self._nvml
        first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        try:
            nvml.nvmlGpmSampleGet(self._handle, first)
            busy()
            nvml.nvmlGpmSampleGet(self._handle, second)
            wanted = nvml.c_nvmlGpmMetricsGet_t()
            wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
            wanted.numMetrics = 1
            wanted.sample1, wanted.sample2 = first, second
            wanted.metrics[0].metricId = ANY_TENSOR
            nvml.nvmlGpmMetricsGet(wanted)
            read = wanted.metrics[0]
            if read.nvmlReturn or not math.isfinite(read.value):
                raise GpmRefusedError(
                    f"the driver read no tensor-core activity (NVML error {read.nvmlReturn})"
                )
            return float(read.value)
        finally:
            nvml.nvmlGpmSampleFree(first)
            nvml.nvmlGpmSampleFree(second)


METHOD_VERSION = "gpm-" + method_hash(__file__)
