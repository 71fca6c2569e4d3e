"""Cases of what may be asked of a score, their formula, and the errors of the kernels against it.

The reference is the plain formula below, in fp64 and as PyTorch computes it in the same dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from tests.kernels.interpreted import Errors, measure
from tests.kernels.test_attention_forward import Case as Plain


@dataclass(frozen=True, kw_only=True)
class Case(Plain):
    B: int = 1
    S: int = 70
    KV: int = 70
    D: int = 32
    softcap: float | None = None
    alibi: str = ""
    sinks: bool = False
    # Its shape, and whether one key in three is hidden by it.
    bias: tuple[int, ...] = ()
    bias_dtype: str = "float32"
    hiding: bool = False
    # Whether it has a gradient of its own, which takes other tiles.
    learnt: bool = True
    # The mean of a bias, which moves all scores alike.
    level: float = 0.0
    dropout: float = 0.0
    # Axes batch and heads of a mask of blocks, with 1 where it broadcasts, and a block's sizes.
    blocks: tuple[int, ...] = ()
    block: tuple[int, int] = (128, 128)
    # The keys of a chunk, beyond which nothing is seen.
    chunk: int | None = None
    # Of packed sequences: one of no token before the others, and one behind them; and rows of NaN
    # behind those of each that are used.
    empty: bool = False
    unused: int = 0

    def __str__(self) -> str:
        text = super().__str__() + (f"-softcap{self.softcap}" if self.softcap else "")
        return (
            text
            + (f"-alibi-{self.alibi}" if self.alibi else "")
            + "-sinks" * self.sinks
            + (f"-bias-{'x'.join(map(str, self.bias))}-{self.bias_dtype}" if self.bias else "")
            + "-hiding" * self.hiding
            + "-given" * (not self.learnt)
            + (f"-level{self.level:g}" if self.level else "")
            + (f"-dropout{self.dropout}" if self.dropout else "")
            + (f"-blocks-{self.blocks[0]}x{self.blocks[1]}" if self.blocks else "")
            + (f"-of-{self.block[0]}x{self.block[1]}" if self.block != (128, 128) else "")
            + (f"-chunk{self.chunk}" if self.chunk else "")
            + "-empty" * self.empty
            + (f"-unused{self.unused}" if self.unused else "")
        )

    def extras(self) -> dict[str, torch.Tensor]:
        """The tensors beside q, k and v, by the name flash_attention gives them."""
        generator = torch.Generator().manual_seed(7)
        found = {}
        if self.alibi:
            shape = (self.H,) if self.alibi == "heads" else (self.B, self.H)
            found["alibi_slopes"] = torch.rand(shape, generator=generator) / 4.0
        if self.sinks:
            found["sinks"] = 2.0 + 0.5 * torch.randn(self.H, generator=generator)
        if self.bias:
            bias = torch.randn(self.bias, generator=generator) + self.level
            bias = bias.to(getattr(torch, self.bias_dtype))
            if self.hiding:
                hidden = torch.rand(self.bias, generator=generator) < 0.3
                dark = self.bias_dtype == "bool"
                bias = ~hidden if dark else bias.masked_fill(hidden, float("-inf"))
            found["bias"] = bias
        if self.blocks:
            shape = (*self.blocks, -(-self.S // self.block[0]), -(-self.KV // self.block[1]))
            found["block_mask"] = torch.rand(shape, generator=generator) < 0.6
        return found

    @property
    def scalars(self) -> dict[str, Any]:
        found = self.options | ({"softcap": self.softcap} if self.softcap else {})
        found |= {"block_size": self.block} if self.blocks else {}
        found |= {"attention_chunk": self.chunk} if self.chunk else {}
        return found | ({"dropout_p": self.dropout, "dropout_seed": SEED} if self.dropout else {})


SEED = 0x1234_5678_9ABC_DEF


def drawn(heads: int, rows: int, columns: int, seed: int = SEED) -> torch.Tensor:
    """(heads, rows, columns) numbers from -2^31 to 2^31: words of Philox 4x32-7, whose key is the
    seed and whose counter is (row, column, head, 0) with the bit of 8 cleared in row and column:
    word 0 where neither had it, 1 where the column had, 2 where the row had, 3 where both."""
    low, high = np.uint64(2**32 - 1), np.uint64(32)
    head, row, column = np.indices((heads, rows, columns), dtype=np.uint64)
    bit = np.uint64(8)
    c = [row & ~bit, column & ~bit, head, np.zeros_like(head)]
    key = [np.uint64(seed) & low, np.uint64(seed) >> high]
    for _ in range(7):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (second >> high) ^ c[1] ^ key[0],
            second & low,
            (first >> high) ^ c[3] ^ key[1],
            first & low,
        ]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    which = ((row & bit) >> np.uint64(2)) + ((column & bit) >> np.uint64(3))
    words = np.choose(which.astype(np.int64), c)
    return torch.as_tensor(words.astype(np.uint32).view(np.int32).astype(np.int64))


def below(dropout: float) -> int:
    """Below which such a number drops its weight."""
    return round(dropout * 2**32) - 2**31


def formula(
    case: Case, q: Any, k: Any, v: Any, extras: dict[str, Any], dtype: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse): matmuls in ``dtype``, what is between them in fp32, or all in fp64."""
    kind = getattr(torch, dtype)
    wide = torch.float64 if kind == torch.float64 else torch.float32
    heads = case.H // case.G
    q, k, v = (one.to(kind).transpose(1, 2) for one in (q, k, v))
    k, v = (one.repeat_interleave(heads, 1) for one in (k, v))
    scale = case.D**-0.5 if case.scale is None else case.scale
    scores = (q @ k.transpose(2, 3)).to(wide) * scale
    rows = torch.arange(case.S)[:, None] + case.KV - case.S
    columns = torch.arange(case.KV)
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    if "alibi_slopes" in extras:
        slopes = extras["alibi_slopes"].to(wide).expand(case.B, case.H)
        scores = scores - slopes[:, :, None, None] * (rows - columns).abs()
    if "bias" in extras:
        bias = extras["bias"]
        added = scores + bias.to(wide)
        scores = scores.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else added
    left, right = case.window
    right = 0 if case.causal else right
    hidden = torch.zeros(case.S, case.KV, dtype=torch.bool)
    if right >= 0:
        hidden |= columns > rows + right
    if left >= 0:
        hidden |= columns < rows - left
    if case.chunk:
        hidden |= columns // case.chunk != rows // case.chunk
    if "block_mask" in extras:
        rows_of, columns_of = case.block
        whole = extras["block_mask"].repeat_interleave(rows_of, 2).repeat_interleave(columns_of, 3)
        hidden = hidden | ~whole[:, :, : case.S, : case.KV]
    scores = scores.masked_fill(hidden, float("-inf"))
    if "sinks" in extras:
        sink = extras["sinks"].to(wide)[None, :, None, None].expand(case.B, -1, case.S, 1)
        scores = torch.cat((scores, sink), 3)
    # A row of -inf alone has no gradient, where torch would compute NaN.
    dark = (scores == float("-inf")).all(3, keepdim=True)
    scores = scores.masked_fill(dark, 0.0)
    lse = torch.logsumexp(scores, 3).masked_fill(dark[..., 0], float("-inf"))
    weights = torch.softmax(scores, 3)[..., : case.KV].masked_fill(dark, 0.0)
    if case.dropout:
        before = case.H * case.empty
        numbers = drawn(before + case.B * case.H, case.S, case.KV)[before:].view_as(weights)
        weights = weights * (numbers >= below(case.dropout)) / (1.0 - case.dropout)
    return (weights.to(kind) @ v).transpose(1, 2), lse


