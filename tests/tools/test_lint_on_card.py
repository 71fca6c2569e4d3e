"""A job of tuned configurations for a card: kernels from a library, and tables linted for real."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.harness.lint_on_card import counting, lint, timing
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


def test_a_job_holds_what_fell_and_all_others(library: Path, tmp_path: Path) -> None:
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


def row(name: str) -> dict[str, Any]:
    return {"name": name, "config": {"is": name}, "predicted_us": 1.0}


def case_of(fell: Sequence[str], others: Sequence[str], table: str = "t.json") -> dict[str, Any]:
    shape = {"M": 64, "N": 128}
    case = {"kernel": "block_int8", "table": table, "tuned_for": "sm_80", "shape": shape}
    spilled = [{**row(one), "reasons": ["registers spill"]} for one in fell]
    return {**case, "fell": spilled, "others": [row(one) for one in others]}


def timed_on(us: Mapping[str, float], case: Mapping[str, Any]) -> dict[str, Any]:
    """What a card writes, on a software card whose configurations take ``us``."""
    gpu = FakeGpu()

    def launch(config: Mapping[str, str]) -> None:
        gpu.script = Script(us=us[config["is"]])

    times = timing.case_times(gpu, launch, case, seconds=5.0)
    found: dict[str, Any] = json.loads(json.dumps({"cases": [counting.with_times(case, times)]}))
    return found


def test_what_fell_is_held_against_the_best_of_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One configuration does not fit: no other is slower."""
    case = case_of(["fell", "too-large", "equal"], ["best", "other"])
    times = timed_on({"fell": 25.0, "equal": 20.1, "best": 20.0, "other": 22.0}, case)
    assert "too-large does not run: KeyError" in capsys.readouterr().out
    found = counting.counted({"cases": [case]}, times)
    assert found.ratios == pytest.approx([1.25, math.inf, 1.005], rel=0.01)
    assert "(sm_80) M=64 N=128: best 20.0 us" in found.lines[0]
    assert "registers spill" in found.lines[1]
    assert found.summary.startswith("2 of 3 configurations that fell are at least 10 % slower")
    assert not found.is_enough


def test_a_newer_lint_is_held_against_times_that_a_card_wrote() -> None:
    """The best of the others is another where other configurations fell, and a configuration is
    known by what it holds, not by its name."""
    us = {"a": 25.0, "b": 20.0, "c": 22.0}
    times = timed_on(us, case_of(["a", "b"], ["c"]))
    assert counting.counted({"cases": [case_of(["a", "b"], ["c"])]}, times).slower == 1
    newer = case_of(["a"], ["c", "b"])
    newer["fell"][0]["name"] = "renamed"
    newer["others"].append(row("never timed"))
    found = counting.counted({"cases": [newer, case_of(["a"], ["b"], table="new")]}, times)
    assert found.ratios == pytest.approx([1.25], rel=0.01)
    assert found.is_enough
    assert [one.strip() for one in found.lines if "no time" in one] == [
        "1 configurations have no time",
        "1 cases have no time",
    ]
    with pytest.raises(ValueError, match="got times of none of them"):
        counting.counted({"cases": [case_of(["a"], ["b"], table="new")]}, times)
