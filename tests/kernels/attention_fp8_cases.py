"""flash_attention in fp8 on a case, against fp64 of its own dequantised inputs.

The bounds. Products of e4m3 values are exact in fp32, so scores, maximum, row sum and log-sum-exp
are those of an fp32 kernel. Only the weights lose: p lies between 0 and 1, is taken 2^8 (fnuz: 2^7)
times as large and rounded to e4m3, which has 3 bits after the leading one and its smallest step at
2^-9 (2^-10). So a weight is off by 2^-4 of itself or by 2^-18, whichever is more, and

    |out - truth| <= v_scale * sum_j (2^-4 w_j + 2^-18) |v_j|  +  rounding to the output's dtype

with w the normalised weights; dividing by a row sum of at least 1 only makes the second part less.
The scores' fp32 rounding, at most 2^-21 of the largest, moves the log-sum-exp by no more and each
weight by less than 2^-14 of itself. The RMS error is held to 1.1 times that of the same formula in
which PyTorch rounds the weights, which is far below the bound.

Hopper's matrix unit does not add in fp32 (fp8_unit.py tells how). A score is then off by as much as
33 terms are, and a log-sum-exp, a mean of its scores' errors by weight, by no more than the
largest. Every term loses towards zero and not at random, so that no bound by the root of their
number holds, and one by their number is 50 times what is seen. So there the log-sum-exp is held to
twice the largest error that the plain formula makes with such additions, and the last place of
fp32; and a value of out is allowed twice sum_j w_j |e_j - e| |v_j|, by which scores off by e_j, in
the mean by weight e, move it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.workloads.formula import plain_attention
from kernels.attention.common.numerics import fp8_scales
from tests.kernels.fp8_unit import unit_scores
from tests.kernels.interpreted import strided

SCORE = 2.0**-21  # of the largest, what one may lose in fp32
SIGNS = torch.tensor([1.0, -1.0] * 4)


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

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Queries and keys of each sequence."""
        return [(self.S, self.KV)] * 2

    def rows(self, name: str) -> tuple[int, ...]:
        return 2, self.S if name == "q" else self.KV

    def arguments(self) -> dict[str, Any]:
        dtype = getattr(torch, self.flavour)
        made: dict[str, Any] = {}
        sequences = len(self.lengths)
        for seed, (name, heads, columns) in enumerate(
            (("q", self.H, self.D), ("k", self.G, self.D), ("v", self.G, self.DV))
        ):
            shape = (*self.rows(name), heads, columns)
            made[name] = strided(shape, self.view, dtype, seed)
            if self.scales == "heads":
                made[f"{name}_scale"] = torch.linspace(0.5, 2.0, heads)
            elif self.scales == "zeros" and name != "v":
                made[f"{name}_scale"] = torch.linspace(0.0, 1.0, heads)
            elif self.scales == "signs":
                made[f"{name}_scale"] = torch.linspace(0.5, 1.0, heads) * SIGNS[:heads]
            elif self.scales == "sequences":  # heads lie apart
                drawn = torch.linspace(2.0, 0.4, heads * sequences)
                made[f"{name}_scale"] = drawn.view(heads, sequences).T
            elif self.scales == "tensor":
                made[f"{name}_scale"] = torch.tensor(1.7 - 0.5 * seed)
        return made

    def options(self) -> dict[str, Any]:
        return {
            "causal": self.causal,
            "window_size": self.window,
            "softmax_scale": self.scale,
            "out_dtype": None if self.out == "bfloat16" else getattr(torch, self.out),
            "return_lse": True,
        }

    def attended(self) -> list[tuple[Case, dict[str, Any], torch.Tensor, torch.Tensor]]:
        """What was attended to what: cases of one length, their arguments, out and lse."""
        import kernels

        made = self.arguments()
        out, lse = kernels.flash_attention(**made, **self.options())
        return [(self, made, out, lse)]


def scale_of(made: dict[str, Any], name: str) -> torch.Tensor:
    """What ``name`` is to be multiplied by, fp64 of as many axes as it has."""
    scale = torch.as_tensor(made.get(f"{name}_scale", 1.0)).double()
    return scale[:, None, :, None] if scale.dim() == 2 else scale[..., None]


def of_unit(case: Case, made: dict[str, Any], masks: dict[str, Any]) -> tuple[torch.Tensor, float]:
    """What the plain formula may lose where Hopper's unit adds its scores: of out, without the
    scale of v and to the first order, and the largest of a log-sum-exp."""
    scale = case.D**-0.5 if case.scale is None else case.scale
    batch = len(made["q"])
    scales = {
        name: scale_of(made, name).expand(batch, 1, heads, 1)[:, 0, :, 0]
        for name, heads in (("q", case.H), ("k", case.G))
    }
    hidden = _hidden(case.S, case.KV, masks)
    lost = torch.zeros(batch, case.S, case.H, case.DV, dtype=torch.float64)
    worst = 0.0
    for i_b in range(batch if case.KV else 0):
        for i_h in range(case.H):
            i_g = i_h // (case.H // case.G)
            heads = zip("qkv", (i_h, i_g, i_g), strict=True)
            q, k, v = (made[name][i_b, :, i].double() for name, i in heads)
            by = scales["q"][i_b, i_h] * scales["k"][i_b, i_g] * scale
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
    found = [_judged(*one, on_hopper) for one in case.attended()]
    if not found:  # no query is used, of which ``attended`` has seen to it
        nothing = ("excess", "share", "lse", "empty_rows", "count", "rms", "rounded_rms")
        return dict.fromkeys(nothing, 0.0) | {"lse_bound": 1.0}
    counts = [one["count"] for one in found]
    worst = max(found, key=lambda one: one["lse"] / one["lse_bound"])
    means = {
        name: (sum(n * one[name] ** 2 for n, one in zip(counts, found, strict=True))
               / sum(counts)) ** 0.5
        for name in ("rms", "rounded_rms")
    }  # fmt: skip
    return {
        **{name: max(one[name] for one in found) for name in ("excess", "share")},
        **{name: worst[name] for name in ("lse", "lse_bound")},
        **{name: sum(one[name] for one in found) for name in ("empty_rows", "count")},
        **means,
    }


def _judged(
    case: Case, made: dict[str, Any], out: torch.Tensor, lse: torch.Tensor, on_hopper: bool
) -> dict[str, float]:
    q, k, v = (made[name].double() * scale_of(made, name) for name in "qkv")
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
        v_scale = scale_of(made, "v").expand(len(v), 1, case.G, 1)
        bound += 2.0 * lost * v_scale.repeat_interleave(case.H // case.G, 2)
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
        "count": out.numel(),
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
    factor = 2.0 ** fp8_scales.OFFSET[dtype]
    products = torch.einsum("bhst,bthd->bshd", (weights * factor).to(dtype).double() / factor, v)
    return products / weights.sum(-1).clamp_min(1e-300).transpose(1, 2)[..., None]