def everything(case: Case, dtype: str | None) -> dict[str, torch.Tensor]:
    """Outputs and gradients by the kernel (dtype None), or by PyTorch through the formula."""
    import kernels

    leaves = dict(zip("qkv", case.tensors(), strict=True)) | case.extras()
    leaves = {name: one.detach() for name, one in leaves.items()}
    if dtype == "float64":
        leaves = {
            name: one if one.dtype == torch.bool else one.double() for name, one in leaves.items()
        }
    given = {"alibi_slopes"} if case.learnt else {"alibi_slopes", "bias"}
    wanted = [name for name, one in leaves.items() if name not in given and one.dtype != torch.bool]
    for name in wanted:
        leaves[name].requires_grad_()
    extras = {name: one for name, one in leaves.items() if name not in "qkv"}
    q, k, v = (leaves[name] for name in "qkv")
    if dtype is None:
        out, lse = kernels.flash_attention(q, k, v, **case.scalars, **extras, return_lse=True)
    else:
        out, lse = formula(case, q, k, v, extras, dtype)
    generator = torch.Generator().manual_seed(4)
    dout = torch.randn(out.shape, generator=generator).to(getattr(torch, case.dtype))
    dlse = torch.randn(lse.shape, generator=generator)
    loss = (out * dout.to(out.dtype)).sum() + (lse * dlse)[lse > float("-inf")].sum()
    gradients = torch.autograd.grad(loss, [leaves[name] for name in wanted])
    named = {f"d{name}": one for name, one in zip(wanted, gradients, strict=True)}
    return {"out": out.detach(), "lse": lse.detach(), **named}


