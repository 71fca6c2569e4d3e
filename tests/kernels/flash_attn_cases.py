"""Cases of FlashAttention's names, and what their errors against plain PyTorch and fp64 are.

Every case is a list of sequences, each attended to by itself in the reference; of the functions of
dense tensors all are of one length. What dropout dropped is read from what the function returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from kernels.attention.common.numerics import fp8_scales
from tests.kernels import kvcache_case
from tests.kernels.interpreted import Errors, measure, strided

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, kw_only=True)
class Case:
    """Of ``suite`` fa2 or fa3; ``form`` is that of the tensors: separate, qkvpacked or kvpacked.
    With ``packed`` sequences are packed, of which ``used_q`` and ``used_k`` rows count, unless
    empty; with ``page`` their keys lie in pages. Without ``gradients`` none are taken."""

    suite: str = "fa2"
    form: str = "separate"
    packed: bool = False
    q: tuple[int, ...] = (70, 70)
    k: tuple[int, ...] = (70, 70)
    used_q: tuple[int, ...] = ()
    used_k: tuple[int, ...] = ()
    H: int = 4
    G: int = 2
    D: int = 32
    DV: int = 0
    dtype: str = "float16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi: bool = False
    dropout: float = 0.0
    chunk: int = 0
    qv: bool = False
    page: int = 0
    gradients: bool = True

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        parts = [self.suite, self.form, self.dtype, f"q{lengths[0]}-k{lengths[1]}"]
        parts += [f"H{self.H}-G{self.G}-D{self.D}" + f"-DV{self.DV}" * bool(self.DV)]
        names = ("packed", "causal", "alibi", "qv")
        parts += [name for name in names if getattr(self, name)]
        parts += [f"window{self.window[0]},{self.window[1]}"] * (self.window != (-1, -1))
        values = ("softcap", "dropout", "chunk", "page")
        parts += [f"{name}{value}" for name in values if (value := getattr(self, name))]
        for name in ("used_q", "used_k"):
            parts += [name + "+".join(map(str, one))] if (one := getattr(self, name)) else []
        return "-".join(parts)

    @property
    def counted(self) -> list[tuple[int, int]]:
        """Queries and keys of each sequence, those that are used."""
        return list(zip(self.used_q or self.q, self.used_k or self.k, strict=True))

    @property
    def rows(self) -> int:
        """Of all heads, those that see a key."""
        return self.H * sum(min(q, k) if self.causal else q * (k > 0) for q, k in self.counted)

    @property
    def in_fp8(self) -> bool:
        return "float8" in self.dtype

    @property
    def scale(self) -> float:
        return (self.D + (self.DV or self.D) * self.qv) ** -0.5

    def tensors(self) -> dict[str, torch.Tensor]:
        """q, k, v and qv, (tokens, heads, head_dim); as FlashAttention's tests draw them, with q
        that reaches into the softcap."""
        kind, dv = getattr(torch, self.dtype), self.DV or self.D
        shapes = {"q": (sum(self.q), self.H, self.D), "k": (sum(self.k), self.G, self.D)}
        shapes["v"] = (sum(self.k), self.G, dv)
        if self.qv:
            shapes["qv"] = (sum(self.q), self.H, dv)
        made = {}
        for seed, (name, shape) in enumerate(shapes.items()):
            wide = torch.bfloat16 if self.in_fp8 else kind
            one = strided((1, *shape), "contiguous", wide, seed)[0]
            if name == "q" and self.softcap:
                one = one * (self.softcap / (4.0 if self.suite == "fa3" else 1.0))
            made[name] = one.to(kind)
        return made

    def scales(self) -> dict[str, torch.Tensor]:
        """Of fp8, (batch, kv_heads)."""
        generator = torch.Generator().manual_seed(3)
        if not self.in_fp8:
            return {}
        shape = (len(self.q), self.G)
        return {name: 2.0 * torch.rand(shape, generator=generator) for name in "qkv"}

    def slopes(self) -> torch.Tensor | None:
        generator = torch.Generator().manual_seed(7)
        return 0.3 * torch.rand(len(self.q), self.H, generator=generator) if self.alibi else None

    def bounds(self) -> list[torch.Tensor]:
        both = (self.q, self.k)
        return [torch.tensor([0, *accumulate(one)], dtype=torch.int32) for one in both]


def called(
    case: Case, tensors: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor] | None]:
    """out (tokens, heads, head_dim_v), lse (heads, tokens), and what was dropped, by sequence."""
    from kernels import flash_attn
    from kernels.flash_attn import fa3

    module = flash_attn if case.suite == "fa2" else fa3
    batch = len(case.q)

    def shaped(one: torch.Tensor) -> torch.Tensor:
        return one if case.packed else one.unflatten(0, (batch, -1))

    given = [shaped(tensors[name]) for name in "qkv"]
    if case.form == "qkvpacked":
        given = [torch.stack(given, -3)]
    elif case.form == "kvpacked":
        given = [given[0], torch.stack(given[1:], -3)]
    options: dict[str, Any] = {"causal": case.causal, "softcap": case.softcap}
    options["window_size"] = torch.tensor(case.window, device="cpu")
    if case.suite == "fa2":
        options |= {"dropout_p": case.dropout, "alibi_slopes": case.slopes()}
    else:
        options |= {"attention_chunk": case.chunk}
        options |= {f"{name}_descale": one for name, one in case.scales().items()}
        if case.qv:
            options["qv"] = shaped(tensors["qv"])
    name = "flash_attn_func" if case.form == "separate" else f"flash_attn_{case.form}_func"
    if case.packed:
        cu_q, cu_k = case.bounds()
        longest = [max(one) for one in zip(*case.counted, strict=True)]
        given += [cu_q, *([] if case.form == "qkvpacked" else [cu_k])]
        given += longest[:1] if case.form == "qkvpacked" else longest
        for side in ("q", "k"):
            if used := getattr(case, f"used_{side}"):
                options[f"seqused_{side}"] = torch.tensor(used, dtype=torch.int32)
        name = name.replace("flash_attn_", "flash_attn_varlen_")
        if case.page:
            options["block_table"], given[1], given[2] = _pages(case, given[1], given[2])
    out, lse, *more = getattr(module, name)(*given, return_attn_probs=True, **options)
    dropped = None
    if case.dropout:
        dropped = [one[:, :q, :k] < 0.0 for one, (q, k) in zip(more[0], case.counted, strict=True)]
    if not case.packed:
        out, lse = out.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    return out, lse, dropped


def _pages(case: Case, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A table of shuffled pages, and packed rows in them."""
    most = max(-(-max(case.k) // case.page), 1)
    generator = torch.Generator().manual_seed(9)
    table = torch.randperm(len(case.k) * most, generator=generator).view(-1, most)
    found = []
    for rows in (k, v):
        pages = torch.full((table.numel(), case.page, *rows.shape[1:]), math.nan).to(rows.dtype)
        for i, one in enumerate(rows.split(case.k)):
            at = torch.arange(len(one))
            pages[table[i, at // case.page], at % case.page] = one.detach()
        found.append(pages)
    return table.int(), *found


def formula(
    case: Case, tensors: dict[str, Any], dropped: list[torch.Tensor] | None, dtype: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Matmuls in ``dtype`` and what is between them in fp32, or all in fp64. In fp8, weights are
    rounded to it, too."""
    kind = torch.bfloat16 if case.in_fp8 and dtype != "float64" else getattr(torch, dtype)
    wide = torch.float64 if kind == torch.float64 else torch.float32
    q, k, v = (tensors[name] for name in "qkv")
    rows, keys = q.split(case.q), tuple(zip(k.split(case.k), v.split(case.k), strict=True))
    more = tensors["qv"].split(case.q) if case.qv else ()
    scales, slopes = case.scales(), case.slopes()
    outs, lses = [], []
    for b, (n_q, n_k) in enumerate(case.counted):
        group = case.H // case.G
        own = {"q": rows[b][:n_q], "k": keys[b][0][:n_k], "v": keys[b][1][:n_k]}
        for name, one in own.items():
            each = one.to(wide)
            if scales:
                factor = scales[name][b]
                each = each * (factor.repeat_interleave(group) if name == "q" else factor)[:, None]
            own[name] = each.to(kind).transpose(0, 1)
        own |= {name: own[name].repeat_interleave(group, 0) for name in "kv"}
        scores = (own["q"] @ own["k"].transpose(1, 2)).to(wide)
        if case.qv:
            of_values = more[b][:n_q].to(kind).transpose(0, 1)
            scores = scores + (of_values @ own["v"].transpose(1, 2)).to(wide)
        scores = scores * case.scale
        if case.softcap:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        at = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
        key = torch.arange(n_k, device=q.device)
        if slopes is not None:
            scores = scores - slopes[b].to(wide)[:, None, None] * (at - key).abs()
        left, right = case.window[0], 0 if case.causal else case.window[1]
        hidden = torch.zeros(n_q, n_k, dtype=torch.bool, device=q.device)
        hidden |= key > at + right if right >= 0 else hidden
        hidden |= key < at - left if left >= 0 else hidden
        if case.chunk:
            hidden |= key // case.chunk != at.div(case.chunk, rounding_mode="floor")
        scores = scores.masked_fill(hidden, -math.inf)
        dark = hidden.all(1)[None, :, None]
        scores = scores.masked_fill(dark, 0.0)
        lse = torch.logsumexp(scores, 2).masked_fill(dark[..., 0], -math.inf)
        if case.in_fp8 and wide == torch.float32 and n_k:
            weights = torch.exp(scores - scores.amax(2, keepdim=True))
            factor = 2.0 ** fp8_scales.OFFSET[FP8]
            rounded = (weights * factor).to(FP8).to(wide) / factor
            out = (rounded @ own["v"].to(wide)) / weights.sum(2, keepdim=True)
            out = out.masked_fill(dark, 0.0).to(kind)
        else:
            weights = torch.softmax(scores, 2).masked_fill(dark, 0.0)
            if dropped is not None:
                weights = weights.masked_fill(dropped[b], 0.0) / (1.0 - case.dropout)
            out = weights.to(kind) @ own["v"]
        spare = case.q[b] - n_q
        outs += [out.transpose(0, 1), out.new_zeros(spare, case.H, out.shape[2])]
        lses += [lse, lse.new_full((case.H, spare), -math.inf)]
    return torch.cat(outs), torch.cat(lses, 1)


def run(case: Case) -> dict[str, Errors]:
    """Of out, lse, dq, dk and dv."""
    made = case.tensors()
    dropped: list[torch.Tensor] | None = None

    def everything(dtype: str | None) -> dict[str, torch.Tensor]:
        nonlocal dropped
        leaves = {
            name: (one.double() if dtype == "float64" else one.detach().clone())
            for name, one in made.items()
        }
        wanted = [leaves[name] for name in "qkv"] if case.gradients else []
        for one in wanted:
            one.requires_grad_()
        if dtype is None:
            out, lse, dropped = called(case, leaves)
        else:
            out, lse = formula(case, leaves, dropped, dtype)
        found = {"out": out.detach(), "lse": lse.detach()}
        if case.in_fp8:  # Hopper's unit adds its scores with 13 bits: docs/kernels/fp8.md
            del found["lse"]
        if not wanted:
            return found
        generator = torch.Generator().manual_seed(4)
        dout = torch.randn(out.shape, generator=generator).to(getattr(torch, case.dtype))
        grads = torch.autograd.grad((out * dout.to(out.dtype)).sum(), wanted)
        return found | {f"d{name}": one for name, one in zip("qkv", grads, strict=True)}

    got, plain, truth = (everything(dtype) for dtype in (None, case.dtype, "float64"))
    return {name: measure(got[name], plain[name], truth[name]) for name in truth}


def run_fa2_kvcache(case: kvcache_case.Case) -> list[Errors]:
    from kernels.flash_attn import flash_attn_with_kvcache

    def attend(*tensors: Any, **given: Any) -> Any:
        for name in ("cu_seqlens_q", "max_seqlen_q", "cu_seqlens_k_new", "attention_chunk"):
            assert given.pop(name) is None
        return flash_attn_with_kvcache(*_new(tensors, given), **_theirs(given))

    return kvcache_case.run(case, attend)


def run_fa3_kvcache(case: kvcache_case.Case) -> list[Errors]:
    from kernels.flash_attn.fa3 import flash_attn_with_kvcache

    def attend(*tensors: Any, **given: Any) -> Any:
        for name in "qkv":
            given[f"{name}_descale"] = given.pop(f"{name}_scale", None)
        given["page_table"] = given.pop("block_table")
        given["attention_chunk"] = given["attention_chunk"] or 0
        return flash_attn_with_kvcache(*_new(tensors, given), **_theirs(given))

    return kvcache_case.run(case, attend)


def _new(tensors: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, ...]:
    return *tensors, given.pop("k", None), given.pop("v", None)


def _theirs(given: dict[str, Any]) -> dict[str, Any]:
    given["return_softmax_lse"] = given.pop("return_lse")
    return given | {"softcap": given["softcap"] or 0.0}
