"""What compilers make of attention in fp8, and of commits that had none."""

from __future__ import annotations

import lzma
import re
from typing import Any

import pytest
import torch

from benchmarks.workloads import all_workloads
from benchmarks.workloads.attention_fp8 import Fp8AttentionWorkload
from kernels import flash_attention_varlen
from kernels.runtime import targets
from warpwatch.config.targets import get
from warpwatch.instruments.compiled.measure.reading import read_code
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.instruments.compiled.record.call import record

pytestmark = pytest.mark.sampled

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


@pytest.mark.parametrize("window", [-1, 300])
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("target", INSTRUCTIONS)
def test_packed_sequences_follow_what_clears_in_one_launch_or_hoppers_three(
    target: str, D: int, window: int
) -> None:
    """Beside scales of sequences, which take most registers."""

    def call() -> None:
        flavour = torch.float8_e4m3fnuz if target == "gfx942" else torch.float8_e4m3fn
        q, k, v = (torch.empty((900, heads, D), dtype=flavour) for heads in (8, 2, 2))
        ends = torch.tensor([0, 400, 900], dtype=torch.int32)
        scales = {f"{x}_scale": torch.ones(2, h) for x, h in (("q", 8), ("k", 2), ("v", 2))}
        options = {"causal": True, "window_size": (window, -1), **scales}
        flash_attention_varlen(q, k, v, ends, ends, 500, 500, **options)

    recording = record(call, get(target))
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    hoppers = ["list_tiles", "attention_forward_fp8_hopper_prepare", "attention_forward_fp8_hopper"]
    own = target == "sm_90" and window < 0
    assert names == ["clear_behind", *(hoppers if own else ["attention_forward"])]
    code = read_code(recording.launches[-1].kernel)
    assert (code.spilled_bytes, code.advisories) == (0, ())
    opcodes = " ".join(one.opcode for one in code.program.instructions)
    assert re.search(INSTRUCTIONS[target], opcodes)


@pytest.mark.parametrize("name", ["attention-fp8-", "matmul-fp8-", "attention-kvcache-"])
def test_commits_before_fp8_are_not_applicable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(*arguments: Any) -> None:
        raise AssertionError("called without scales")

    workloads = [one for one in all_workloads() if one.name.startswith(name) and "fp8" in one.name]
    monkeypatch.delattr(targets.Target, "fp8_dtypes")
    monkeypatch.setattr(f"kernels.{workloads[0].kernel}", before)
    found = measure(workloads[0], get("sm_90"))
    assert found.status == "not applicable", found.detail
