"""What six compilers make of attention whose scores are asked everything at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.workloads.attention import AttentionWorkload
from kernels.attention.portable.tuning.scored import ALONE_BACKWARD
from tests.kernels.on_card import portable
from tests.meetings import meet, on_targets
from warpwatch.config.targets import Target, get
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.instruments.compiled.record import driver
from warpwatch.workload.base import Inputs

pytestmark = pytest.mark.sampled

# As warpwatch.config.metrics defines tensor_core_level: mma.sync and MFMA, wgmma, tcgen05.
LEVEL = {"sm_80": 1, "sm_90": 2, "sm_100": 3, "gfx90a": 1, "gfx942": 1, "gfx950": 1}


@dataclass(frozen=True, kw_only=True)
class Everything(AttentionWorkload):
    """Softcap, ALiBi, sinks, bias, dropout and a block-sparse mask in one call; or of these a bias
    and a mask, or the one that ``alone`` names, whose keys and values, if ``misaligned``, no
    descriptor holds."""

    backward: bool = False
    few: bool = False
    alone: str = ""
    misaligned: bool = False
    forward: bool = True

    def call(self, inputs: Inputs) -> Any:
        import torch

        import kernels

        leaves = [inputs[name].requires_grad_(self.backward) for name in "qkv"]
        like = {"device": leaves[0].device}
        bias = torch.empty(1, self.H, self.S, self.keys, dtype=leaves[0].dtype, **like)
        by_head = torch.empty(self.H, **like)
        more: dict[str, Any] = {
            "softcap": 30.0,
            "alibi_slopes": by_head,
            "sinks": by_head.clone().requires_grad_(self.backward),
            "dropout_p": 0.1,
        }
        if self.misaligned:
            shape = (*leaves[1].shape[:-1], self.D + 1)
            wide = leaves[1].new_empty(shape)
            leaves[1:] = wide[..., :-1], wide[..., 1:]
        if self.alone:
            blocks = -(-self.S // 128)
            more["block_mask"] = torch.ones(1, 1, blocks, blocks, dtype=torch.bool, **like)
            more["bias"] = bias
            if self.alone == "bias_fp32":
                more["bias"] = bias.float()
            if self.alone == "bias_uneven":
                # Rows an odd number of elements apart.
                more["bias"] = bias.new_empty(1, self.H, self.S, self.keys + 1)[..., :-1]
            if self.alone == "bias_bool":
                more["bias"] = bias.bool()
            if self.alone == "bias_by_head":
                more["bias"] = bias[..., :1, :1]
            name = "bias" if self.alone.startswith("bias_") else self.alone
            if not self.forward:
                return self._gradients(*leaves, name, more[name])
            one = {name: more[name], "exact_gradients": False}
            out = kernels.flash_attention(*leaves, causal=self.causal, **one)
            return torch.autograd.grad(out, leaves, torch.empty_like(out)) if self.backward else out
        out = kernels.flash_attention(
            *leaves,
            causal=self.causal,
            exact_gradients=False,  # test_compiled_exact.py has their launch
            window_size=(self.window, -1),
            bias=bias.requires_grad_(self.backward),
            block_mask=torch.ones(1, 1, self.S // 128, self.S // 128, dtype=torch.bool, **like),
            **({} if self.few else more),
        )
        return torch.autograd.grad(out, leaves, torch.empty_like(out)) if self.backward else out

    def _gradients(self, q: Any, k: Any, v: Any, name: str, value: Any) -> Any:
        """By what autograd launches."""
        import torch

        from kernels.attention.common.options import Options, checked
        from kernels.attention.common.problem import Given, Mask, Problem
        from kernels.attention.dispatch import backward as gradients

        out, lse = torch.empty_like(q), q.new_empty(self.B, self.H, self.S, dtype=torch.float32)
        given = {{"alibi_slopes": "slopes", "dropout_p": "dropout"}.get(name, name): value}
        scores = (self.B, self.H, self.S, self.keys)
        options = Options(*checked(q, scores, **given, exact_gradients=False))
        mask = Mask(self.causal, self.keys - self.S, None)
        problem = Problem(q.detach(), k, v, mask, self.D**-0.5, None, options)
        return gradients.launch(problem, Given(out, None, out, lse))


def launched(measured: Any) -> tuple[list[Any], list[Any]]:
    """What was launched, and what behind it for rows of scores far from 0, as a bias has them."""
    ours = [one for one in measured.evidence["launches"] if one["kernel"].startswith("attention_")]
    names = [one["kernel"] for one in ours]
    far: list[Any] = []
    if "attention_far_rows" in names:
        assert names[-3:] == [f"attention_backward_{name}" for name in ("rows", "q", "kv")]
        ours, far = ours[:-3], ours[-3:]
        ours.remove(next(one for one in ours if one["kernel"] == "attention_far_rows"))
    # wgmma wants 64 rows, and these kernels have fewer.
    assert all(one["spilled_bytes"] == 0 and one["tensor_core_level"] > 0 for one in far)
    return ours, far


def check(D: int, target: Target, *, backward: bool = False, few: bool = False) -> None:
    workload = Everything(
        group="test",
        dtype="bf16",
        B=2,
        S=512,
        H=8,
        D=D,
        causal=True,
        window=300,
        backward=backward,
        few=few,
    )
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    # Such as that ptxas waits for every wgmma by itself (C7515).
    assert measured.values["advisories"] == 0
    ours, far = launched(measured)
    assert len(far) == (3 if backward else 0)
    # The forward pass; of a causal problem the first rows, which see few keys, tell their delta
    # once more.
    assert len(ours) == (5 if backward else 1)
    for one in ours:
        assert one["spilled_bytes"] == 0, one["kernel"]
        if one["kernel"] != "attention_backward_delta":
            assert one["tensor_core_level"] == LEVEL[target.name], one["kernel"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("D", "target"),
    [*on_targets(128, 64), (128, get("sm_100"))],
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_both_passes_spill_nothing_and_take_the_best_tensor_cores(D: int, target: Target) -> None:
    check(D, target, backward=True)


def test_both_passes_in_fp32_compile_where_it_is_added_up_in_fp64() -> None:
    workload = Everything(
        group="test", dtype="fp32", B=2, S=512, H=8, D=64, causal=True, window=300, backward=True
    )
    measured = measure(workload, get("sm_80"))  # the least memory of those that do
    assert measured.status == "ok", measured.detail
    launches: Any = measured.evidence["launches"]
    # Three lists of blocks, the forward pass; sums of weights, the two gradients.
    assert len(launches) == 7


def test_forward_of_narrow_heads_is_advised_of_nothing_on_hopper() -> None:
    check(64, get("sm_90"), few=True)


# Two programs a multiprocessor, as many as of attention without options.
@pytest.mark.parametrize(
    ("alone", "causal"),
    meet(["softcap", "sinks", "bias", "dropout_p", "block_mask"], [True, False]),
)
def test_one_option_alone_fits_hopper_twice(alone: str, causal: bool) -> None:
    workload = Everything(
        group="test", dtype="bf16", B=4, S=4096, H=16, D=128, causal=causal, alone=alone
    )
    measured = measure(workload, get("sm_90"))
    assert measured.status == "ok", measured.detail
    assert measured.values["advisories"] == 0
    launches: Any = measured.evidence["launches"]
    (one,) = (one for one in launches if one["kernel"].startswith("attention_"))
    assert one["spilled_bytes"] == 0
    assert one["tensor_core_level"] == 2
    assert one["occupancy"]["blocks"] == 2


@pytest.mark.parametrize("name", ["sm_90", "gfx950"])
def test_softcap_in_16_bits_takes_no_division_to_the_last_place(name: str) -> None:
    workload = Everything(
        group="test", dtype="bf16", B=1, S=512, H=2, D=64, causal=True, alone="softcap"
    )
    with portable(), driver.active(get(name)) as recorder:
        workload.call(workload.inputs("cpu", values="none"))
    assert recorder.failures == []
    (one,) = recorder.launches
    text = one.kernel.texts["ptx" if name == "sm_90" else "amdgcn"]
    short = "div.approx" if name == "sm_90" else "v_rcp_f32"
    # Of a row's sum and of two scalars there are a few.
    others = sum(text.count(word) for word in ("div.full", "div.rn", "v_div_scale", "rsqrt"))
    assert text.count(short) > 4 * others


ELSEWHERE = [
    *(("dropout_p", 128, get(name), False) for name in ("sm_80", "sm_100", "gfx90a", "gfx950")),
    ("block_mask", 64, get("sm_90"), True),
    ("dropout_p", 128, get("sm_90"), True),
    ("dropout_p", 128, get("sm_100"), True),
]


@pytest.mark.parametrize(
    ("alone", "D", "target", "misaligned"),
    ELSEWHERE,
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_one_option_alone_spills_nothing(
    alone: str, D: int, target: Target, misaligned: bool
) -> None:
    workload = Everything(
        group="test",
        dtype="bf16",
        B=4,
        S=4000,
        H=16,
        D=D,
        causal=True,
        alone=alone,
        misaligned=misaligned,
    )
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["advisories"] == 0
    launches: Any = measured.evidence["launches"]
    (one,) = (one for one in launches if one["kernel"].startswith("attention_"))
    assert one["spilled_bytes"] == 0
    assert one["tensor_core_level"] == LEVEL[target.name]


# 16 does not divide the rows of these, or one value serves a head: the tiles of an even bias
# spilled up to 1092 bytes of them.
@pytest.mark.parametrize(
    ("alone", "D", "causal", "target"),
    [
        ("bias", 64, True, get("sm_80")),
        ("bias_by_head", 64, True, get("sm_80")),
        ("bias_bool", 128, True, get("sm_80")),
        ("bias_fp32", 128, False, get("sm_80")),
        ("bias_bool", 64, True, get("sm_90")),
        ("bias_bool", 128, True, get("sm_100")),
    ],
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_both_passes_of_an_uneven_bias_spill_nothing(
    alone: str, D: int, causal: bool, target: Target
) -> None:
    workload = Everything(
        group="test",
        dtype="bf16",
        B=2,
        S=1000,
        H=8,
        G=2,
        D=D,
        causal=causal,
        alone=alone,
        backward=True,
    )
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    ours, far = launched(measured)
    assert len(far) == (0 if alone == "bias_bool" else 3)
    # The forward pass, and as at ``check`` its gradients.
    assert len(ours) == 4 + causal
    for one in ours:
        if one["kernel"] != "attention_backward_delta":
            assert one["tensor_core_level"] == LEVEL[target.name], one["kernel"]


@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("alone", ["bias", "bias_fp32", "bias_by_head"])
def test_an_uneven_bias_spills_nothing_forward_on_hopper(alone: str, D: int) -> None:
    S = 1024 if alone == "bias_by_head" else 1000
    shape: dict[str, Any] = {"dtype": "bf16", "B": 2, "S": S, "H": 8, "D": D, "causal": True}
    measured = measure(Everything(group="test", alone=alone, **shape), get("sm_90"))
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.values["tensor_core_level"] == LEVEL["sm_90"]


# By the name of the argument.
ARGUMENTS = {"slopes": "alibi_slopes", "dropout": "dropout_p"}
SHARED = [ARGUMENTS.get(kind, kind) for kind in ALONE_BACKWARD]
GRADIENTS = [
    pytest.param(
        ARGUMENTS.get(kind, kind),
        D,
        get(name),
        marks=() if name == "sm_90" else pytest.mark.slow,
        id=f"{kind}-{name}-{D}",
    )
    for kind, targets in ALONE_BACKWARD.items()
    for name, rows in targets.items()
    for D in rows
    if D <= 128
]


# Where heads share keys, 128 wide ones have the registers by other tiles.
@pytest.mark.parametrize(
    ("alone", "D", "target", "G"),
    [pytest.param(*one.values, 0, marks=one.marks, id=one.id) for one in GRADIENTS]
    + [pytest.param(one, 128, get("sm_90"), 4, id=f"{one}-shared") for one in SHARED],
)
def test_gradients_of_one_option_alone_spill_nothing_and_take_the_best_tensor_cores(
    alone: str, D: int, target: Target, G: int
) -> None:
    workload = Everything(
        group="test",
        dtype="bf16",
        B=4,
        S=4096,
        H=16,
        G=G,
        D=D,
        # Of a block mask the loops without causal are the longer ones.
        causal=not (G and alone == "block_mask"),
        alone=alone,
        backward=True,
        forward=False,
    )
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["advisories"] == 0
    found, far = launched(measured)
    assert len(far) == (3 if alone.startswith("bias") else 0)
    ours = {one["kernel"]: one for one in found if one["kernel"].startswith("attention_back")}
    assert len(ours) == (4 if workload.causal else 3)
    for name, one in ours.items():
        assert one["spilled_bytes"] == 0, name
        if name != "attention_backward_delta":
            assert one["tensor_core_level"] == LEVEL[target.name], name
    if target.name == "sm_90" and D == 128:
        # As many programs a multiprocessor as without options.
        assert ours["attention_backward_kv"]["occupancy"]["blocks"] == 2
