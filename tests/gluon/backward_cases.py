"""Gradients of attention by Hopper's Gluon kernels on the CPU: cases, and what they launch."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Errors, measure

NAMES = ("dq", "dk", "dv")
MARGIN = 7  # rows of NaN at either end of packed tensors, which are nobody's
ONE, SHORT, WIDE = "one", "short", "wide"
KERNELS = {
    ONE: ["attention_backward_hopper"],
    SHORT: ["attention_backward_hopper_short_q", "attention_backward_hopper_short_kv"],
    WIDE: ["attention_backward_hopper_kv", "attention_backward_hopper_q"],
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """``q`` and ``k``: lengths of sequences, all alike unless ``packed``. ``window``: keys before
    and after the diagonal, which causal windows see. ``of`` (ONE, SHORT, WIDE), ``stages``: the
    configuration, chosen by the launch unless ``stages`` are given. ``together``:
    heads whose programs are mixed, at most; 0 as many as there are."""

    q: tuple[int, ...] = (200,)
    k: tuple[int, ...] = (200,)
    H: int = 1
    G: int = 1
    D: int = 64
    dtype: str = "bfloat16"
    causal: bool = False
    window: tuple[int, int] | None = None
    packed: bool = False
    overstated: int = 0
    scale: float | None = None
    lse_too: bool = True
    view: str = "contiguous"
    of: str = ONE
    stages: int = 0
    together: int = 0
    multiprocessors: int = 2

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        mask = f"window{self.window}" if self.window else "causal" if self.causal else "full"
        cut = f"{self.of}-s{self.stages}" if self.stages else self.of
        more = "-packed" * self.packed + f"-{self.view}" * (self.view != "contiguous")
        more += f"-together{self.together}" * bool(self.together) + "-dlse" * self.lse_too
        return (
            f"{cut}-{self.dtype}-q{lengths[0]}-k{lengths[1]}-H{self.H}-G{self.G}-D{self.D}-{mask}"
            f"{more}-on{self.multiprocessors}"
        )

    @property
    def softmax_scale(self) -> float:
        return self.D**-0.5 if self.scale is None else self.scale

    @property
    def columns(self) -> int:
        return 64 if self.D <= 64 else 128 if self.D <= 128 else 256

    def limits(self, S: int, KV: int) -> dict[str, Any]:
        """``causal_offset`` and ``left_offset`` of one sequence, as the formula takes them."""
        if not self.causal:
            return {}
        left, right = self.window or (None, 0)
        found = {"causal_offset": KV - S + right}
        return found if left is None else found | {"left_offset": KV - S - left}

    @property
    def mask(self) -> dict[str, Any]:
        """As launches take it."""
        lengths = (0, 0) if self.packed else (self.q[0], self.k[0])
        nothing: dict[str, Any] = {"causal_offset": 0, "left_offset": None}
        return {"causal": self.causal, **nothing, **self.limits(*lengths)}

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """q, k, v, dout and dlse of every sequence, (rows, heads, head_dim) and (heads, rows)."""
        kind = getattr(torch, self.dtype)
        made = torch.Generator().manual_seed(3)
        found: dict[str, list[torch.Tensor]] = {}
        for name, lengths, heads in (
            ("q", self.q, self.H),
            ("k", self.k, self.G),
            ("v", self.k, self.G),
            ("dout", self.q, self.H),
        ):
            found[name] = [torch.randn(n, heads, self.D, generator=made).to(kind) for n in lengths]
        found["dlse"] = [torch.randn(self.H, n, generator=made) for n in self.q]
        return found


def placed(parts: list[torch.Tensor], case: Case) -> torch.Tensor:
    """(batch, rows, heads, head_dim), or packed between rows of NaN, in memory as ``view`` says:
    heads before rows, or with NaN behind each row."""
    if case.packed:
        some = parts[0].new_full((MARGIN, *parts[0].shape[1:]), math.nan)
        x = torch.cat([some, *parts, some])
    else:
        x = torch.stack(parts)
    if case.view == "transposed":
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if case.view == "apart":
        room = x.new_full((*x.shape[:-1], x.shape[-1] + 8), math.nan)
        room[..., : x.shape[-1]] = x
        return room[..., : x.shape[-1]]
    return x


def formula(
    case: Case, dtype: str, given: dict[str, list[torch.Tensor]] | None = None
) -> dict[str, list[torch.Tensor]]:
    """Output, log-sum-exp and gradients of every sequence by PyTorch through the plain formula; of
    rows that see no key, 0 (-inf)."""
    given = given or case.tensors()
    kind = getattr(torch, dtype)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in ("out", "lse", *NAMES)}
    for q, k, v, dout, dlse in zip(*given.values(), strict=True):
        S, KV = len(q), len(k)
        leaves = [one.to(kind)[None].requires_grad_() for one in (q, k, v)]
        limits = case.limits(S, KV)
        hidden = min(S, max(-limits.get("causal_offset", 0), 0)) if KV else S
        out = torch.zeros(S, case.H, case.D, dtype=kind)
        lse = torch.full((case.H, S), -math.inf, dtype=torch.float64)
        gradients = [torch.zeros_like(one) for one in leaves]
        if hidden < S:
            limits = {name: one + hidden for name, one in limits.items()}
            some = plain_attention(
                leaves[0][:, hidden:], *leaves[1:], scale=case.softmax_scale, dtype=dtype, **limits
            )
            loss = (some[0][0] * dout[hidden:].to(kind)).sum()
            if case.lse_too:
                loss = loss + (some[1][0] * dlse[:, hidden:]).sum()
            gradients = list(torch.autograd.grad(loss, leaves))
            out[hidden:], lse[:, hidden:] = some[0][0].detach(), some[1][0].detach()
        found["out"].append(out)
        found["lse"].append(lse)
        for name, one in zip(NAMES, gradients, strict=True):
            found[name].append(one[0])
    return found


def launch(case: Case, seed: int = 0, given: Any = None, made: Any = None) -> list[torch.Tensor]:
    """Gradients by the kernels, in one of their orders; what they leave unwritten is NaN. ``given``
    as ``Case.tensors``, ``made`` as ``formula`` gives them."""
    from kernels.attention.common.packed import sequences as packing
    from kernels.attention.common.problem import Given
    from kernels.attention.hopper.backward import launch as launches
    from kernels.attention.hopper.backward.wide import launch as wide
    from tests.gluon.interpreter import hopper_on_the_cpu
    from tests.problems import problem_of

    given, made = given or case.tensors(), made or formula(case, "float32")
    kind = getattr(torch, case.dtype)
    q, k, v, dout = (placed(given[name], case) for name in ("q", "k", "v", "dout"))
    out = placed([one.to(kind) for one in made["out"]], case)
    lse = placed_rows(made["lse"], case)
    dlse = placed_rows(given["dlse"], case) if case.lse_too else None
    # Gradients are contiguous.
    gradients = [torch.full(one.shape, math.nan, dtype=kind) for one in (q, k, v)]
    packed = None
    if case.packed:
        ends = [
            torch.tensor([*accumulate(lengths, initial=MARGIN)], dtype=torch.int32)
            for lengths in (case.q, case.k)
        ]
        longest = (max(max(one), case.overstated) for one in (case.q, case.k))
        packed = packing.Packed(*ends, *longest)
        q, k, v, dout, out = (packed.spread(one) for one in (q, k, v, dout, out))
    config = None
    if case.stages:
        two = case.of != ONE
        config = launches.HopperBackwardConfig(case.columns, two, case.stages)
    problem = problem_of(q, k, v, scale=case.softmax_scale, packed=packed, **case.mask)
    given = Given(dout, dlse, out, lse)

    def together(heads: int, a_head: int, *, causal: bool) -> int:
        return min(case.together, heads) if causal else 1

    chunks = patch.object(wide, "heads_together", together) if case.together else nullcontext()
    with hopper_on_the_cpu(case.multiprocessors, seed) as told, chunks:
        assert launches.supported(problem, dout), f"not supported: {case}"
        launches.launch(problem, given, tuple(gradients), config=config)
    assert told.kernels == KERNELS[case.of], told.kernels
    return gradients


def placed_rows(parts: list[torch.Tensor], case: Case) -> torch.Tensor:
    """fp32 (batch, heads, rows), or packed (heads, rows)."""
    if not case.packed:
        return torch.stack(parts).float().contiguous()
    some = parts[0].new_full((case.H, MARGIN), math.nan)
    return torch.cat([some, *parts, some], 1).float().contiguous()


def run(case: Case, seed: int = 0) -> dict[str, Errors]:
    """Errors of dq, dk and dv; nothing is written to rows that are nobody's."""
    plain, truth = formula(case, case.dtype), formula(case, "float64")
    found = {}
    for name, one in zip(NAMES, launch(case, seed), strict=True):
        if case.packed:
            assert one[:MARGIN].isnan().all() and one[-MARGIN:].isnan().all(), name
            one = one[MARGIN:-MARGIN]
        else:
            one = one.flatten(0, 1)
        found[name] = measure(one, torch.cat(plain[name]), torch.cat(truth[name]))
    return found


