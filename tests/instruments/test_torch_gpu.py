"""The real GPU's class on a device made of software: holding, clearing, counting, errors."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from tests.instruments.software_cuda import Device
from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card import carve_outs, through_torch
from warpwatch.instruments.gpu.card.interface import DeviceLostError, GpuError, OutOfMemoryError
from warpwatch.instruments.gpu.card.through_torch import TorchGpu
from warpwatch.instruments.gpu.latency import Limits


def on(patch: pytest.MonkeyPatch, device: Device, cache_bytes: int | None = None) -> TorchGpu:
    for name in ("torch", "ctypes", "time"):
        patch.setattr(through_torch, name, getattr(device, name))
    patch.setattr(through_torch, "nvml_reader", lambda uuid: None)
    patch.setattr(through_torch, "amdsmi_reader", lambda index: None)
    return TorchGpu(cache_bytes)


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, device: Device) -> TorchGpu:
    return on(monkeypatch, device)


@pytest.mark.parametrize("launch_us", [1.0, 40.0])
def test_what_launching_costs_the_host_is_not_in_the_time(
    gpu: TorchGpu, device: Device, launch_us: float
):
    device.launch_us = launch_us
    one = gpu.run(device.call(3.0), calls=1, cold=True)
    assert one.held and one.elapsed_us == pytest.approx(3.0 + device.event_us)
    many = gpu.run(device.call(3.0), calls=20, cold=False)
    assert many.held and many.elapsed_us == pytest.approx(20 * 3.0 + device.event_us)
    # What an empty interval takes by itself is known, so that it can be taken off.
    assert gpu.overhead_us() == pytest.approx(device.event_us)


def test_a_sample_the_gpu_was_not_held_for_is_taken_again_with_a_hold_twice_as_long(
    gpu: TorchGpu, device: Device
):
    gpu.run(device.call(3.0), calls=1, cold=False)  # what a spin costs is known from now on
    device.held_for_us.clear()
    device.did.clear()
    slow_to_queue = device.call(3.0, host_us=600.0)
    found = gpu.run(slow_to_queue, calls=1, cold=False)
    assert found.held and found.elapsed_us == pytest.approx(3.0 + device.event_us)
    # Reckoned at the 2000 MHz the card claims. It runs at 1500, so each lasts a third longer.
    holds = [us for us in device.held_for_us if us > 2 * through_torch.CLOCK_SPIN_US]
    assert holds == [300.0, 600.0, 1200.0]
    assert device.did.count("call") == 2 * 3  # one to warm the caches, one between the events
    # The next sample is held at once, and for no longer than this host needs.
    device.held_for_us.clear()
    assert gpu.run(slow_to_queue, calls=1, cold=False).held
    assert max(device.held_for_us) == pytest.approx(1.5 * 2 * 620, rel=0.05)
    gpu.run(device.call(3.0), calls=1, cold=False)
    device.held_for_us.clear()
    gpu.run(device.call(3.0), calls=1, cold=False)
    assert max(device.held_for_us) == through_torch.MIN_HOLD_US


def test_a_call_that_waits_for_the_gpu_is_given_up_and_told(gpu: TorchGpu, device: Device):
    limits = Limits(warm_up_seconds=0.0, min_samples=3, max_samples=3)
    waits = device.call(50.0, waits=True)
    before = device.did.count("call")
    assert not gpu.run(waits, calls=1, cold=True).held
    assert device.did.count("call") - before == through_torch.RETAKES
    found = latency.measure(gpu, waits, "cold", limits)
    assert "launch gaps are in the time: the call waits for the GPU" in found.notes
    assert max(device.held_for_us) <= through_torch.MAX_HOLD_US
    assert not latency.measure(gpu, device.call(50.0), "cold", limits).notes


def test_a_call_that_waits_is_not_held_for_longer_and_longer(gpu: TorchGpu, device: Device):
    waits = device.call(50.0, waits=True)
    for _ in range(through_torch.RETAKES):
        gpu.run(waits, calls=1, cold=True)
    assert max(device.held_for_us) == through_torch.MAX_HOLD_US
    device.held_for_us.clear()
    begin = device.host_us
    for _ in range(15):
        assert not gpu.run(waits, calls=1, cold=True).held
    assert max(device.held_for_us) == through_torch.MIN_HOLD_US
    assert device.host_us - begin < through_torch.MAX_HOLD_US
    # Another call is held as ever, and this one's inputs are let go.
    assert gpu.run(device.call(3.0, host_us=600.0), calls=1, cold=False).held
    kept = weakref.ref(waits)
    del waits
    gc.collect()
    assert kept() is None


def test_before_a_cold_sample_more_than_twice_the_cache_is_read_and_carve_outs_reset(
    gpu: TorchGpu, device: Device
):
    gpu.run(device.call(3.0), calls=2, cold=True)
    assert device.cleared_bytes > 2 * device.l2_bytes
    clear = f"read {device.cleared_bytes}"
    # The GPU is held before it is cleared: clearing is queued work like any other.
    assert device.did[:5] == ["spin", "reset", clear, "call", "call"]
    device.did.clear()
    gpu.run(device.call(3.0), calls=1, cold=False)
    assert device.did[:3] == ["spin", "call", "call"]
    assert clear not in device.did and "reset" not in device.did


def test_the_last_cache_is_cleared_where_it_is_larger_than_the_l2(
    monkeypatch: pytest.MonkeyPatch, device: Device
):
    gpu = on(monkeypatch, device, cache_bytes=256 << 20)
    gpu.run(device.call(3.0), calls=1, cold=True)
    assert device.cleared_bytes > 2 * (256 << 20)


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, False), (801, False), (201, True)],
    ids=["reset", "a-card-without", "no-context"],
)
def test_that_carve_outs_are_not_reset_is_said(code: int, said: bool):
    driver = SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: code)
    note = carve_outs.refused(driver)
    assert bool(note) is said and (f"CUDA error {code}" in note) is said


@pytest.mark.parametrize("mhz", [345.0, 1500.0, 1980.0])
def test_the_clock_is_counted_right_after_the_call(gpu: TorchGpu, device: Device, mhz: float):
    device.mhz = mhz
    found = gpu.run(device.call(3.0), calls=1, cold=False)
    # The events around the spin are no cycles of it, nor is what it takes to start.
    assert found.spin_mhz == pytest.approx(mhz, rel=1e-6)


def test_a_hip_device_has_no_carve_outs_and_its_spin_counts_no_clock(
    monkeypatch: pytest.MonkeyPatch,
):
    device = Device(hip=True)
    gpu = on(monkeypatch, device)
    found = gpu.run(device.call(3.0), calls=1, cold=True)
    assert found.spin_mhz is None and found.held
    assert "reset" not in device.did and device.cleared_bytes > 2 * device.l2_bytes


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA error: an illegal memory access was encountered\nCompile with ...", DeviceLostError),
        ("CUDA error: unspecified launch failure", DeviceLostError),
        ("CUDA error: too many resources requested for launch\nsee ...", GpuError),
    ],
)
def test_what_a_launch_raises_says_whether_more_can_be_measured(
    gpu: TorchGpu, text: str, kind: type[GpuError]
):
    def fails() -> None:
        raise RuntimeError(text)

    with pytest.raises(GpuError) as raised:
        gpu.run(fails, calls=1, cold=False)
    assert type(raised.value) is kind and str(raised.value) == text.splitlines()[0]


def test_out_of_memory_frees_what_torch_keeps_for_the_next(gpu: TorchGpu, device: Device):
    def too_much() -> None:
        raise device.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    with pytest.raises(OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate 2 GiB$"):
        gpu.run(too_much, calls=1, cold=False)
    assert device.did[-1] == "empty cache"


def test_an_error_of_the_instrument_stays_what_it_is(gpu: TorchGpu):
    told = GpuError("no such clock")

    def fails() -> None:
        raise told

    with pytest.raises(GpuError) as raised:
        gpu.run(fails, calls=1, cold=False)
    assert raised.value is told


def test_peak_memory_is_what_a_call_adds(gpu: TorchGpu, device: Device):
    device.allocated = 1000

    def allocates() -> object:
        assert device.did[-2:] == ["empty cache", "reset peak"]
        device.most_allocated = 1000 + 300
        return object()

    assert gpu.peak_bytes(allocates) == 300


def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch, device: Device):
    device.usable = False
    with pytest.raises(GpuError, match="no GPU: torch sees neither a CUDA nor a HIP device"):
        on(monkeypatch, device)
