"""Blocks in flight by hand-worked rows of the vendors' occupancy rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from warpwatch import devices
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats.recording import Launch
from warpwatch.instruments.compiled.machine_code import occupancy
from warpwatch.instruments.compiled.record.call import record


@triton.jit
def touch(x, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(x + o, tl.load(x + o) + 1)


@pytest.fixture(scope="module")
def launch() -> Launch:
    (found,) = record(lambda: touch[(1000,)](torch.empty(64), N=64), targets.get("sm_90")).launches
    return found


@pytest.mark.parametrize(
    ("device", "warps", "registers", "shared", "blocks", "limited_by"),
    [
        # 65536 registers a SM: 255 a thread are 8192 a warp (units of 256): 8 warps.
        ("h200", 4, 255, 0, 2, "registers"),
        ("h200", 8, 128, 0, 2, "registers"),
        ("h200", 4, 32, 0, 16, "warps"),
        ("h200", 1, 16, 0, 32, "blocks"),
        # 228 KB a SM, 1 KB of each block reserved: 49 KB fit four times, 113 KB twice.
        ("h200", 4, 64, 49 * 1024, 4, "shared memory"),
        ("h200", 4, 64, 113 * 1024, 2, "shared memory"),
        ("a100", 4, 64, 82 * 1024, 1, "shared memory"),
        # CDNA 3: 512 registers a lane and SIMD, in units of 8: 170 are 176, two waves a SIMD.
        ("mi300x", 4, 170, 0, 2, "registers"),
        ("mi300x", 4, 128, 0, 4, "registers"),
        ("mi300x", 8, 256, 0, 1, "registers"),
        ("mi300x", 4, 64, 32768, 2, "shared memory"),
    ],
)
def test_blocks_in_flight(
    launch: Launch,
    device: str,
    warps: int,
    registers: int,
    shared: int,
    blocks: int,
    limited_by: str,
) -> None:
    kernel = replace(launch.kernel, num_warps=warps, shared_bytes=shared)
    found = occupancy.occupancy(replace(launch, kernel=kernel), devices.load(device), registers)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)


def test_waves_and_the_fill_of_the_last(launch: Launch) -> None:
    kernel = replace(launch.kernel, num_warps=8, shared_bytes=0)
    found = occupancy.occupancy(replace(launch, kernel=kernel), devices.load("h200"), 128)
    assert found.waves == pytest.approx(1000 / 264)
    assert found.last_wave_fill == pytest.approx((1000 - 3 * 264) / 264)