def alike(case: Case, seeds: Sequence[int], multiprocessors: Sequence[int]) -> bool:
    """Whether gradients are the same bits in every order and on any number of multiprocessors."""
    given, made = case.tensors(), formula(case, "float32")
    runs = []
    for seed, count in zip(seeds, multiprocessors, strict=True):
        one = launch(replace(case, multiprocessors=count), seed, given, made)
        runs.append([each.view(torch.int16) for each in one])
    return all(torch.equal(*pair) for one in runs[1:] for pair in zip(runs[0], one, strict=True))


def told_of_a_change(case: Case, seed: int, module: str, function: str, what: str) -> str:
    """What is told of a kernel in which a ``function`` of ``module`` is changed as ``what`` says
    (taken_away.py)."""
    from tools.gluon import mutants, taken_away

    plain = getattr(import_module(f"kernels.attention.hopper.backward.{module}"), function).fn
    (mutant,) = (one for one in taken_away.mutants_of(plain) if one.what == what)
    with mutants.put_in_place(mutant):
        try:
            alike(case, (seed,), (2,))
        except AssertionError as error:
            return f"{type(error).__name__}: {error}"
    return ""


def run_spoilt(
    case: Case, name: str, number: float
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients of one sequence where an element of head 0 of ``name`` is ``number``, (rows, heads,
    head_dim), and the formula's in fp64."""
    given = case.tensors()
    given[name][0][40, 0, 3] = number
    made, truth = (formula(case, dtype, given) for dtype in ("float32", "float64"))
    found = [one[0] for one in launch(case, 0, given, made)]
    return found, [truth[one][0] for one in NAMES]


def run_operator(case: Case) -> tuple[dict[str, Errors], list[str]]:
    """Errors of gradients behind the operators' own forward pass, of packed sequences one by one,
    and the names of Gluon's kernels."""
    import kernels
    from kernels.attention.hopper.backward import launch as launches
    from tests.gluon.interpreter import hopper_on_the_cpu

    given = case.tensors()
    leaves = [torch.cat(given[name]).requires_grad_() for name in ("q", "k", "v")]
    options: dict[str, Any] = {"causal": case.causal, "return_lse": True}
    # However few keys packed sequences see.
    with hopper_on_the_cpu(case.multiprocessors) as told, patch.object(launches, "FEW_PACKED", 0):
        if case.packed:
            ends = [
                torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32)
                for lengths in (case.q, case.k)
            ]
            longest = max(case.q), max(case.k)
            out, lse = kernels.flash_attention_varlen(*leaves, *ends, *longest, **options)
        else:
            found = kernels.flash_attention(*(one[None] for one in leaves), **options)
            out, lse = (one[0] for one in found)
        loss = (out * torch.cat(given["dout"])).sum() + (lse * torch.cat(given["dlse"], 1)).sum()
        gradients = torch.autograd.grad(loss, leaves)
    plain, truth = formula(case, case.dtype), formula(case, "float64")
    errors = {}
    for name, whole in zip(NAMES, gradients, strict=True):
        parts = plain[name], truth[name]
        if not case.packed:
            errors[name] = measure(whole, *map(torch.cat, parts))
            continue
        each = whole.split(case.q if name == "dq" else case.k)
        for i, own in enumerate(zip(each, *parts, strict=True)):
            errors[f"{name} of {case.q[i]} rows over {case.k[i]} keys"] = measure(*own)
    return errors, told.kernels


