"""What drivers say of a card, decoded."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from warpwatch.instruments.gpu.card import clocks


def test_only_reasons_that_lower_a_busy_clock_are_throttling():
    idle, own_setting, sync_boost = 0x1, 0x2, 0x10
    assert clocks.reasons(idle | own_setting | sync_boost) == ()
    assert clocks.reasons(0x4) == ("power cap",)
    assert clocks.reasons(0x4 | 0x20 | 0x40) == ("power cap", "temperature", "hardware temperature")


def test_amdsmi_answers_are_read_with_their_gaps():
    # As documented by amdsmi 25; not recorded on a card of ours.
    found = clocks.amd_clocks(
        {"clk": 2100, "min_clk": 500, "max_clk": 2100, "clk_locked": "N/A", "clk_deep_sleep": 0},
        {"current_socket_power": 612, "average_socket_power": "N/A", "power_limit": 750_000_000},
        {"temperature_hotspot": 61, "throttle_status": "N/A", "average_gfx_activity": 99},
    )
    assert found == clocks.Clocks(2100.0, None, 612.0, 61.0, ())
    throttled = clocks.amd_clocks(
        {"clk": "N/A"}, {"current_socket_power": "N/A"}, {"throttle_status": 8}
    )
    assert throttled.throttled == ("throttle status",)
    assert throttled.power_w is None
    assert throttled.sm_mhz is None, "a share of the peak at 0 MHz is none"


def test_amdsmi_is_asked_for_the_card_that_hip_shows():
    assert clocks.amd_index(1, {}) == 1
    assert clocks.amd_index(1, {"HIP_VISIBLE_DEVICES": "5, 3"}) == 3
    assert clocks.amd_index(0, {"CUDA_VISIBLE_DEVICES": "6"}) == 6
    both = {"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "4,7"}
    assert clocks.amd_index(0, both) == 7
    assert clocks.amd_index(2, {"HIP_VISIBLE_DEVICES": "5,3"}) is None
    assert clocks.amd_index(0, {"ROCR_VISIBLE_DEVICES": "GPU-1234"}) is None


def test_without_nvml_there_is_no_reader_and_no_error():
    assert clocks.nvml_reader("GPU-none") is None
    assert clocks.amdsmi_reader(0) is None
    assert clocks.computing() == {}


def nvml() -> SimpleNamespace:
    """NVML's answers on two cards, the second of which tells nothing."""

    class UnsupportedError(Exception): ...

    def running(handle: int) -> list[SimpleNamespace]:
        if handle == 1:
            raise UnsupportedError
        return [SimpleNamespace(pid=pid) for pid in (71, 72)]

    return SimpleNamespace(
        NVMLError=UnsupportedError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=141 << 30),
        nvmlDeviceGetComputeRunningProcesses=running,
    )


def test_others_on_the_card_are_those_who_were_there_before_and_stayed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    before = clocks.computing()
    assert before == {"GPU-0": {71, 72}}
    own, ended = 90, 72
    after = {"GPU-0": (before["GPU-0"] | {own}) - {ended}}
    assert clocks.shared("GPU-0", before, after).startswith("another process computes on this GPU")
    assert clocks.shared("GPU-0", before, before).startswith("2 other processes compute")
    assert clocks.shared("GPU-0", {"GPU-0": frozenset()}, after) == ""
    assert clocks.shared("GPU-1", before, after) == ""


def test_a_comparison_is_spread_over_cards_that_are_alike(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert clocks.alike() == [], "the driver lists none"
    driver = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    assert clocks.alike() == ["GPU-0", "GPU-1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert clocks.alike() == ["3", "1"]
    driver.nvmlDeviceGetName = lambda handle: ["NVIDIA H200", "NVIDIA T4"][handle]
    assert clocks.alike() == ["3"], "which of them it is nobody knows"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert clocks.alike() == ["GPU-0"]
