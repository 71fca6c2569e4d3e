"""What the compilers of six targets make of the products in fp8 and of groups."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.workloads.matmul_fp8 import Fp8MatmulWorkload
from benchmarks.workloads.matmul_grouped import GroupedMatmulWorkload
from tests.meetings import on_targets
from warpwatch import devices
from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.measure.workload import measure

# As warpwatch.config.metrics defines tensor_core_level: mma.sync and MFMA, wgmma, tcgen05.
LEVEL = {"sm_80": 1, "sm_90": 2, "sm_100": 3, "gfx90a": 1, "gfx942": 1, "gfx950": 1}
EPILOGUE = Fp8MatmulWorkload(group="test", M=4096, N=4096, K=1024, bias=True, activation="gelu")
BLOCKS = Fp8MatmulWorkload(group="test", M=4096, N=4096, K=1024, scales="blocks")


@pytest.mark.parametrize(
    ("workload", "target"), on_targets(BLOCKS, EPILOGUE), ids=lambda one: one.name
)
def test_fp8_spills_nothing_and_runs_on_fp8_units(
    workload: Fp8MatmulWorkload, target: Target
) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    assert values["launches"] == 1
    assert values["copied_bytes"] == 0
    assert values["spilled_bytes"] == 0
    assert values["advisories"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]
    (launch,) = measured.evidence["launches"]
    peaks = devices.load(target.device)
    in_fp16_us = workload.flops / (peaks.peak("fp16") * 1e6)
    # Products that were decoded run at the rate of fp16.
    in_fp8 = launch["bound"]["units_us"]["tensor"] < 0.6 * in_fp16_us
    assert in_fp8 == (target.name not in ("sm_80", "gfx90a"))


MIXTURE: dict[str, Any] = {"dtype": "bf16", "total": 2048, "groups": 8, "N": 4096, "K": 1024}


@pytest.mark.parametrize(
    ("workload", "target"),
    on_targets(
        *(GroupedMatmulWorkload(group="test", weights=one, **MIXTURE) for one in (False, True))
    ),
    ids=lambda one: one.name,
)
def test_groups_spill_nothing_and_know_their_rows(
    workload: GroupedMatmulWorkload, target: Target
) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    assert values["launches"] == 1
    assert values["copied_bytes"] == 0
    assert values["spilled_bytes"] == 0
    assert values["advisories"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]
    # The loops' bounds are read from the offsets: nothing is guessed.
    (launch,) = measured.evidence["launches"]
    assert launch["bound"]["notes"] == []
