"""flash_attention in fp8 against fp64 of its own dequantised inputs, and what compilers make of it.

The bounds. Products of e4m3 values are exact in fp32, so scores, maximum, row sum and log-sum-exp
are those of an fp32 kernel. Only the weights lose: p lies between 0 and 1, is taken 2^8 (fnuz: 2^7)
times as large and rounded to e4m3, which has 3 bits after the leading one and its smallest step at
2^-9 (2^-10). So a weight is off by 2^-4 of itself or by 2^-18, whichever is more, and

    |out - truth| <= v_scale * sum_j (2^-4 w_j + 2^-18) |v_j|  +  rounding to the output's dtype

with w the normalised weights; dividing by a row sum of at least 1 only makes the second part less.
The scores' fp32 rounding is allowed 2^-14 of the first sum. The RMS error is held to 1.1 times that
of the same formula in which PyTorch rounds the weights, which is far below the bound.
"""

from __future__ import annotations

import lzma
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from benchmarks.instruments.compiled import measure
from benchmarks.targets import get
from benchmarks.workloads import all_workloads
from benchmarks.workloads.attention import plain_attention
from benchmarks.workloads.attention_fp8 import Fp8AttentionWorkload
from kernels import targets
from kernels.attention import fp8
from tests.kernels.interpreted import Worker, strided


@dataclass(frozen=True, kw_only=True)
class Case:
    S: int = 70
    KV: int = 70
    H: int = 2
    G: int = 2
    D: int = 64
    DV: int = 64
    flavour: str = "float8_e4m3fn"
    out: str = "bfloat16"
    scales: str = "none"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    view: str = "contiguous"
    scale: float | None = None

    def __str__(self) -> str:
        mask = "causal" if self.causal else "full"
        window = "" if self.window == (-1, -1) else f"-window{self.window[0]},{self.window[1]}"
        shape = f"S{self.S}-KV{self.KV}-H{self.H}-G{self.G}-D{self.D}-DV{self.DV}"
        sign = "" if self.scale is None else f"-scale{self.scale}"
        kind = self.flavour.removeprefix("float8_")
        return f"{kind}-{self.out}-{shape}-{mask}{window}-{self.view}-{self.scales}{sign}"

    def arguments(self) -> dict[str, Any]:
        dtype = getattr(torch, self.flavour)
        made: dict[str, Any] = {}
        for seed, (name, rows, heads, columns) in enumerate(
            (
                ("q", self.S, self.H, self.D),
                ("k", self.KV, self.G, self.D),
                ("v", self.KV, self.G, self.DV),
            )
        ):
            made[name] = strided((2, rows, heads, columns), self.view, dtype, seed)
            if self.scales == "heads":
                made[f"{name}_scale"] = torch.linspace(0.5, 2.0, heads)
            elif self.scales == "tensor":
                made[f"{name}_scale"] = torch.tensor(1.7 - 0.5 * seed)
        return made


CASES = [
    Case(scales="tensor"),
    Case(S=33, KV=90, H=4, G=2, D=32, DV=16, causal=True, scales="heads", view="transposed"),
    Case(S=90, KV=20, D=40, causal=True, out="float32", view="padded"),
    Case(window=(10, 4), KV=130, D=72, DV=40, out="float16", view="skipping"),
    Case(S=1, KV=65, D=128, DV=128, causal=True, scales="heads"),
    Case(flavour="float8_e4m3fnuz", H=4, G=1, causal=True, window=(30, -1), scales="tensor"),
    Case(flavour="float8_e4m3fnuz", KV=0, out="float32"),
    Case(scale=-0.1, D=16, DV=16),
]


