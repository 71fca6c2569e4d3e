"""Cases of Hopper's attention forward passes for the interpreter of Gluon, against fp64 among NaN.

They are cut as ``choose`` cuts them or as a case says. Everything here runs in a worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any

import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels import attention_fp8_cases, varlen_fp8_cases
from tests.kernels.findings import run_attention_fp8
from tests.kernels.interpreted import Errors, measure

NAN = float("nan")
AROUND = 7  # rows of NaN on either side of packed tensors
KERNEL, FP8_KERNEL = "attention_forward_hopper", "attention_forward_fp8_hopper"
Form = dict[str, Any]  # what a kernel is compiled for


@dataclass(frozen=True, kw_only=True)
class Case:
    """``config``: fields of HopperConfig, none for what ``choose`` picks. ``q`` and ``k`` are the
    lengths of packed sequences, the longest ``overstated`` by so many. Through the ``public``
    function or straight to the launch. ``processors`` and ``order`` are the interpreter's."""

    B: int = 1
    S: int = 200
    KV: int = 200
    H: int = 2
    G: int = 1
    D: int = 64
    dtype: str = "bfloat16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    view: str = "contiguous"
    scale: float | None = None
    q: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    overstated: int = 0
    public: bool = False
    processors: int = 2
    order: int = 0
    config: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        changed = (one for one in fields(self) if getattr(self, one.name) != one.default)
        words = [f"{one.name}{getattr(self, one.name)}" for one in changed if one.name != "config"]
        cut = [f"{name}{int(value)}" for name, value in self.config.items()]
        return "-".join("".join(word.split()) for word in (*words, *cut)) or "plain"

    def limits(self, n_q: int, n_k: int) -> tuple[bool, int, int | None]:
        from kernels.attention.common import shapes

        return shapes.limits(n_k - n_q, self.causal, self.window)

    def packed(self) -> Any:
        """Where sequences begin: behind rows of NaN, unless for the public function."""
        from kernels.attention.common.packed.sequences import Packed

        if not self.q:
            return None
        first = 0 if self.public else AROUND
        ends = (
            torch.tensor([*accumulate(lengths, initial=first)], dtype=torch.int32)
            for lengths in (self.q, self.k)
        )
        return Packed(*ends, *(max(lengths) + self.overstated for lengths in (self.q, self.k)))

    def tensors(self) -> list[torch.Tensor]:
        """q, k, v as (batch, rows, heads, head dim); of packed sequences (tokens, heads, head dim)
        with rows of NaN around."""
        dtype = getattr(torch, self.dtype)
        rows_q, rows_k = (
            (sum(self.q) + 2 * AROUND, sum(self.k) + 2 * AROUND) if self.q else (self.S, self.KV)
        )
        batch = 1 if self.q else self.B
        shapes = [(batch, rows_q, self.H), *[(batch, rows_k, self.G)] * 2]
        made = [_view((*shape, self.D), self.view, dtype, i) for i, shape in enumerate(shapes)]
        if not self.q:
            return made
        for one in made:
            one[:, :AROUND] = one[:, -AROUND:] = NAN
        return [one[0, AROUND * self.public :] for one in made]


