"""A job of tuned configurations for a card: kernels from a library, and tables linted for real."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.harness.lint_on_card import lint, timing
from warpwatch.instruments.gpu.card.software import FakeGpu, Script

# A product with scales, called as the libraries' own kernel is.
LIBRARY = '''
import triton
import triton.language as tl
import no_such_library


@triton.jit
def _unused(x):
    return x


@triton.jit
def _scaled(product, a, b):
    return product * a[:, None] * b[None, :]


@triton.jit
def _w8a8_block_fp8_matmul(
    A, B, C, As, Bs, M, N, K, group_n, group_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_As_m, stride_As_k, stride_Bs_k, stride_Bs_n,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """A and B with scales."""
    rows = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = tl.arange(0, BLOCK_SIZE_N)
    inner = tl.arange(0, BLOCK_SIZE_K)
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE_K):
        a = tl.load(A + rows[:, None] * stride_am + (k + inner)[None, :] * stride_ak)
        b = tl.load(B + (k + inner)[:, None] * stride_bk + columns[None, :] * stride_bn)
        a_s = tl.load(As + rows * stride_As_m + k // group_k * stride_As_k)
        b_s = tl.load(Bs + columns // group_n * stride_Bs_n + k // group_k * stride_Bs_k)
        total += _scaled(tl.dot(a, b), a_s, b_s)
    tl.store(C + rows[:, None] * stride_cm + columns[None, :] * stride_cn, total)
'''
TABLE = {
    "1": {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1,
          "num_warps": 8, "num_stages": 3, "waves_per_eu": 0},
    "2": {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1,
          "num_warps": 8, "num_stages": 3, "waves_per_eu": 0},
    "64": {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1,
           "num_warps": 1, "num_stages": 3},
}  # fmt: skip


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(LIBRARY, encoding="utf-8")
    return path


def test_a_kernel_comes_with_what_it_calls_and_nothing_else(library: Path) -> None:
    text = lint.extracted(library, "block_fp8")
    assert "def _scaled" in text and "def _w8a8_block_fp8_matmul" in text
    assert "_unused" not in text and "no_such_library" not in text
    with pytest.raises(ValueError, match="expected a function fused_moe_kernel"):
        lint.extracted(library, "fused_moe")


def test_shapes_come_from_the_name_of_a_table_and_from_what_is_said() -> None:
    name = "E=8,N=3584,device_name=NVIDIA_H200.json"
    assert lint.shapes(name, "fused_moe", "M=64,2048 K=4096 top_k=2") == [
        {"M": rows, "E": 8, "N": 7168, "K": 4096, "top_k": 2} for rows in (64, 2048)
    ]
    assert lint.shapes("N=512,K=7168,device_name=x.json", "block_fp8", "M=8") == [
        {"M": 8, "N": 512, "K": 7168}
    ]
    with pytest.raises(ValueError, match="SHAPE: expected M"):
        lint.shapes(name, "fused_moe", "K=4096")


def test_a_job_holds_what_fell_and_the_fastest_of_the_others(library: Path, tmp_path: Path) -> None:
    table = tmp_path / "N=128,K=1024,device_name=AMD.json"
    table.write_text(json.dumps({"triton_version": "3.4.0", **TABLE}), encoding="utf-8")
    import triton

    cases = [("block_fp8", str(library), str(table), "gfx950", "M=512")]
    job = lint.prepared(cases, triton.__version__)
    (case,) = job["cases"]
    assert case["compared"] == 2  # two rows of the table are one configuration
    (fell,) = case["fell"]
    assert fell["name"] == "64"
    assert any(one.startswith("predicted time") for one in fell["reasons"])
    (other,) = case["others"]
    assert other["config"] == TABLE["2"]
    assert fell["predicted_us"] > 1.25 * other["predicted_us"] > 0
    assert job["sources"].keys() == {"block_fp8"}
    assert json.loads(json.dumps(job)) == job


def test_what_fell_is_timed_next_to_the_fastest_of_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a software card; one configuration does not fit."""
    gpu = FakeGpu()
    us = {"fell": 25.0, "equal": 20.1, "best": 20.0, "other": 22.0}

    def launch(config: Mapping[str, str]) -> None:
        gpu.script = Script(us=us[config["is"]])

    def row(name: str) -> dict[str, Any]:
        return {"name": name, "config": {"is": name}, "predicted_us": 1.0, "reasons": ["spills"]}

    shape = {"M": 64, "N": 128}
    case = {"kernel": "block_int8", "table": "t.json", "tuned_for": "sm_80", "shape": shape}
    case |= {"fell": [row("fell"), row("too-large"), row("equal")]}
    case |= {"others": [row("best"), row("other")]}
    found = timing.ratios(gpu, launch, case, seconds=5.0)
    assert found == pytest.approx([1.25, math.inf, 1.005], rel=0.01)
    said = capsys.readouterr().out
    assert "too-large does not run: KeyError" in said
    assert "(sm_80) M=64 N=128: best 20.0 us" in said
