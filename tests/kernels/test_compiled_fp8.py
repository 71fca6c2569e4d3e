"""What compilers make of attention in fp8, and of commits that had none."""

from __future__ import annotations

import lzma
import re
from typing import Any

import pytest

from benchmarks.instruments.compiled import measure
from benchmarks.targets import get
from benchmarks.workloads import all_workloads
from benchmarks.workloads.attention_fp8 import Fp8AttentionWorkload
from kernels import targets

INSTRUCTIONS = {
    "sm_90": r"QGMMA\S*E4M3",
    "sm_100": r"UTCQMMA",
    "gfx942": r"v_mfma_f32_\w+_fp8_fp8",
    "gfx950": r"v_mfma_f32_\w+_f8f6f4",
}


@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("target", INSTRUCTIONS)
def test_compiles_to_fp8_products_without_a_spill(target: str, D: int) -> None:
    options: dict[str, Any] = {"causal": True, "G": 4} if D == 64 else {}
    case = Fp8AttentionWorkload(group="test", B=4, S=1025, H=16, D=D, **options)
    found = measure(case, get(target))
    assert found.status == "ok", found.detail
    # Hopper's own kernel wants the values turned around first.
    assert found.values["launches"] == (2 if target == "sm_90" else 1)
    assert found.values["spilled_bytes"] == 0
    assert found.values["advisories"] == 0
    listing = "".join(lzma.decompress(one).decode() for one in found.code.values())
    assert re.search(INSTRUCTIONS[target], listing)
    assert not re.search(r"HGMMA|UTCHMMA|v_mfma\w+_b?f16", listing)


@pytest.mark.parametrize("name", ["attention-fp8-", "matmul-fp8-", "attention-kvcache-"])
def test_commits_before_fp8_are_not_applicable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(*arguments: Any) -> None:
        raise AssertionError("called without scales")

    workloads = [one for one in all_workloads() if one.name.startswith(name) and "fp8" in one.name]
    monkeypatch.delattr(targets.Target, "fp8_dtypes")
    monkeypatch.setattr(f"kernels.{workloads[0].kernel}", before)
    found = measure(workloads[0], get("sm_90"))
    assert found.status == "not applicable", found.detail
