"""Datasheets: every peak is its product formula, mistakes are all told at once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from warpwatch import devices
from warpwatch.config.targets import KNOWN

# Checked against the vendors' datasheets by hand: dense TFLOP/s, fp32 accumulator; GB/s.
PRINTED = {
    "a100": (312, 2039),
    "h100_sxm": (989.4, 3350),
    "h100_pcie": (756, 2000),
    "h200": (989.4, 4800),
    "b200": (2250, 8000),
    "b300": (2250, 8000),
    "rtx5090": (209.5, 1792),
    "rtx4090": (165.2, 1008),
    "rtx3090": (71, 936),
    "mi210": (181, 1638),
    "mi250x": (383, 3277),
    "mi300x": (1307.4, 5300),
    "mi325x": (1307.4, 6000),
    "mi355x": (2517, 8000),
    "mi455x": (5033, 23300),
    "rx9070xt": (195, 640),
}


def text_of(name: str) -> str:
    return Path(devices.__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")


def test_every_card_of_the_table_has_a_datasheet():
    assert set(devices.names()) == set(PRINTED)


@pytest.mark.parametrize("name", devices.names())
def test_every_peak_is_units_times_rate_times_clock(name: str):
    device = devices.load(name)
    printed_bf16, bandwidth = PRINTED[name]
    assert device.peak("bf16", sms=device.sm_count) == pytest.approx(printed_bf16, rel=3e-3)
    assert device.bandwidth_gbps == bandwidth
    for dtype, peak in device.peak_tflops.items():
        product = device.sm_count * device.flop_per_clock[dtype] * device.clock_ghz / 1000
        assert product == pytest.approx(peak, rel=3e-3), dtype


@pytest.mark.parametrize("name", devices.names())
def test_sizes_of_one_card_agree_with_each_other(name: str):
    device = devices.load(name)
    assert device.max_warps_per_sm * device.warp_size == device.max_threads_per_sm
    assert device.shared_bytes_per_block <= device.shared_bytes_per_sm
    assert device.clock_ghz <= device.max_clock_ghz
    assert device.l2_bytes <= device.cache_bytes
    assert device.flop_per_clock["fp16"] == device.flop_per_clock["bf16"]
    if "fp8" in device.flop_per_clock:
        # CDNA 5 prints four times the rate: 20.13 and 5.03 PFLOPS.
        times = 4 if name == "mi455x" else 2
        assert device.flop_per_clock["fp8"] == times * device.flop_per_clock["bf16"]


def test_every_target_names_a_card_of_its_architecture():
    for target in KNOWN:
        assert devices.load(target.device).arch == target.name


def test_a_kernel_sees_one_die_of_a_card_with_two():
    card = devices.load("mi250x")
    assert card.kernel_sms == 110
    assert card.peak("bf16") == pytest.approx(191.5, rel=1e-3)
    assert card.kernel_bandwidth_gbps == pytest.approx(1638.5)


def test_the_floor_is_computed_at_the_highest_clock_and_ignores_what_fits_in_the_cache():
    h200 = devices.load("h200")
    peak_at_1980_mhz = 132 * 4096 * 1.98e9
    assert h200.floor_us(10**12, 0, "bf16") == pytest.approx(1e18 / peak_at_1980_mhz)
    assert h200.floor_us(0, h200.l2_bytes, "bf16") == 0
    assert h200.floor_us(0, h200.l2_bytes + 48_000_000, "bf16") == pytest.approx(10)


def test_torch_names_of_dtypes_are_understood():
    h200 = devices.load("h200")
    assert h200.peak("torch.float8_e4m3fn") == 2 * h200.peak("bfloat16")
    with pytest.raises(ValueError, match=r"a100 has no fp8 path: its datasheet lists fp64"):
        devices.load("a100").peak("fp8")
    with pytest.raises(ValueError, match="unknown dtype 'fp12'"):
        h200.peak("fp12")


def test_a_card_is_found_by_the_name_its_driver_reports():
    found = devices.identify("NVIDIA H200")
    assert found is not None and found.name == "h200"
    assert devices.identify("NVIDIA GeForce GT 710") is None


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(ValueError, match="unknown device 'h20': did you mean h200"):
        devices.load("h20")


def test_all_mistakes_of_a_file_are_told_at_once():
    text = (
        text_of("h200")
        .replace("sm_count = 132", 'sm_count = "many"')
        .replace("l2_bytes", "l3_bytes")
        .replace('vendor = "nvidia"', 'vendor = "nvidea"')
        .replace("special_per_clock = 16", "special_per_clock = -16")
        .replace("int8 =", "int7 =")
    )
    with pytest.raises(ValueError) as caught:
        devices.parse("h200", text, "h200.toml")
    message = str(caught.value)
    for part in (
        "h200.toml: ",
        "sm_count = 'many', expected a number (int)",
        "l2_bytes is missing",
        "l3_bytes is not known, did you mean l2_bytes?",
        "vendor = 'nvidea'",
        "special_per_clock = -16, expected a positive number",
        "flop_per_clock.int7 is not known",
    ):
        assert part in message


def test_a_sparse_peak_is_refused():
    text = text_of("h200").replace("bf16 = 989.4", "bf16 = 1979")
    with pytest.raises(ValueError, match=r"bf16 = 1979, but 132 x 4096 x 1.83 GHz = 989.4"):
        devices.parse("h200", text, "h200.toml")


def test_a_broken_file_is_one_clear_line():
    with pytest.raises(ValueError, match=r"bad\.toml: not TOML"):
        devices.parse("bad", "sm_count = = 3", "bad.toml")


def test_a_rate_that_is_not_public_bounds_nothing_and_is_named():
    card = devices.load("mi455x")
    assert card.unknown == ("special_per_clock", "flop_per_clock.fp32")
    assert card.special_per_clock == math.inf
    assert card.floor_us(10**15, 0, "fp32") == 0


@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        ('["special_per_clock"]', "special_per_clock has a value, expected one of the two"),
        ('["sm_count"]', "unknown: 'sm_count', expected some of fp32_fma_per_clock"),
        ('"fp8"', "unknown: 'fp8', expected some of"),
    ],
)
def test_what_may_be_unknown_is_a_rate_without_a_value(unknown: str, message: str):
    with pytest.raises(ValueError, match=message):
        devices.parse("h200", f"unknown = {unknown}\n{text_of('h200')}", "h200.toml")