def run(case: Case, score: float = 2.0**-21) -> dict[str, float]:
    """Excess over each bound of the module's docstring; RMS errors. ``score`` is what one may lose
    of the largest."""
    import kernels

    made = case.arguments()
    out, lse = kernels.flash_attention(
        **made,
        causal=case.causal,
        window_size=case.window,
        softmax_scale=case.scale,
        out_dtype=None if case.out == "bfloat16" else getattr(torch, case.out),
        return_lse=True,
    )
    q, k, v = (
        made[name].double() * torch.as_tensor(made.get(f"{name}_scale", 1.0)).double()[..., None]
        for name in "qkv"
    )
    left, right = case.window
    right = 0 if case.causal else right
    masks: dict[str, Any] = {
        "causal_offset": None if right < 0 else case.KV - case.S + right,
        "left_offset": None if left < 0 else case.KV - case.S - left,
        "scale": case.scale,
    }
    truth, true_lse = plain_attention(q, k, v, **masks)
    weighted = plain_attention(q, k, v.abs(), **masks)[0]
    total = v.abs().sum(1, keepdim=True).repeat_interleave(case.H // case.G, 2)
    eps = torch.finfo(out.dtype).eps
    bound = (2.0**-4 + 2.0**7 * score) * weighted + 2.0**-18 * total + eps * truth.abs() + 1e-37
    error = (out.double() - truth).abs()

    assert out.dtype == getattr(torch, case.out)
    empty = true_lse == float("-inf")
    assert torch.equal(lse[empty].double(), true_lse[empty])
    assert not out.transpose(1, 2)[empty].any()
    scores = torch.einsum("bshd,bthd->bhst", q, k.repeat_interleave(case.H // case.G, 2))
    largest = float(scores.abs().max()) if scores.numel() else 0.0
    rounded = _rounded(case, q, k, v, masks).to(out.dtype).double() - truth
    # With one key the rounded weight is exact: what remains is a score's last place in fp32.
    last_place = torch.finfo(torch.float32).eps * max(largest, 1.0) * truth
    return {
        "excess": float((error - bound).max()),
        "share": float((error / bound).max()),
        "lse": float((lse.double() - true_lse)[~empty].abs().max()) if (~empty).any() else 0.0,
        "lse_bound": score * max(largest, 1.0),
        "rms": float(error.square().mean().sqrt()),
        "rounded_rms": float((rounded.square() + last_place.square()).mean().sqrt()),
        "empty_rows": float(empty.sum()),
    }


def _rounded(case: Case, q: Any, k: Any, v: Any, masks: dict[str, Any]) -> torch.Tensor:
    """The plain formula with weights that PyTorch rounds to the flavour, 2^8 or 2^7 as large."""
    B, S, H, D = q.shape
    keys = k.shape[1]
    dtype = getattr(torch, case.flavour)
    k, v = (one.repeat_interleave(H // case.G, 2) for one in (k, v))
    scale = D**-0.5 if masks["scale"] is None else masks["scale"]
    scores = torch.einsum("bshd,bthd->bhst", q, k) * scale
    rows, columns = torch.arange(S)[:, None], torch.arange(keys)[None, :]
    for offset, late in ((masks["causal_offset"], True), (masks["left_offset"], False)):
        if offset is not None:
            hidden = columns > rows + offset if late else columns < rows + offset
            scores = scores.masked_fill(hidden, float("-inf"))
    if keys == 0:
        return torch.zeros(B, S, H, v.shape[3], dtype=torch.float64)
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == float("-inf"), 0.0, top))
    factor = 2.0 ** fp8.OFFSET[dtype]
    products = torch.einsum("bhst,bthd->bshd", (weights * factor).to(dtype).double() / factor, v)
    return products / weights.sum(-1).clamp_min(1e-300).transpose(1, 2)[..., None]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_the_bounds_of_rounded_weights(interpreter: Worker, case: Case) -> None:
    found = interpreter.run(run, case)
    assert found["excess"] <= 0.0, found
    assert found["lse"] <= found["lse_bound"], found
    assert found["rms"] <= 1.1 * found["rounded_rms"] + 1e-12, found
    assert (found["empty_rows"] > 0) == (case.S > case.KV), found


def small_weights() -> list[float]:
    """One key of weight 1 whose value is 0, and one of weight 2^-e whose value is 256."""
    import kernels

    found = []
    for exponent in (6, 10, 13):
        q = torch.zeros(1, 1, 1, 32)
        q[..., 0] = 1.0
        k = torch.zeros(1, 2, 1, 32)
        k[0, 1, 0, 0] = -exponent
        v = torch.zeros(1, 2, 1, 32)
        v[0, 1] = 256.0
        q, k, v = (one.to(torch.float8_e4m3fn) for one in (q, k, v))
        out = kernels.flash_attention(q, k, v, softmax_scale=0.6931471805599453)
        assert isinstance(out, torch.Tensor)
        found.append(float(out[0, 0, 0, 0]) * (1 + 2.0**-exponent) / 256 * 2.0**exponent)
    return found


def test_weights_below_the_smallest_of_e4m3_still_count(interpreter: Worker) -> None:
    # Unscaled, 2^-10 and 2^-13 would be zero: e4m3 ends at 2^-9.
    assert interpreter.run(small_weights) == pytest.approx([1.0] * 3, rel=2.0**-7)


def propagation() -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    q, k, v = (Case(S=20, KV=20, G=1).arguments()[name] for name in "qkv")
    broken = v.clone()
    broken[0, 10, 0, 3] = float("nan")
    in_v = kernels.flash_attention(q, k, broken, causal=True)
    k[1, 12] = float("nan")
    in_k = kernels.flash_attention(q, k, v, causal=True)
    assert isinstance(in_v, torch.Tensor) and isinstance(in_k, torch.Tensor)
    return in_v, in_k


def test_nan_goes_where_the_formula_takes_it(interpreter: Worker) -> None:
    in_v, in_k = interpreter.run(propagation)
    # A masked weight is 0, and 0 times NaN is NaN in the formula, too.
    assert in_v[0, 10:, :, 3].isnan().all()
    assert not in_v[..., torch.arange(64) != 3].isnan().any() and not in_v[1].isnan().any()
    wanted = torch.zeros(in_k.shape, dtype=torch.bool)
    wanted[1, 12:] = True
    assert torch.equal(in_k.isnan(), wanted)


def run_operator() -> tuple[dict[str, str], bool, torch.Tensor, torch.Tensor]:
    import kernels

    given = Case(scales="heads", D=32, DV=32).arguments()
    made = {name: given[name] for name in ("q", "k", "v", "q_scale", "k_scale", "v_scale")}
    before = [one.view(torch.uint8).clone() for one in made.values()]
    operator = torch.ops.warpwatch.flash_attention_fp8
    outcome = torch.library.opcheck(
        operator,
        (*made.values(), True, 0, -3, 0.25, torch.float16),
        # test_schema compares its inputs by an operation torch lacks for float8 on CPUs: below.
        test_utils=("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
    after = [one.view(torch.uint8) for one in made.values()]
    untouched = all(map(torch.equal, before, after))

    def model(q: Any, k: Any, v: Any, **scales: Any) -> Any:
        return kernels.flash_attention(q, k, v, causal=True, **scales) * 2.0

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(**made)
    return outcome, untouched, compiled, model(**made)


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, untouched, compiled, eager = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"} and untouched
    assert torch.equal(compiled, eager)


Q = torch.zeros(1, 4, 4, 32, dtype=torch.float8_e4m3fn)
K = Q[:, :, :2]
MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "gradient": (
        {"v_scale": torch.ones((), requires_grad=True)},
        NotImplementedError,
        r"^v_scale: expected no gradient where q is fp8.*forward pass alone.*no_grad\(\)",
    ),
    "mixed": ({"v": K.bfloat16()}, ValueError, r"^v: expected dtype .*e4m3fn.*got .*bfloat16"),
    "scale-type": ({"q_scale": 2.0}, TypeError, r"^q_scale: .*shape \(\) or \(4,\).*got float"),
    "scale-shape": (
        {"k_scale": torch.ones(4)},
        ValueError,
        r"^k_scale: .*shape \(\) or \(2,\), one value a head of k, got float32 of shape \(4,\)",
    ),
    "scale-dtype": ({"q_scale": torch.ones(4).half()}, ValueError, r"^q_scale: .*got float16"),
    "scale-device": ({"q_scale": torch.ones(4, device="meta")}, ValueError, r"^q_scale: .*meta"),
    "out-dtype": (
        {"out_dtype": torch.float8_e4m3fn},
        ValueError,
        r"^out_dtype: expected bfloat16, float16, float32 or None",
    ),
    "not-fp8": (
        {"q": Q.half(), "k": K.half(), "v": K.half(), "k_scale": torch.ones(())},
        ValueError,
        r"^k_scale: expected None unless q, k and v are float8_e4m3fn.*q is float16",
    ),
    "e5m2": (
        {name: K.to(torch.float8_e5m2) for name in "qkv"},
        ValueError,
        r"^q: expected dtype float16, bfloat16, float32, got float8_e5m2",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_error_with_its_remedy(
    mistake: tuple[dict[str, Any], type[Exception], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    monkeypatch.setattr("kernels.targets.accepts_cpu_tensors", lambda: True)
    options, error, message = mistake
    with pytest.raises(error, match=message) as raised:
        kernels.flash_attention(**({"q": Q, "k": K, "v": K} | options))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["sm_80", "gfx90a"])
def test_targets_without_fp8_refuse_by_name(name: str) -> None:
    case = Fp8AttentionWorkload(group="test", B=1, S=128, H=1, D=64)
    found = measure(case, get(name))
    assert found.status == "not applicable"
    assert f"q: expected fp16, bf16 or fp32 on {name}, which has no fp8" in found.detail


@pytest.mark.parametrize(
    ("target", "flavour", "has"),
    [
        (targets.Target("gfx942", "hip"), torch.float8_e4m3fn, "float8_e4m3fnuz"),
        (targets.Target("gfx950", "hip"), torch.float8_e4m3fnuz, "float8_e4m3fn"),
        (targets.Target("sm_90", "cuda", 90), torch.float8_e4m3fnuz, "float8_e4m3fn"),
    ],
)
def test_the_other_flavour_is_refused(
    target: targets.Target, flavour: torch.dtype, has: str
) -> None:
    with pytest.raises(ValueError, match=rf"^q: expected dtype {has}, the fp8 that {target.name}"):
        fp8.refuse_other_flavours(Q.float().to(flavour), target)
    fp8.refuse_other_flavours(Q.float().to(getattr(torch, has)), target)


@pytest.mark.parametrize("name", ["attention-fp8-", "matmul-fp8-", "attention-kvcache-"])
def test_commits_before_fp8_are_not_applicable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def before(*arguments: Any) -> None:
        raise AssertionError("called without scales")

    workloads = [one for one in all_workloads() if one.name.startswith(name) and "fp8" in one.name]
    monkeypatch.delattr(targets.Target, "fp8_dtypes")
    monkeypatch.setattr(f"kernels.{workloads[0].kernel}", before)
    found = measure(workloads[0], get("sm_90"))
    assert found.status == "not applicable", found.detail


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
    assert found.values["launches"] == 1
    assert found.values["spilled_bytes"] == 0
    assert found.values["advisories"] == 0
    listing = "".join(lzma.decompress(one).decode() for one in found.code.values())
    assert re.search(INSTRUCTIONS[target], listing)
    assert not re.search(r"HGMMA|UTCHMMA|v_mfma\w+_b?f16", listing)