class Recorded:
    """Launches of Gluon's kernels: their constants, and which arguments are None."""

    def __init__(self) -> None:
        self.variants: Counter[tuple[str, tuple[tuple[str, Any], ...]]] = Counter()

    def note(self, kernel: Any, given: tuple[Any, ...], named: dict[str, Any], *_: Any) -> None:
        signature = inspect.signature(kernel.fn)
        own = {name: one for name, one in named.items() if name in signature.parameters}
        bound = signature.bind(*given, **own)
        told = {
            name: value is None
            if name in ("left_offset", "dlse", "tiles")
            else getattr(value, "value", value)
            for name, value in bound.arguments.items()
            if name in ("left_offset", "dlse", "tiles") or name.isupper()
        }
        self.variants[kernel.__name__, tuple(sorted(told.items()))] += 1


def variants(cases: Sequence[Case]) -> Counter[tuple[str, tuple[tuple[str, Any], ...]]]:
    """What launches of the cases are specialised for; no kernel runs."""
    from warpwatch.simulator.session import launch as simulator

    recorded = Recorded()
    nothing: dict[str, list[torch.Tensor]] = {}
    with patch.object(simulator, "launch", recorded.note):
        for case in cases:
            given = case.tensors()
            nothing = {
                "out": given["q"],
                "lse": [torch.zeros(case.H, len(one)) for one in given["q"]],
            }
            launch(case, 0, given, nothing)
    return recorded.variants
