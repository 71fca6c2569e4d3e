"""What six compilers make of the launch that corrects gradients of 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.workloads.attention import AttentionWorkload
from tests.meetings import on_targets
from warpwatch.config.targets import Target, get
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.workload.base import Inputs

# As warpwatch.config.metrics defines tensor_core_level: mma.sync and MFMA, wgmma, tcgen05.
LEVEL = {"sm_80": 1, "sm_90": 2, "sm_100": 3, "gfx90a": 1, "gfx942": 1, "gfx950": 1}
KERNEL = "attention_backward_marked"


@dataclass(frozen=True, kw_only=True)
class Gradients(AttentionWorkload):
    """Those of ``flash_attention``."""

    def call(self, inputs: Inputs) -> Any:
        import torch

        import kernels

        leaves = [inputs[name].requires_grad_() for name in "qkv"]
        out = kernels.flash_attention(*leaves, causal=self.causal)
        return torch.autograd.grad(out, leaves, torch.empty_like(out))


@dataclass(frozen=True, kw_only=True)
class Everything(AttentionWorkload):
    """The launch alone, beside all that may be asked of scores at once."""

    def call(self, inputs: Inputs) -> Any:
        import torch

        from kernels.attention.common.options import Options
        from kernels.attention.common.problem import Given, Mask, Problem
        from kernels.attention.portable.backward import heavy_rows

        q, k, v = (inputs[name] for name in "qkv")

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(*shape, dtype=dtype, device=q.device)

        blocks = self.S // 128
        options = Options(
            softcap=30.0,
            slopes=empty(self.H).expand(self.B, self.H),
            sinks=empty(self.H),
            dropout=0.1,
            seed=empty(1, dtype=torch.int64),
            bias=empty(1, self.H, self.S, self.S, dtype=q.dtype),
            block_mask=empty(1, 1, blocks, blocks, dtype=torch.bool),
            block_rows=128,
            block_columns=128,
        )
        lse = empty(self.B, self.H, self.S)
        problem = Problem(q, k, v, Mask(True, 0, -256), 0.1, None, options)
        return heavy_rows.launch(problem, Given(q, lse, q, lse))


SHAPE: dict[str, Any] = {"group": "test", "dtype": "bf16", "B": 2, "S": 2048, "H": 8}


@pytest.mark.parametrize(
    ("D", "target"),
    on_targets(64, 128),
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_they_take_one_launch_more_and_spill_nothing(D: int, target: Target) -> None:
    measured = measure(Gradients(**SHAPE, D=D, causal=True), target)
    assert measured.status == "ok", measured.detail
    names = [one["kernel"] for one in measured.evidence["launches"]]
    # Hopper's own is tests/hopper's.
    hopper = "attention_backward_hopper_marked"
    assert names[1] == (hopper if target.name == "sm_90" else KERNEL)
    # The queries' kernel of sm_80 has no registers for it.
    assert ("attention_backward_delta" in names) == (target.name == "sm_80" and D > 64)
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.values["tensor_core_level"] == LEVEL[target.name]


@pytest.mark.parametrize(
    ("D", "target"),
    [*on_targets(128, 64), (64, get("sm_80")), (128, get("gfx950"))],
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_beside_everything_it_spills_nothing(D: int, target: Target) -> None:
    measured = measure(Everything(**SHAPE, D=D), target)
    assert measured.status == "ok", measured.detail
    assert KERNEL in [one["kernel"] for one in measured.evidence["launches"]]
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.values["tensor_core_level"] == LEVEL[target.name]
