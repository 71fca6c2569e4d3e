"""Public operators on views whose rows lie so far apart that a tile of them spans more than 32 bits
count, beside the same values close together and the formula in fp64.

What lies between the rows is NaN, so that an address that wraps around is seen: what is read there
is not hidden, and what is written there is counted.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

import kernels
from tests.kernels.findings import Drawn, Finding
from tests.kernels.interpreted import Errors, measure
from tests.kernels.on_card import Made

Tensors = dict[str, torch.Tensor]
E4M3, E4M3_NAN = torch.float8_e4m3fn, 0x7F
ROWS, ENDS = 130, (0, 50, 130)
# Elements: of 128 rows, and of 64, more than 2^31.
NEARER, FURTHER = 17_000_000, 40_000_000
PAGES_APART = 800_000_000


@dataclass(frozen=True)
class Case:
    """``call`` of what ``draw`` makes, and its outputs by ``formula``, in ``dtype`` and in fp64; of
    no dtype near copies stand for the first. The entries of an input that ``axes`` names lie
    ``apart`` along that axis, in elements. ``written`` inputs are outputs too. ``special``: Hopper
    has a kernel of its own; else, and on other cards, the portable one serves."""

    draw: Callable[[], Tensors]
    call: Callable[[Tensors], Tensors]
    formula: Callable[[Tensors, torch.dtype], Tensors]
    axes: dict[str, int]
    apart: int = FURTHER
    dtype: torch.dtype | None = torch.float16
    written: tuple[str, ...] = ()
    special: bool = False


def is_unwritten(room: torch.Tensor) -> torch.Tensor:
    return room.view(torch.uint8) == E4M3_NAN if room.dtype == E4M3 else room.isnan()


def far(tensor: torch.Tensor, axis: int, apart: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same values, those along ``axis`` ``apart`` elements apart, and the room they lie in."""
    entries = tensor.movedim(axis, 0).contiguous()
    size = (entries.shape[0] - 1) * apart + entries[0].numel()
    room = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    if tensor.dtype == E4M3:
        room.view(torch.uint8).fill_(E4M3_NAN)
    else:
        room.fill_(math.nan)
    view = room.as_strided(entries.shape, (apart, *entries.stride()[1:]))
    return view.copy_(entries).movedim(0, axis), room