def _view(shape: tuple[int, ...], view: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """``transposed``: a head's rows one after the other; ``fused``: between heads of NaN, as where
    one projection gives q, k and v."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    if view == "transposed":
        return drawn.transpose(1, 2).contiguous().transpose(1, 2)
    if view == "fused":
        B, S, H, D = shape
        room = torch.full((B, S, 3, H, D), NAN).to(dtype)
        room[:, :, 1] = drawn
        return room[:, :, 1]
    return drawn


@contextmanager
def on_hopper(case: Any, kernel: str) -> Iterator[None]:
    """What is called inside is interpreted, and is one launch of ``kernel``."""
    from tests.gluon.interpreter import hopper_on_the_cpu

    with hopper_on_the_cpu(case.processors, case.order) as launches:
        yield
    assert launches.kernels == [kernel], f"expected {kernel}, got {launches.kernels}"
    form = {name: value for name, value in launches.named[0].items() if name.isupper()}
    packed, windowed = bool(getattr(case, "q", ())), getattr(case, "window", (-1, -1))[0] >= 0
    launched.append({**form, "KERNEL": kernel, "PACKED": packed, "WINDOW": windowed})


launched: list[Form] = []


def forms_launched() -> list[Form]:
    return launched


def forms(cases: Sequence[Any]) -> list[Form]:
    """What the kernels of ``cases`` are compiled for; they do not run."""
    from warpwatch.simulator.session import launch as launches

    plain, launches.launch = launches.launch, lambda *_: None
    launched.clear()
    try:
        for case in cases:
            if isinstance(case, Fp8Cut):
                with serving_fp8(case):
                    case.attended()
                launched[-1]["OUT"] = case.out
            else:
                outputs(case, case.tensors())
    finally:
        launches.launch = plain
    return launched


def outputs(case: Case, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) in memory of NaN."""
    import kernels
    from kernels.attention.hopper.forward import launch as hopper
    from tests.problems import problem_of

    config = hopper.HopperConfig(**case.config) if case.config else None
    packed = case.packed()
    longest = (packed.cu_q, packed.cu_k, packed.max_q, packed.max_k) if packed else ()
    with on_hopper(case, KERNEL):
        if case.public:
            function = kernels.flash_attention_varlen if packed else kernels.flash_attention
            options = {"causal": case.causal, "window_size": case.window, "return_lse": True}
            found = function(*tensors, *longest, softmax_scale=case.scale, **options)
            return found[0], found[1]
        q, k, v = tensors
        heads = (case.H, len(q)) if packed else (case.B, case.H, case.S)
        out, lse = torch.full(q.shape, NAN, dtype=q.dtype), torch.full(heads, NAN)
        causal, last, first = case.limits(*((0, 0) if packed else (case.S, case.KV)))
        *inputs, into = [packed.spread(x) for x in (q, k, v, out)] if packed else [q, k, v, out]
        problem = problem_of(
            *inputs, causal=causal, causal_offset=last, left_offset=first,
            scale=case.scale or case.D**-0.5, packed=packed,
        )  # fmt: skip
        hopper.launch(problem, into, lse, config=config)
    return out, lse


def run(case: Case) -> dict[str, Errors]:
    """Errors of the output and of the log-sum-exp."""
    q, k, v = tensors = case.tensors()
    out, lse = outputs(case, tensors)
    found = [(out, lse, q, k, v)]
    packed = case.packed()
    if packed:
        # Rows of no sequence: the public function clears those behind the last.
        for rows, cleared in ((out, 0.0), (lse.T, -math.inf)):
            assert case.public or rows[[*range(AROUND), *range(-AROUND, 0)]].isnan().all()
            assert not case.public or rows[-AROUND:].eq(cleared).all()
        ends = zip(packed.cu_q.tolist(), packed.cu_k.tolist(), case.q, case.k, strict=False)
        found = [
            (
                out[None, i : i + n_q],
                lse[None, :, i : i + n_q],
                q[None, i : i + n_q],
                *(x[None, j : j + n_k] for x in (k, v)),
            )
            for i, j, n_q, n_k in ends
        ]
    outs, lses = [], []
    for out, lse, q, k, v in found:
        causal, last, first = case.limits(q.shape[1], k.shape[1])
        masks: dict[str, Any] = {"causal_offset": last if causal else None, "left_offset": first}
        plain = plain_attention(q, k, v, **masks, scale=case.scale)
        true = plain_attention(q, k, v, **masks, scale=case.scale, dtype="float64")
        outs.append((out, plain[0], true[0]))
        lses.append((lse, plain[1], true[1]))
    return {"out": _measured(outs), "lse": _measured(lses)}


def _measured(parts: list[tuple[torch.Tensor, ...]]) -> Errors:
    got, plain, true = (
        torch.cat([one.flatten() for one in each]) for each in zip(*parts, strict=True)
    )
    return measure(got, plain, true)


# Scores that are no numbers: the column of head 0's query row 3 that meets both signs in k.
SPOILS: dict[str, list[tuple[str, tuple[int, ...], float]]] = {
    "q": [("q", (0, 3, 0, 3), math.inf)],
    "k": [("k", (0, 5, 0, 3), math.inf)],
    "twice q": [("q", (0, 3, 0, 3), math.inf), ("q", (0, 3, 0, 4), math.inf)],
    "nan q": [("q", (0, 3, 0, 3), NAN)],
    "nan k": [("k", (0, 5, 0, 3), NAN)],
    "v": [("v", (0, 5, 0, 3), math.inf), ("v", (0, 6, 0, 4), -math.inf)],
    "nan v": [("v", (0, 5, 0, 3), NAN)],
}


def run_spoilt(case: Case, name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of output and log-sum-exp what is +inf (1), -inf (2) or NaN (3), here and by the formula."""
    tensors = case.tensors()
    for which, at, number in SPOILS[name]:
        tensors["qkv".index(which)][at] = number
    wanted = plain_attention(*tensors, dtype="float64")
    found = outputs(case, tensors)
    return [(_kinds(mine), _kinds(true)) for mine, true in zip(found, wanted, strict=True)]


def _kinds(found: torch.Tensor) -> torch.Tensor:
    return found.isposinf() + 2 * found.isneginf() + 3 * found.isnan()


# fp8.


@dataclass(frozen=True, kw_only=True)
class Fp8Cut(attention_fp8_cases.Case):
    """``config``: fields of Fp8HopperConfig, none for what ``choose`` picks. ``processors`` and
    ``order`` are the interpreter's."""

    processors: int = 2
    order: int = 0
    config: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """``beside``: each row within one of a multiple of 16 columns, the others NaN; ``by head``:
        a head's rows one after the other."""
        if self.view not in ("beside", "by head"):
            return super().arguments()
        made = replace(self, view="contiguous").arguments()
        for name in "qkv":
            one = made[name]
            if self.view == "by head":
                made[name] = one.transpose(-3, -2).contiguous().transpose(-3, -2)
                continue
            columns = one.shape[-1]
            room = torch.full((*one.shape[:-1], columns // 16 * 16 + 16), NAN).to(one.dtype)
            room[..., :columns] = one
            made[name] = room[..., :columns]
        return made

    def __str__(self) -> str:
        cut = "".join(f"-{name}{int(value)}" for name, value in self.config.items())
        return f"{super().__str__()}-{self.processors}{cut}"


class Fp8Case(Fp8Cut):
    """Of a plain batch."""


@dataclass(frozen=True, kw_only=True)
class PackedFp8Case(Fp8Cut, varlen_fp8_cases.Case):
    """Of packed sequences."""

    def __str__(self) -> str:
        return super().__str__()


@contextmanager
def serving_fp8(case: Fp8Cut) -> Iterator[None]:
    """Inside, one call is interpreted, and cut as the case says."""
    from kernels.attention.hopper.fp8 import launch as hopper_fp8

    chosen = hopper_fp8.choose
    if case.config:
        config = hopper_fp8.Fp8HopperConfig(**case.config)
        hopper_fp8.choose = lambda *_: config
    try:
        with on_hopper(case, FP8_KERNEL):
            yield
    finally:
        hopper_fp8.choose = chosen


def run_fp8(case: Fp8Cut) -> dict[str, Errors]:
    """Errors of the output; the log-sum-exp is within its bound, the unit adds in fp32 here."""
    with serving_fp8(case):
        found = run_attention_fp8(case)
    assert not found["lse"].problem, found["lse"].problem
    return {"out": found["out"]}


def run_signs(causal: bool) -> tuple[torch.Tensor, torch.Tensor, list[bool]]:
    """Heads of which any number is NaN and of which all are, and whether each is what it is with
    scales of other signs but the same products, where those are above 0."""
    import kernels

    case = Fp8Case(S=150, KV=130, H=4, G=2, causal=causal)
    q, k, v = (case.arguments()[name] for name in "qkv")

    def call(*scales: list[float]) -> list[torch.Tensor]:
        named = zip(("q_scale", "k_scale"), map(torch.tensor, scales), strict=True)
        given = {"causal": causal, "return_lse": True, **dict(named)}
        with serving_fp8(case):
            out, lse = kernels.flash_attention(q, k, v, **given)
        return [out.transpose(1, 2).flatten(2), lse]

    mixed = call([-1.0, 0.5, -0.5, 2.0], [-1.0, 0.7])
    above = call([1.0, 0.5, 0.5, 2.0], [1.0, 0.7])
    both = torch.cat([mixed[0].float(), mixed[1]], 2).isnan()
    same = [all(torch.equal(a[:, h], b[:, h]) for a, b in zip(mixed, above, strict=True))
            for h in range(4)]  # fmt: skip
    return both.any(2).any(0), both.all(2).all(0), same
