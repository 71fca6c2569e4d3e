"""flash_attention in fp8 against fp64 of its own dequantised inputs, and what compilers make of it.

The bounds. Products of e4m3 values are exact in fp32, so scores, maximum, row sum and log-sum-exp
are those of an fp32 kernel. Only the weights lose: p lies between 0 and 1, is taken 2^8 (fnuz: 2^7)
times as large and rounded to e4m3, which has 3 bits after the leading one and its smallest step at
2^-9 (2^-10). So a weight is off by 2^-4 of itself or by 2^-18, whichever is more, and

    |out - truth| <= v_scale * sum_j (2^-4 w_j + 2^-18) |v_j|  +  rounding to the output's dtype

with w the normalised weights; dividing by a row sum of at least 1 only makes the second part less.
The scores' fp32 rounding, at most 2^-21 of the largest, moves the log-sum-exp by no more and each
weight by less than 2^-14 of itself. The RMS error is held to 1.1 times that of the same formula in
which PyTorch rounds the weights, which is far below the bound.

Hopper's matrix unit does not add in fp32. It adds 32 products and the sum so far at once, and of
each term drops what is below 2^-13 of the largest sum of two factors' exponents, a subnormal's
being the smallest, or of the exponent of the sum so far; of the sum it keeps 13 binary places after
the first (:func:`unit_scores`). That last cut is most of what head dims up to 32 lose, where there
is one addition: seven log-sum-exps' largest errors on an H200 were 6.506e-4, 7.638e-4, 7.20e-5,
6.21e-5, 2.592e-4, 1.885e-4 and 1.644e-4, and are here 6.506e-4, 7.635e-4, 7.27e-5, 6.22e-5,
2.593e-4, 1.883e-4 and 1.642e-4; without it 1.7e-4, 2.2e-4, 1.5e-5, 1.3e-5, 4.2e-5, 6.2e-5 and
2.6e-5 (seeds 63000449, 455, 881, 883, 885, 886 and 887 of tests/kernels/random_configurations.py;
what remains is fp32). A score is then off by as much as 33 terms are, and
a log-sum-exp, a mean of its scores' errors by weight, by no more than the largest. Every term
loses towards zero and not at random, so that no bound by the root of their number holds, and one
by their number is 50 times what is seen. So there the log-sum-exp is held to twice the largest
error that the plain formula makes with such additions, and the last place of fp32; and a value of
out is allowed twice sum_j w_j |e_j - e| |v_j|, by which scores off by e_j, in the mean by weight e,
move it.
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


SCORE = 2.0**-21  # of the largest, what one may lose in fp32
UNIT_ADDS, UNIT_KEEPS = 32, 13  # products at once on Hopper, binary places of the largest
SMALLEST_E4M3FN, TINY = 2.0**-6, 2.0**-100  # that is no subnormal; in the place of a sum of 0


def unit_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(rows, keys) products of q (rows, D) and k (keys, D), added as Hopper's unit adds fp8."""
    found = q.new_zeros(len(q), len(k))
    place_q, place_k = (_power(one, SMALLEST_E4M3FN) for one in (q, k))
    at_once = max(1, (1 << 24) // max(1, len(k) * UNIT_ADDS))
    for i in range(0, len(q), at_once):
        rows, total = slice(i, i + at_once), found[i : i + at_once]
        for j in range(0, q.shape[1], UNIT_ADDS):
            columns = slice(j, j + UNIT_ADDS)
            terms = q[rows, None, columns] * k[None, :, columns]
            places = place_q[rows, None, columns] * place_k[None, :, columns] * (terms != 0.0)
            largest = torch.maximum(places.amax(-1), _power(total, TINY))
            added = _cut(terms, largest[..., None]).sum(-1) + _cut(total, largest)
            total.copy_(_cut(added, _power(added, TINY)))
    return found


def _power(values: torch.Tensor, smallest: float) -> torch.Tensor:
    """The power of 2 in each, or the ``smallest`` there is."""
    return torch.exp2(torch.floor(torch.log2(values.abs().clamp_min(smallest))))


def _cut(values: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
    """Without what is below 2^-13 of ``power``."""
    place = power * 2.0**-UNIT_KEEPS
    return torch.trunc(values / place) * place


def of_unit(case: Case, made: dict[str, Any], masks: dict[str, Any]) -> tuple[torch.Tensor, float]:
    """What the plain formula may lose where Hopper's unit adds its scores: of out, without the
    scale of v and to the first order, and the largest of a log-sum-exp."""
    scale = case.D**-0.5 if case.scale is None else case.scale
    scales = {
        name: torch.as_tensor(made.get(f"{name}_scale", 1.0)).double().expand(heads)
        for name, heads in (("q", case.H), ("k", case.G))
    }
    hidden = _hidden(case.S, case.KV, masks)
    lost = torch.zeros(2, case.S, case.H, case.DV, dtype=torch.float64)
    worst = 0.0
    for i_b in range(2 if case.KV else 0):
        for i_h in range(case.H):
            i_g = i_h // (case.H // case.G)
            heads = zip("qkv", (i_h, i_g, i_g), strict=True)
            q, k, v = (made[name][i_b, :, i].double() for name, i in heads)
            by = scales["q"][i_h] * scales["k"][i_g] * scale
            true, got = ((one * by).masked_fill(hidden, float("-inf"))
                         for one in (q @ k.T, unit_scores(q, k)))  # fmt: skip
            error, weights = (got - true).nan_to_num(0.0), true.softmax(1).nan_to_num(0.0)
            mean = (weights * error).sum(1, keepdim=True)
            lost[i_b, :, i_h] = (weights * (error - mean).abs()) @ v.abs()
            lse = (got.logsumexp(1) - true.logsumexp(1)).nan_to_num(0.0)
            worst = max(worst, float(lse.abs().max()))
    return lost, worst


def _hidden(rows: int, keys: int, masks: dict[str, Any]) -> torch.Tensor:
    """(rows, keys): what ``masks`` as plain_attention takes them hide."""
    row, column = torch.arange(rows)[:, None], torch.arange(keys)[None, :]
    hidden = torch.zeros(rows, keys, dtype=torch.bool)
    for offset, late in ((masks["causal_offset"], True), (masks["left_offset"], False)):
        if offset is not None:
            hidden |= column > row + offset if late else column < row + offset
    return hidden


def run(case: Case, on_hopper: bool = False) -> dict[str, float]:
    """Excess over each bound of the module's docstring, where ``on_hopper`` its unit adds; RMS
    errors."""
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
    bound = (2.0**-4 + 2.0**7 * SCORE) * weighted
    bound += 2.0**-18 * total + eps * truth.abs() + 1e-37
    lse_error = 0.0
    if on_hopper:
        lost, lse_error = of_unit(case, made, masks)
        v_scale = torch.as_tensor(made.get("v_scale", 1.0)).double().expand(case.G)
        bound += 2.0 * lost * v_scale.repeat_interleave(case.H // case.G)[:, None]
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
        "lse_bound": 2.0 * lse_error + SCORE * max(largest, 1.0),
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
    scores = scores.masked_fill(_hidden(S, keys, masks), float("-inf"))
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


def test_the_units_sums_keep_13_places() -> None:
    terms = torch.zeros(7, 40, dtype=torch.float64)
    terms[:, 0] = 1.75  # of the power of 2 it is 1 that counts
    terms[0, 1:3] = 2.0**-13
    terms[1, 1:3] = -(2.0**-14)  # towards zero, each by itself
    terms[2, 1] = 1.5 * 2.0**-13
    terms[3, 32] = -1.5 * 2.0**-13  # to the sum so far
    terms[4, 1], terms[4, 2:4] = -1.75, 2.0**-14  # though the largest cancel
    terms[5, 1], terms[5, 2] = 0.25, 2.0**-13  # beyond 2 the sum has one place less
    terms[6, 1], terms[6, 2:4] = 0.25, 2.0**-13  # but its terms have not
    dropped = unit_scores(terms, torch.ones(1, 40, dtype=torch.float64))[:, 0] - 1.75
    places = [2.0**-12, 0.0, 2.0**-13, -(2.0**-13), -1.75, 0.25, 0.25 + 2.0**-12]
    assert dropped.tolist() == places
    # The exponents of 1.5 and 1.5 are 0, though their product is beyond 2; a subnormal's is -6.
    q = torch.tensor([[1.5, 2.0**-13, 2.0**-13], [2.0**-9, 2.0**-20, 0.0]], dtype=torch.float64)
    k = torch.tensor([[1.5, 1.0, 1.0]], dtype=torch.float64)
    assert unit_scores(q, k)[:, 0].tolist() == [2.25 + 2.0**-12, 1.5 * 2.0**-9]


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
    # Hopper's own kernel wants the values turned around first.
    assert found.values["launches"] == (2 if target == "sm_90" else 1)
    assert found.values["spilled_bytes"] == 0
    assert found.values["advisories"] == 0
    listing = "".join(lzma.decompress(one).decode() for one in found.code.values())
    assert re.search(INSTRUCTIONS[target], listing)
    assert not re.search(r"HGMMA|UTCHMMA|v_mfma\w+_b?f16", listing)
