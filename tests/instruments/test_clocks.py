"""What drivers say of a card, decoded."""

from __future__ import annotations

from benchmarks.instruments import clocks


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


def test_without_nvml_there_is_no_reader_and_no_error():
    assert clocks.nvml_reader("GPU-none") is None
    assert clocks.amdsmi_reader(0) is None
    assert clocks.other_processes("GPU-none") == []
