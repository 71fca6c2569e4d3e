"""Packed sequences of which the first rows alone are used: the others are not read, and written;
nothing is launched more, and nothing spills."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch

from benchmarks.workloads.attention_varlen import VarlenWorkload
from tests.kernels.interpreted import Worker
from tests.kernels.test_attention_varlen import Case, through_descriptors
from tests.meetings import on_targets
from warpwatch.config.targets import Target, get
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.workload.base import Inputs


def run_unused(dtype: str, names: str, sizes: tuple[int, ...]) -> list[list[torch.Tensor]]:
    """Output, log-sum-exp and gradients, the sinks' last, of sequences one behind the other and
    with rows of NaN behind each, ``names`` having them; cut to what is used, and the rest."""
    import kernels

    through_descriptors(False)
    case = Case(q=sizes, k=sizes, H=4, D=16, DV=32, dtype=dtype)
    q, k, v = case.tensors()
    dout = torch.randn((sum(sizes), 4, 32), generator=torch.Generator().manual_seed(5))
    found = []
    for more in ((0,) * len(sizes), tuple(7 * i % 11 + 1 for i in range(len(sizes)))):
        given, keep, ends = [], [], []
        for name, one in zip("qkvd", (q, k, v, dout.to(q.dtype)), strict=True):
            own = more if name.replace("d", "q").replace("v", "k") in names else (0,) * len(sizes)
            parts = [
                torch.cat((part, part.new_full((n, *part.shape[1:]), float("nan"))))
                for part, n in zip(one.split(sizes), own, strict=True)
            ]
            given.append(torch.cat(parts))
            keep.append(~given[-1].isnan().any(-1).any(-1))
            ends.append(torch.tensor([0, *accumulate(map(len, parts))], dtype=torch.int32))
        leaves = [one.requires_grad_() for one in (*given[:3], torch.tensor([0.5, -1.0, 2.0, 0.0]))]
        used = torch.tensor(sizes, dtype=torch.int32)
        out, lse = kernels.flash_attention_varlen(
            *leaves[:3], *ends[:2], max(sizes), max(sizes), causal=True, sinks=leaves[3],
            return_lse=True, **({f"seqused_{name}": used for name in names} if any(more) else {}),
        )  # fmt: skip
        dlse = torch.ones_like(lse).masked_fill(~keep[0], float("nan"))
        *gradients, d_sinks = torch.autograd.grad((out, lse), leaves, (given[3], dlse))
        kept = (keep[0], keep[0], *keep[:3])
        rows = list(zip((out.detach(), lse.detach().t(), *gradients), kept, strict=True))
        found.append([*(one[own] for one, own in rows), d_sinks])
        found.append([one[~own] for one, own in rows])
    alone, _, padded, behind = found
    return [alone, padded, behind]


@pytest.mark.sampled(of=2)
@pytest.mark.parametrize("names", ["q", "k", "qk"])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [("float16", (40, 0, 33)), ("bfloat16", (3,) * 40), ("float32", (5, 20)), ("float16", (0, 0))],
    ids=["float16", "more-than-programs", "float32", "none-used"],
)
def test_rows_that_are_not_used_are_zeros_and_not_read(
    interpreter: Worker, dtype: str, sizes: tuple[int, ...], names: str
) -> None:
    alone, padded, behind = interpreter.run(run_unused, dtype, names, sizes)
    for one, other in zip(alone, padded, strict=True):
        assert torch.equal(one, other) and torch.isfinite(one).all()
    out, lse, *gradients = behind
    assert len(out) > 0 or "q" not in names
    assert len(gradients[1]) > 0 or "k" not in names
    assert not any(one.any() for one in (out, *gradients))
    assert (lse == float("-inf")).all()


@dataclass(frozen=True, kw_only=True)
class Gradients(VarlenWorkload):
    """With their forward pass; ``used``: of each sequence half of the rows."""

    used: bool = False

    def call(self, inputs: Inputs) -> Any:
        import kernels

        leaves = [inputs[name].requires_grad_() for name in "qkv"]
        cu, longest = inputs["cu"], max(self.lengths)
        half = cu.diff() // 2
        options: dict[str, Any] = {"seqused_q": half, "seqused_k": half} if self.used else {}
        out = kernels.flash_attention_varlen(
            *leaves, cu, cu, longest, longest, causal=self.causal, **options
        )
        return torch.autograd.grad(out, leaves, torch.empty_like(out))


# The wider heads once for each vendor.
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("D", "causal", "target"),
    [
        *((128, False, get(name)) for name in ("gfx942", "sm_90")),
        *((64, True, target) for _, target in on_targets(64)),
    ],
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_rows_that_are_not_used_take_no_launch_and_no_spill(
    D: int, causal: bool, target: Target
) -> None:
    whole = Gradients(group="test", dtype="bf16", pack="mixed", H=4, G=2, D=D, causal=causal)
    every, some = (measure(one, target) for one in (whole, replace(whole, used=True)))
    assert (every.status, some.status) == ("ok", "ok"), some.detail
    launches = [[one["kernel"] for one in each.evidence["launches"]] for each in (every, some)]
    assert launches[0] == launches[1]
    assert some.values["spilled_bytes"] == 0
    assert some.values["advisories"] == 0
    assert some.values["copied_bytes"] == every.values["copied_bytes"]