def attention(
    given: Tensors, dtype: torch.dtype, causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) by the formula: products in ``dtype``, what is between them in fp32, or all in
    fp64. The last query sees all keys."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    heads = given["q"].shape[2]
    q, k, v = (given[name].to(dtype).transpose(1, 2) for name in "qkv")
    k, v = (one.repeat_interleave(heads // one.shape[1], 1) for one in (k, v))
    scores = (q @ k.transpose(2, 3)).to(wide) / math.sqrt(q.shape[3])
    if "bias" in given:
        scores = scores + given["bias"].to(wide)
    if causal:
        rows, keys = scores.shape[2:]
        ends = torch.arange(rows, device=q.device)[:, None] + keys - rows
        scores = scores.masked_fill(torch.arange(keys, device=q.device) > ends, -math.inf)
    return (torch.softmax(scores, 3).to(dtype) @ v).transpose(1, 2), torch.logsumexp(scores, 3)


def leaves(given: Tensors, names: str, dtype: torch.dtype) -> Tensors:
    return {name: given[name].detach().to(dtype).requires_grad_() for name in names}


def both_passes(D: int, dtype: torch.dtype, rows: int, apart: int, causal: bool) -> Case:
    """The output lies as far apart when its gradients are asked for."""

    def draw() -> Tensors:
        shapes = {"q": 4, "k": 2, "v": 2, "dout": 4, "out": 4}
        return {name: torch.randn(1, rows, heads, D).to(dtype) for name, heads in shapes.items()}

    def call(given: Tensors) -> Tensors:
        q, k, v = (given[name] for name in "qkv")
        out, lse = kernels.flash_attention(q, k, v, causal=causal, return_lse=True)
        found = {"out": out, "lse": lse}
        given["out"].copy_(out)
        gradients = kernels.flash_attention_backward(
            given["dout"], q, k, v, given["out"], lse, causal=causal
        )
        return found | dict(zip(("dq", "dk", "dv"), gradients, strict=True))

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        inputs = leaves(given, "qkv", kind)
        out, lse = attention(inputs, kind, causal)
        gradients = torch.autograd.grad(out, [*inputs.values()], given["dout"].to(kind))
        found = {"out": out.detach(), "lse": lse.detach()}
        return found | dict(zip(("dq", "dk", "dv"), gradients, strict=True))

    axes = dict.fromkeys(("q", "k", "v", "dout", "out"), 1)
    return Case(draw, call, formula, axes, apart, dtype, special=True)


def packed() -> Case:
    def draw() -> Tensors:
        shapes = {"q": 4, "k": 2, "v": 2, "dout": 4}
        return {name: torch.randn(ROWS, heads, 64).half() for name, heads in shapes.items()}

    def call(given: Tensors) -> Tensors:
        inputs = {name: given[name].detach().requires_grad_() for name in "qkv"}
        ends = torch.tensor(ENDS, dtype=torch.int32)
        out = kernels.flash_attention_varlen(*inputs.values(), ends, ends, 80, 80, causal=True)
        gradients = torch.autograd.grad(out, [*inputs.values()], given["dout"])
        return {"out": out.detach()} | dict(zip(("dq", "dk", "dv"), gradients, strict=True))

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        inputs = leaves(given, "qkv", kind)
        parts = [
            attention({name: one[None, a:b] for name, one in inputs.items()}, kind, True)[0][0]
            for a, b in pairwise(ENDS)
        ]
        out = torch.cat(parts)
        gradients = torch.autograd.grad(out, [*inputs.values()], given["dout"].to(kind))
        return {"out": out.detach()} | dict(zip(("dq", "dk", "dv"), gradients, strict=True))

    return Case(
        draw, call, formula, dict.fromkeys(("q", "k", "v", "dout"), 0), NEARER, special=True
    )


def in_fp8() -> Case:
    def draw() -> Tensors:
        return {name: torch.randn(1, ROWS, 2, 64).to(E4M3) for name in "qkv"}

    def call(given: Tensors) -> Tensors:
        return {"out": kernels.flash_attention(**given, out_dtype=torch.bfloat16)}

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        return {"out": attention(given, kind)[0]}

    return Case(draw, call, formula, dict.fromkeys("qkv", 1), NEARER, dtype=None, special=True)


def with_bias() -> Case:
    def draw() -> Tensors:
        found = {name: torch.randn(1, 60, 2, 64).half() for name in "qkv"}
        return found | {"bias": torch.randn(1, 1, 60, 60).half()}

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        return {"out": attention(given, kind)[0]}

    return Case(draw, lambda given: {"out": kernels.flash_attention(**given)}, formula, {"bias": 2})


def decoding(axis: int, pages: int = 1, fp8: bool = False, apart: int = FURTHER) -> Case:
    """One query a sequence, whose last key is new. Of ``pages`` more than one, the last is short
    of it too."""
    rows = ROWS if pages == 1 else 128 if axis == 1 else 16
    kind = E4M3 if fp8 else torch.float16
    total = rows * pages

    def draw() -> Tensors:
        found = {"q": torch.randn(1, 1, 4, 64).half()}
        found |= {name: torch.randn(1, 1, 2, 64).half() for name in "kv"}
        caches = (torch.randn(pages, rows, 2, 64).to(kind) for _ in range(2))
        return found | dict(zip(("k_cache", "v_cache"), caches, strict=True))

    def call(given: Tensors) -> Tensors:
        table = torch.arange(pages, dtype=torch.int32)[None].flip(1) if pages > 1 else None
        lengths = torch.tensor([total - 1], dtype=torch.int32)
        out, lse = kernels.flash_attention_kvcache(
            **given, cache_seqlens=lengths, block_table=table, causal=True, return_lse=True
        )
        return {"out": out, "lse": lse}

    def formula(given: Tensors, dtype: torch.dtype) -> Tensors:
        caches = (given[name].flip(0).flatten(0, 1)[None].half() for name in ("k_cache", "v_cache"))
        keys = dict(zip("kv", caches, strict=True))
        for name, one in keys.items():
            one[:, -1:] = given[name].to(kind)
        out, lse = attention({"q": given["q"], **keys}, dtype)
        return {"out": out, "lse": lse}

    axes = {"k_cache": axis, "v_cache": axis}
    return Case(draw, call, formula, axes, apart, written=tuple(axes))


def product(
    shape: tuple[int, int, int],
    axes: dict[str, int],
    into: bool = True,
    special: bool = False,
    dtype: torch.dtype = torch.float16,
) -> Case:
    """With a residual if ``axes`` names it; not ``into`` what is given, it is with gradients."""
    M, N, K = shape

    def draw() -> Tensors:
        found = {"a": torch.randn(M, K).to(dtype), "b": torch.randn(K, N).to(dtype)}
        found |= {name: torch.randn(M, N).half() for name in ("residual", "last") if name in axes}
        return found | ({"scale": torch.rand(M) + 0.5} if dtype == E4M3 else {})

    def call(given: Tensors) -> Tensors:
        more: dict[str, Any] = {}
        if dtype == E4M3:
            more = {"a_scale": given["scale"], "out_dtype": torch.float16}
        if into:
            more |= {"residual": given["residual"]} if "residual" in axes else {}
            kernels.matmul(given["a"], given["b"], out=given["last"], **more)
            return {}
        inputs = [given[name].detach().requires_grad_() for name in ("a", "b", "residual")]
        out = kernels.matmul(*inputs[:2], residual=inputs[2])
        gradients = torch.autograd.grad(out, inputs, given["last"])
        return {"out": out.detach()} | dict(zip(("da", "db", "dres"), gradients, strict=True))

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        inputs = [given[name].detach().to(kind) for name in ("a", "b", "residual") if name in given]
        if into:
            return {"last": sum(inputs[2:], inputs[0] @ inputs[1])}
        a, b, residual = (one.requires_grad_() for one in inputs)
        out = a @ b + residual
        gradients = torch.autograd.grad(out, (a, b, residual), given["last"].to(kind))
        return {"out": out.detach()} | dict(zip(("da", "db", "dres"), gradients, strict=True))

    def scaled(given: Tensors, kind: torch.dtype) -> Tensors:
        # Operands of 8 bits have no products in PyTorch; fp32 sums, which are rounded once.
        wide = torch.float64 if kind == torch.float64 else torch.float32
        a, b, scale = (given[name].to(wide) for name in ("a", "b", "scale"))
        return {"last": ((a @ b) * scale[:, None]).to(kind)}

    chosen = scaled if dtype == E4M3 else formula
    return Case(draw, call, chosen, axes, written=("last",) if into else (), special=special)


def grouped() -> Case:
    def draw() -> Tensors:
        found = {"a": torch.randn(ROWS, 72), "b": torch.randn(2, 72, 136)}
        found["dout"] = torch.randn(ROWS, 136)
        return {name: one.half() for name, one in found.items()}

    def results(given: Tensors, inputs: Tensors, out: torch.Tensor) -> Tensors:
        da, db = torch.autograd.grad(out, [*inputs.values()], given["dout"].to(out.dtype))
        return {"out": out.detach(), "da": da, "db": db}

    def call(given: Tensors) -> Tensors:
        inputs = {name: given[name].detach().requires_grad_() for name in "ab"}
        ends = torch.tensor(ENDS, dtype=torch.int32)
        return results(given, inputs, kernels.grouped_matmul(*inputs.values(), ends))

    def formula(given: Tensors, kind: torch.dtype) -> Tensors:
        inputs = leaves(given, "ab", kind)
        a, b = inputs.values()
        parts = [a[first:end] @ b[g] for g, (first, end) in enumerate(pairwise(ENDS))]
        return results(given, inputs, torch.cat(parts))

    return Case(draw, call, formula, {"a": 0, "b": 1, "dout": 0})


BY_ROWS = {"a": 0, "b": 0, "last": 0}
WITH_RESIDUAL = {**BY_ROWS, "residual": 0}
CASES: dict[str, Case] = {
    "attention causal": both_passes(64, torch.float16, ROWS, NEARER, True),
    "attention full": both_passes(128, torch.bfloat16, 60, FURTHER, False),
    "attention packed": packed(),
    "attention in fp8": in_fp8(),
    "attention bias": with_bias(),
    "cache rows": decoding(1),
    "cache columns": decoding(3),
    "cache rows of pages": decoding(1, pages=2),
    "cache pages": decoding(0, pages=4, apart=PAGES_APART),
    "cache in fp8": decoding(1, fp8=True),
    "matmul with gradients": product((ROWS, 136, 72), WITH_RESIDUAL, into=False, special=True),
    "matmul into out": product((ROWS, 136, 72), BY_ROWS, special=True),
    "matmul b by columns": product((ROWS, 136, 72), WITH_RESIDUAL | {"b": 1}),
    "matmul few rows": product((8, 136, 2056), {"b": 1, "residual": 1, "last": 1}),
    "matmul one row": product((1, 136, 72), dict.fromkeys(WITH_RESIDUAL, 1)),
    "matmul in fp8": product((ROWS, 136, 80), BY_ROWS | {"b": 1}, special=True, dtype=E4M3),
    "grouped matmul": grouped(),
}


@dataclass(frozen=True)
class Asked:
    """A case of this name, its distances divided by ``divisor``, to run where it is small."""

    name: str
    divisor: int
    portable: bool


def errors(asked: Asked) -> dict[str, Errors | Finding]:
    """Of far views, by output: their errors by those of the formula and, named ``... near``, of
    near copies, which the same kernel must have served. Not so where Hopper's may serve one of both
    and there is a formula."""
    case = CASES[asked.name]
    given = case.draw()
    near = {key: one.clone() for key, one in given.items()}
    plain = case.formula(given, case.dtype) if case.dtype is not None else None
    truth = case.formula(given, torch.float64)
    rooms = {
        key: far(given[key], axis, case.apart // asked.divisor) for key, axis in case.axes.items()
    }
    del given
    beside = case.call(near)
    found = case.call(near | {key: view for key, (view, _) in rooms.items()})
    missing = {}
    for key in case.written:
        view, room = rooms[key]
        found[key], beside[key] = view.contiguous(), near[key]
        stray = room.numel() - view.numel() - int(is_unwritten(room).sum())
        missing[f"{key} room"] = Finding(
            f"{key} room", 0.0, 0.0, view.numel(), f"{stray} values beside rows" if stray else ""
        )
    del rooms
    told: dict[str, Errors | Finding] = dict(missing)
    for key, got in found.items():
        if key not in truth:  # copied into the cache
            same = torch.equal(got.view(torch.uint8), beside[key].view(torch.uint8))
            told[key] = Finding(key, 0.0, 0.0, got.numel(), "" if same else "not the near values")
            continue
        if asked.portable or plain is None:
            told[f"{key} near"] = measure(got, beside[key], truth[key])
        if plain is not None:
            told[key] = measure(got, plain[key], truth[key])
    return told


def problems(name: str, device: str, portable: bool, divisor: int = 1) -> list[str]:
    """What is wrong with a case on ``device``; all it took there is free again."""
    drawn = Drawn(name, Asked(name, divisor, portable), errors, portable=portable)
    try:
        with Made(device):
            found = drawn.findings()
    finally:
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    return [f"{one.name}: {one.problem}" for one in found if one.problem]