def run(case: Case, branch: bool = False) -> dict[str, Errors]:
    """With ``branch`` the forward pass has the loop that branches around masks."""
    from kernels.attention.portable.tuning import choose as configs

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=case.tma, branch=branch)
    configs.INTERPRETED_BACKWARD = replace(configs.INTERPRETED_BACKWARD, tma=case.tma)
    got, plain, truth = (everything(case, dtype) for dtype in (None, case.dtype, "float64"))
    return {name: measure(got[name], plain[name], truth[name]) for name in truth}


PACKED = Case(B=2, S=55, KV=60, H=4, G=2, dtype="float32", causal=True)
PACKED_NAMES = ("out", "lse", "dq", "dk", "dv", "dsinks")


def run_varlen(case: Case) -> list[Errors]:
    """Packed sequences against each by itself, whose scores are tested above. Every row has a
    sink, so that its log-sum-exp can be squared whatever it sees."""
    import kernels

    q, k, v = case.tensors()
    extras = case.extras()
    leaves = [one.detach().requires_grad_() for one in (q, k, v)]
    sinks = extras["sinks"].requires_grad_()
    places = torch.arange(-case.empty, case.B + 1 + case.empty).clamp(0, case.B)
    more = case.unused
    ends_q, ends_k = (((n + more) * places).to(torch.int32) for n in (case.S, case.KV))
    given = dict(extras)
    if more:
        for name, n in (("seqused_q", case.S), ("seqused_k", case.KV)):
            given[name] = torch.full((len(places) - 1,), n, dtype=torch.int32)
    if case.empty and case.alibi == "batch":
        nobody = torch.full((1, case.H), float("nan"))
        given["alibi_slopes"] = torch.cat((nobody, given["alibi_slopes"], nobody))
    out, lse = kernels.flash_attention_varlen(
        *(pad(one, (0, 0, 0, 0, 0, more), value=float("nan")).flatten(0, 1) for one in leaves),
        ends_q,
        ends_k,
        case.S,
        case.KV,
        **case.scalars,
        **given,
        return_lse=True,
    )
    out = out.unflatten(0, (case.B, case.S + more))[:, : case.S]
    lse = lse.unflatten(1, (case.B, case.S + more)).transpose(0, 1)[..., : case.S]
    found = [out, lse, *torch.autograd.grad(out.sum() + lse.square().sum(), [*leaves, sinks])]

    def by_formula(dtype: str) -> list[torch.Tensor]:
        kind = getattr(torch, dtype)
        kinds = (kind, kind, kind, torch.float64 if dtype == "float64" else torch.float32)
        wide = [
            one.detach().to(kind).requires_grad_()
            for one, kind in zip((*leaves, sinks), kinds, strict=True)
        ]
        given = {name: one for name, one in extras.items() if name != "sinks"}
        given["sinks"] = wide[3]
        out, lse = formula(case, *wide[:3], given, dtype)
        return [out, lse, *torch.autograd.grad(out.sum() + lse.square().sum(), wide)]

    triples = zip(found, by_formula(case.dtype), by_formula("float64"), strict=True)
    return [measure(*(one.detach() for one in each)) for each in triples]
