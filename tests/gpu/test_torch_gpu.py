"""On a GPU: what the instrument's own rules say of calls whose behaviour is known."""

from __future__ import annotations

import pytest
import torch

from benchmarks import devices
from benchmarks.instruments import ceilings, latency
from benchmarks.instruments.latency import Latency, Limits, Method
from benchmarks.instruments.torch_gpu import TorchGpu

pytestmark = pytest.mark.gpu

QUICK = Limits(max_samples=40, seconds=0.5)


@pytest.fixture(scope="module")
def gpu() -> TorchGpu:
    return TorchGpu()


class Read:
    """Reads a part of what the L2 holds."""

    def __init__(self, gpu: TorchGpu) -> None:
        self.source = torch.ones(gpu.card.cache_bytes // 4 // 4, device="cuda")
        self.result = torch.empty((), device="cuda")

    def __call__(self) -> None:
        torch.sum(self.source, dim=0, out=self.result)


def timed(gpu: TorchGpu, read: Read, method: Method) -> Latency:
    return latency.measure(gpu, read, method, QUICK)


def test_a_read_that_fits_the_cache_is_faster_warm_than_cold(gpu: TorchGpu):
    read = Read(gpu)
    cold, warm = timed(gpu, read, "cold"), timed(gpu, read, "warm")
    print(f"read of {4 * read.source.numel() >> 20} MiB: cold {cold.us:.2f}, warm {warm.us:.2f} us")
    assert warm.us < 0.9 * cold.us
    # No call is faster than the memory it has to read cold.
    device = devices.identify(gpu.card.name)
    if device is not None:
        assert cold.us > 4 * read.source.numel() / device.kernel_bandwidth_gbps / 1e3


def test_a_call_that_waits_for_the_gpu_is_told_as_such(gpu: TorchGpu):
    waiting = torch.ones(1 << 20, device="cuda")

    def waits() -> None:
        waiting.mul_(1.0)
        waiting[0].item()

    limits = Limits(warm_up_seconds=0.0, min_samples=3, max_samples=3, seconds=0.5)
    found = latency.measure(gpu, waits, "cold", limits)
    assert not any(sample.held for sample in found.samples)
    assert "launch gaps are in the time: the call waits for the GPU" in found.notes
    # It is the call's doing: the next is timed as if it had not been.
    launched = latency.measure(gpu, lambda: waiting.mul_(1.0), "cold", limits)
    assert all(sample.held for sample in launched.samples)


def test_the_clock_that_is_counted_is_one_the_card_has(gpu: TorchGpu):
    read = Read(gpu)
    clocks = [gpu.run(read, calls=8, cold=False).spin_mhz for _ in range(5)]
    print(f"MHz {clocks}")
    device = devices.identify(gpu.card.name)
    if torch.version.hip is None and device is not None:
        assert all(mhz and 300 < mhz < 1020 * device.max_clock_ghz for mhz in clocks)


def test_measured_ceilings_are_near_those_of_the_datasheet(
    gpu: TorchGpu, monkeypatch: pytest.MonkeyPatch
):
    device = devices.identify(gpu.card.name)
    monkeypatch.setattr(ceilings, "_measured", {})
    monkeypatch.setattr(devices, "identify", lambda _: None)  # as on a card nobody knows
    found = ceilings.measured_on(gpu, ceilings.torch_products(), ceilings.torch_streams())
    assert found is not None and found.bandwidth_gbps is not None
    print(found.said)
    for dtype, peak in found.peaks.items():
        if device is not None and device.has(dtype):
            of_printed = peak.tflops / device.peak(dtype)
            at_clock = peak.tflops / device.peak(dtype, clock_ghz=peak.clock_ghz)
            print(
                f"{dtype}: {peak.tflops:.0f} TFLOP/s at {peak.clock_ghz} GHz, "
                f"{of_printed:.1%} of the datasheet's peak, {at_clock:.1%} at its clock"
            )
            assert 0.5 < at_clock < 1.02, dtype
    if device is not None:
        of_printed = found.bandwidth_gbps / device.kernel_bandwidth_gbps
        print(f"{found.bandwidth_gbps:.0f} GB/s, {of_printed:.1%} of the datasheet's")
        assert 0.6 < of_printed < 1.02
