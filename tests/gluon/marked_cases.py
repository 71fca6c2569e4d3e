"""What corrects gradients of rows of one heavy weight by Hopper's Gluon kernel on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from tests.gluon.backward_cases import MARGIN

KERNEL = "attention_backward_hopper_marked"
# Of the largest sum of |dout| |v|, whose places products in fp32 have.
BAR = 2.0**-21


@dataclass(frozen=True, kw_only=True)
class Case:
    """``q`` and ``k``: lengths of sequences, all alike unless ``packed``. ``window``: keys before
    the diagonal that causal rows see. ``marks``: the rows that have one, of their first, middle and
    last thirds, by 1 or 0; or how many of a hundred. ``apart``: heads lie before rows, and NaN
    behind each row."""

    q: tuple[int, ...] = (200,)
    k: tuple[int, ...] = (200,)
    H: int = 1
    G: int = 1
    D: int = 64
    dtype: str = "bfloat16"
    causal: bool = False
    window: int | None = None
    packed: bool = False
    marks: tuple[int, int, int] | int = 100
    lse_too: bool = True
    apart: bool = False
    order: int = 0
    multiprocessors: int = 2

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        mask = f"window{self.window}" if self.window else "causal" if self.causal else "full"
        more = "-packed" * self.packed + "-dlse" * self.lse_too + "-apart" * self.apart
        return (
            f"{self.dtype}-q{lengths[0]}-k{lengths[1]}-H{self.H}-G{self.G}-D{self.D}-{mask}{more}"
            f"-marks{self.marks}-on{self.multiprocessors}".replace(" ", "")
        )


def drawn(case: Case) -> list[dict[str, torch.Tensor]]:
    """Of every sequence q, k, v, dout (rows, heads, head_dim), dlse (heads, rows), and in fp64 what
    the kernel is to find of them."""
    made = torch.Generator().manual_seed(5)
    kind = getattr(torch, case.dtype)
    found = []
    for S, KV in zip(case.q, case.k, strict=True):
        q, dout = (torch.randn(S, case.H, case.D, generator=made).to(kind) for _ in range(2))
        k, v = (torch.randn(KV, case.G, case.D, generator=made).to(kind) for _ in range(2))
        dlse = torch.randn(case.H, S, generator=made)
        each = case.H // case.G
        heads = [one.double().transpose(0, 1) for one in (q, k, v, dout)]
        heads[1:3] = (one.repeat_interleave(each, 0) for one in heads[1:3])
        s = heads[0] @ heads[1].mT * case.D**-0.5
        if case.causal:
            rows, keys = torch.arange(S)[:, None], torch.arange(KV)[None, :]
            s = s.masked_fill(keys > rows + KV - S, -math.inf)
            if case.window is not None:
                s = s.masked_fill(keys < rows + KV - S - case.window, -math.inf)
        lse = torch.logsumexp(s, 2) if KV else torch.full((case.H, S), -math.inf).double()
        p = torch.exp(s - lse[..., None]).nan_to_num(0.0)
        out, dp = p @ heads[2], heads[3] @ heads[2].mT
        most = heads[3].abs() @ heads[2].abs().mT
        if isinstance(case.marks, int):
            marks = torch.rand(case.H, S, generator=made) < case.marks / 100
        else:
            marks = torch.tensor(case.marks).bool()[torch.arange(S) * 3 // S].expand(case.H, S)
        marks = marks & lse.isfinite()
        bits = lse.float().view(torch.int32) & -2 | marks.int()
        found.append(
            {
                "q": q, "k": k, "v": v, "dout": dout, "dlse": dlse, "marks": marks,
                "out": out.transpose(0, 1).to(kind),
                "lse": torch.where(lse.isfinite(), bits.view(torch.float32), lse.float()),
                "less": (dlse if case.lse_too else 0.0) - (p * dp).sum(2),
                "most": most.max() if most.numel() else torch.tensor(1.0),
            }
        )  # fmt: skip
    return found


def placed(parts: list[torch.Tensor], packed: bool, axis: int) -> torch.Tensor:
    """As a batch, or one behind the other along ``axis`` between rows of NaN."""
    if not packed:
        return torch.stack(parts)
    shape = list(parts[0].shape)
    shape[axis] = MARGIN
    some = torch.full(shape, math.nan, dtype=parts[0].dtype)
    return torch.cat([some, *parts, some], axis)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """The same values (..., rows, heads, columns), heads before rows and NaN behind each row."""
    room = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 8), math.nan, dtype=tensor.dtype)
    room = room.transpose(-3, -2).contiguous().transpose(-3, -2)
    return room[..., :-8].copy_(tensor)


def run(case: Case) -> float:
    """The largest error by its bar; infinite where a row without a mark is not as it was."""
    from kernels.attention.common.options import Options
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.common.problem import Given
    from kernels.attention.dispatch import backward as gradients
    from tests.gluon.interpreter import hopper_on_the_cpu
    from tests.problems import problem_of

    sequences = drawn(case)
    tensors: dict[str, Any] = {
        name: placed([one[name] for one in sequences], case.packed, int(name in ("dlse", "lse")))
        for name in ("dout", "dlse", "q", "k", "v", "out", "lse")
    }
    if case.apart:
        tensors |= {name: moved(tensors[name]) for name in ("dout", "q", "k", "v", "out")}
    packed = None
    if case.packed:
        ends = [
            torch.tensor([*accumulate(lengths, initial=MARGIN)], dtype=torch.int32)
            for lengths in (case.q, case.k)
        ]
        packed = Packed(*ends, max(case.q), max(case.k))
        for name in ("dout", "q", "k", "v", "out"):
            tensors[name] = packed.spread(tensors[name])
    if not case.lse_too:
        tensors["dlse"] = None
    offset = 0 if case.packed else case.k[0] - case.q[0]
    left = None if case.window is None else offset - case.window
    masks: dict[str, Any] = {"causal": case.causal, "causal_offset": offset, "left_offset": left}
    inputs = (tensors[name] for name in ("q", "k", "v"))
    given = (tensors[name] for name in ("dout", "dlse", "out", "lse"))
    options = Options(exact_gradients=True)
    problem = problem_of(*inputs, scale=case.D**-0.5, packed=packed, options=options, **masks)
    with hopper_on_the_cpu(case.multiprocessors, case.order) as told:
        found = gradients.corrected(problem, Given(*given))
    assert told.kernels == [KERNEL], told.kernels
    assert found is not None
    worst, first = 0.0, MARGIN
    for i, one in enumerate(sequences):
        S = one["q"].shape[0]
        own = found[:, first : first + S] if case.packed else found[i]
        first += S
        others = one["dlse"] if case.lse_too else torch.zeros_like(one["dlse"])
        if not torch.equal(own[~one["marks"]], others[~one["marks"]]):
            return math.inf
        errors = (own.double() - one["less"])[one["marks"]].abs() / (one["most"] * BAR)
        worst = max(worst, float(errors.max()) if errors.numel() else 0.0)
        worst = math.inf if errors.isnan().any() else worst
    return worst
