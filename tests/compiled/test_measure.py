"""One workload on one target: values and statuses."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from warpwatch.config import metrics, targets
from warpwatch.config import package as configuration
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.workload.base import Inputs, Values, Workload

H200 = targets.get("sm_90")


@triton.jit
def double(x, y, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


@triton.jit
def renamed(source, y, n, N: tl.constexpr):
    # The same as double under another name, with a comment.
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(source + o, mask=o < n) * 2, mask=o < n)


@triton.jit
def triple(x, y, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 3 + 1, mask=o < n)


def calls(kernel: Any, *, copy: bool = False) -> Any:
    def call(x: torch.Tensor) -> torch.Tensor:
        x = x.t().contiguous() if copy else x
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), N=512)
        return y

    return call


@dataclass(frozen=True, kw_only=True)
class Doubling(Workload):
    kernel: str = "doubled"
    group: str = "test"
    dtype: str = "fp32"

    @property
    def name(self) -> str:
        return "doubled-fp32-64x1000"

    @property
    def flops(self) -> int:
        return 64000

    @property
    def bytes_moved(self) -> int:
        return 2 * 4 * 64000

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        return {"x": torch.empty(64, 1000, device=device)}

    def call(self, inputs: Inputs) -> Any:
        import kernels

        return kernels.doubled(inputs["x"])

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        return inputs["x"] * 2


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A measured package that stands in for a commit's ``kernels``."""
    module = types.ModuleType("kernels")
    monkeypatch.setitem(sys.modules, "kernels", module)
    yield module


def measured(package: types.ModuleType, function: Any) -> Measurement:
    package.doubled = function
    return measure(Doubling(), H200)


def test_every_metric_has_a_value_or_does_not_apply(package: types.ModuleType) -> None:
    found = measured(package, calls(double))
    assert (found.status, found.detail) == ("ok", "")
    assert set(found.values) == {metric.name for metric in metrics.COMPILED}
    missing = {name for name, value in found.values.items() if math.isnan(value)}
    assert missing == {"async_copy_level", "bound_utilization"}  # nothing is multiplied
    assert found.values["launches"] == 1
    assert found.values["bound_us"] == pytest.approx(2 * 4 * 64000 / 4.8e6)


def test_the_evidence_holds_all_that_is_read() -> None:
    found = measure(
        configuration.workloads().get("sdpa-fp16-B12-S256-H64-D64"), targets.get("sm_80")
    )
    (launch,) = found.evidence["launches"]
    occupied = launch["occupancy"]
    assert occupied["blocks"] == min(occupied["limits"].values())
    assert occupied["blocks"] == occupied["limits"][occupied["limited_by"]]
    slots = occupied["blocks"] * 108  # multiprocessors of an A100
    programs = launch["grid"][0]
    assert occupied["waves"] == pytest.approx(programs / slots, abs=1e-3)
    assert occupied["last_wave_fill"] == pytest.approx(
        (programs % slots or slots) / slots, abs=1e-3
    )
    whole, (loop,) = launch["instructions"], launch["hot_loops"]
    for kind in ("tensor", "special", "fma", "integer", "shared"):
        assert 0 < loop[kind] <= whole[kind], kind
    assert whole["global"] > 0 and whole["barrier"] > 0
    # Every SASS instruction of these cards is 16 bytes; the rest is padding.
    assert 16 * sum(whole.values()) <= launch["code_bytes"]
    assert 0 < launch["compile_seconds"] < 100
    assert launch["registers"] > 0 and launch["shared_bytes"] > 0
    assert launch["advisories"] == [] and launch["unknown_instructions"] == []


def test_an_extra_copy_is_a_launch_its_bytes_and_time(package: types.ModuleType) -> None:
    plain, copying = (measured(package, calls(double, copy=copy)) for copy in (False, True))
    assert copying.values["copied_bytes"] == 4 * 64000
    assert copying.values["launches"] == plain.values["launches"] + 1
    assert copying.values["bound_us"] == pytest.approx(2 * plain.values["bound_us"])
    (operation,) = copying.evidence["torch_ops"]
    assert operation["name"] == "aten.clone"


def test_a_commit_without_the_kernel_is_not_applicable(package: types.ModuleType) -> None:
    found = measure(Doubling(), H200)
    assert (found.status, found.detail) == ("not applicable", "kernels has no doubled")
    assert all(math.isnan(value) for value in found.values.values())


def test_a_commit_that_does_not_import_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kernels.py").write_text("raise RuntimeError('half a merge')\n")
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = measure(Doubling(), H200)
    assert found.status == "import failed"
    assert found.detail == "import kernels: RuntimeError: half a merge (kernels.py:1)"


def test_host_code_that_raises_is_one_clear_row(package: types.ModuleType) -> None:
    def broken(x: torch.Tensor) -> None:
        raise TypeError("expected 4 dimensions, got 2\nand more")

    found = measured(package, broken)
    assert found.status == "call failed"
    assert found.detail.startswith("TypeError: expected 4 dimensions, got 2 (")
    assert found.values["compile_failures"] == 1
    assert math.isnan(found.values["launches"])


def hash_of(found: Measurement) -> str:
    (launch,) = found.evidence["launches"]
    return str(launch["code"])


def test_names_and_comments_do_not_change_the_code(package: types.ModuleType) -> None:
    one, other, different = (
        measured(package, calls(kernel)) for kernel in (double, renamed, triple)
    )
    assert hash_of(one) == hash_of(other)
    assert one.code == other.code
    assert hash_of(one) != hash_of(different)
