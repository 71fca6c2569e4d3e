"""flash_attention_varlen against each sequence's own formula in fp64, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Errors, Worker, measure, strided


@dataclass(frozen=True, kw_only=True)
class Case:
    """``spare`` rows behind the last sequence are nobody's. Of each sequence the first ``used_q``
    queries and ``used_k`` keys count, unless empty; the others are NaN."""

    q: tuple[int, ...] = (70, 1, 0, 33)
    k: tuple[int, ...] = (70, 90, 5, 20)
    H: int = 2
    G: int = 2
    D: int = 64
    DV: int = 64
    dtype: str = "float16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    view: str = "contiguous"
    tma: bool = False
    spare: int = 0
    used_q: tuple[int, ...] = ()
    used_k: tuple[int, ...] = ()

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        mask = "causal" if self.causal else "full"
        window = "" if self.window == (-1, -1) else f"-window{self.window[0]},{self.window[1]}"
        shape = f"H{self.H}-G{self.G}-D{self.D}-DV{self.DV}"
        more = "-tma" * self.tma + "-spare" * bool(self.spare)
        for name, used in (("q", self.used_q), ("k", self.used_k)):
            more += f"-used_{name}{'+'.join(map(str, used))}" * bool(used)
        return f"{self.dtype}-q{lengths[0]}-k{lengths[1]}-{shape}-{mask}{window}-{self.view}{more}"

    @property
    def counted(self) -> list[tuple[int, int]]:
        """Queries and keys of each sequence, those that are used."""
        both = ((self.q, self.used_q), (self.k, self.used_k))
        each = ([max(0, min(pair)) for pair in zip(n, used or n, strict=True)] for n, used in both)
        return list(zip(*each, strict=True))

    def hide(self, tensors: Sequence[torch.Tensor]) -> None:
        """NaN in the rows of q, k, v and more like q that are not used."""
        for i, one in enumerate(tensors):
            of_keys = i in (1, 2)
            ends = accumulate(self.k if of_keys else self.q)
            for end, n, pair in zip(ends, self.k if of_keys else self.q, self.counted, strict=True):
                one[end - n + pair[of_keys] : end] = float("nan")

    def tensors(self) -> list[torch.Tensor]:
        dtype = getattr(torch, self.dtype)
        shapes = (
            (sum(self.q) + self.spare, self.H, self.D),
            (sum(self.k) + self.spare, self.G, self.D),
            (sum(self.k) + self.spare, self.G, self.DV),
        )
        found = [strided(shape, self.view, dtype, seed) for seed, shape in enumerate(shapes)]
        self.hide(found)
        return found


CASES = [
    Case(),
    Case(causal=True, dtype="bfloat16"),
    Case(causal=True, dtype="float32", D=40, DV=40),
    Case(H=4, G=2, causal=True, D=32, DV=16, view="transposed"),
    Case(window=(10, 4), k=(90, 90, 5, 0)),
    Case(window=(70, -1), causal=True, q=(200, 3), k=(200, 60), H=1, G=1, view="skipping"),
    Case(q=(1, 1, 1), k=(130, 7, 64), causal=True),
    Case(q=(40, 20, 9), k=(130, 20, 64), causal=True, dtype="float32"),
]
# Tiles through descriptors: what is not whole, on every side of a sequence.
CASES += [
    replace(CASES[0], tma=True, dtype="bfloat16"),
    replace(CASES[0], tma=True, causal=True, q=(70, 1, 0, 200), k=(70, 90, 5, 210)),
    replace(CASES[3], tma=True),
    replace(CASES[4], tma=True, view="padded", D=60, DV=56),
    replace(CASES[5], tma=True, view="contiguous"),
    Case(q=(90,), k=(100,), causal=True, tma=True),
]
# Of more, fewer and as many rows as there are, and of none; with few keys beside longer ones.
USED = {"used_q": (41, -1, 0, 99), "used_k": (60, 90, 2, 0)}
CASES += [
    replace(CASES[0], **USED, spare=9),
    replace(CASES[1], **USED, H=4, tma=True),
    replace(CASES[2], **USED),
    replace(CASES[4], used_q=USED["used_q"]),
    replace(CASES[4], used_k=USED["used_k"], tma=True, dtype="bfloat16"),
    Case(q=(200, 90), k=(210, 130), used_q=(150, 80), used_k=(170, 10), causal=True, D=32),
]


def formula(case: Case, q: Any, k: Any, v: Any, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sequence by itself; (out, lse) packed as the kernel returns them: rows that are not
    used are 0, or -inf."""
    left, right = case.window
    right = 0 if case.causal else right
    outs, lses = [], []
    first_q = first_k = 0
    for all_q, all_k, (n_q, n_k) in zip(case.q, case.k, case.counted, strict=True):
        out, lse = plain_attention(
            *(
                one[None, first : first + n]
                for one, first, n in ((q, first_q, n_q), (k, first_k, n_k), (v, first_k, n_k))
            ),
            causal_offset=None if right < 0 else n_k - n_q + right,
            left_offset=None if left < 0 else n_k - n_q - left,
            dtype=dtype,
        )
        unused = all_q - n_q
        outs += out[0], out.new_zeros(unused, *out.shape[2:])
        lses += lse[0], lse.new_full((lse.shape[1], unused), float("-inf"))
        first_q, first_k = first_q + all_q, first_k + all_k
    return torch.cat(outs), torch.cat(lses, 1)


def through_descriptors(tma: bool) -> None:
    """With the loops that branch around masks, as where descriptors serve on sm_90."""
    from kernels.attention.portable.tuning import choose as configs

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=tma, branch=tma)
    kv, q = (
        replace(each, branch=tma)
        for each in (configs.INTERPRETED_BACKWARD.kv, configs.INTERPRETED_BACKWARD.q)
    )
    configs.INTERPRETED_BACKWARD = replace(configs.INTERPRETED_BACKWARD, kv=kv, q=q, tma=tma)


def run(case: Case) -> list[Errors]:
    """Of out, lse, dq, dk and dv; the log-sum-exp has a gradient too."""
    import kernels

    through_descriptors(case.tma)
    cu_q, cu_k = (
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32) for lengths in (case.q, case.k)
    )
    used = {
        name: torch.tensor(each, dtype=torch.int32)
        for name, each in (("seqused_q", case.used_q), ("seqused_k", case.used_k))
        if each
    }

    def everything(dtype: str | None) -> list[torch.Tensor]:
        leaves = [one.detach() for one in case.tensors()]
        if dtype == "float64":
            leaves = [one.double() for one in leaves]
        for leaf in leaves:
            leaf.requires_grad_()
        if dtype is None:
            out, lse = kernels.flash_attention_varlen(
                *leaves,
                cu_q,
                cu_k,
                *(max(lengths) for lengths in zip(*case.counted, strict=True)),
                causal=case.causal,
                window_size=case.window,
                return_lse=True,
                **used,
            )
            out, lse = out[: sum(case.q)], lse[:, : sum(case.q)]
        else:
            out, lse = formula(case, *leaves, dtype)
        generator = torch.Generator().manual_seed(4)
        dout = torch.randn(out.shape, generator=generator).to(getattr(torch, case.dtype))
        case.hide([dout])
        dlse = torch.randn(lse.shape, generator=generator)
        loss = (out * dout.to(out.dtype)).sum()
        loss = loss + (lse * dlse)[lse > float("-inf")].sum()
        return [out.detach(), lse.detach(), *torch.autograd.grad(loss, leaves)]

    return [
        measure(*each)
        for each in zip(
            everything(None), everything(case.dtype), everything("float64"), strict=True
        )
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, names=("out", "lse", "dq", "dk", "dv"))


def run_beside_nan(tma: bool) -> list[torch.Tensor]:
    """Output and gradients of the second of three sequences, whose neighbours are NaN in all."""
    import kernels

    through_descriptors(tma)
    cu = torch.tensor([0, 30, 130, 200], dtype=torch.int32)
    leaves = Case(q=(30, 100, 70), k=(30, 100, 70)).tensors()
    dout = torch.ones_like(leaves[0])
    for one in (*leaves, dout):
        one[:30] = one[130:] = float("nan")
    for one in leaves:
        one.requires_grad_()
    out = kernels.flash_attention_varlen(*leaves, cu, cu, 100, 100)
    return [one[30:130].detach() for one in (out, *torch.autograd.grad(out, leaves, dout))]


@pytest.mark.parametrize("tma", [False, True], ids=["pointers", "tma"])
def test_nothing_comes_over_from_neighbours(interpreter: Worker, tma: bool) -> None:
    assert all(torch.isfinite(one).all() for one in interpreter.run(run_beside_nan, tma))


def run_behind(dtype: str, lengths: tuple[int, ...], spare: int) -> list[list[torch.Tensor]]:
    """Output, log-sum-exp and gradients, the sinks' last, of sequences alone and in buffers of
    ``spare`` more rows of NaN; cut to the sequences, and what is behind them."""
    import kernels

    through_descriptors(False)
    n = sum(lengths)
    cu = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    given = Case(q=lengths, k=lengths, H=4, D=16, DV=32, dtype=dtype).tensors()
    dout = torch.randn((n, 4, 32), generator=torch.Generator().manual_seed(5)).to(given[0].dtype)
    found = []
    for more in (0, spare):
        *leaves, last = (
            torch.cat((one, one.new_full((more, *one.shape[1:]), float("nan"))))
            for one in (*given, dout)
        )
        leaves.append(torch.tensor([0.5, -1.0, 2.0, 0.0]))
        q, k, v, sinks = (one.requires_grad_() for one in leaves)
        longest = max(lengths, default=0)
        out, lse = kernels.flash_attention_varlen(
            q, k, v, cu, cu, longest, longest, causal=True, sinks=sinks, return_lse=True
        )
        *gradients, d_sinks = torch.autograd.grad(out, leaves, last)
        rows = [out.detach(), lse.detach().t(), *gradients]
        found.append([*(one[:n] for one in rows), d_sinks])
        found.append([one[n:] for one in rows])
    alone, _, padded, behind = found
    return [alone, padded, behind]


@pytest.mark.parametrize(
    ("dtype", "lengths", "spare"),
    [("float16", (40, 0, 33), 30), ("float32", (5, 20), 300), ("float16", (), 20)],
)
def test_rows_behind_the_last_sequence_are_zeros(
    interpreter: Worker, dtype: str, lengths: tuple[int, ...], spare: int
) -> None:
    alone, padded, behind = interpreter.run(run_behind, dtype, lengths, spare)
    for one, other in zip(alone, padded, strict=True):
        assert torch.equal(one, other) and torch.isfinite(one).all()
    out, lse, *gradients = behind
    assert all(len(one) == spare and not one.any() for one in (out, *gradients))
    assert (lse == float("-inf")).all()


def run_operator() -> tuple[dict[str, str], torch.Tensor, torch.Tensor]:
    import kernels.public

    q, k, v = (one.requires_grad_() for one in Case(dtype="float32", D=16, DV=16).tensors())
    cu_q, cu_k = (
        torch.tensor(each, dtype=torch.int32) for each in ((0, 70, 71, 104), (0, 80, 90, 185))
    )
    given = (q, k, v, cu_q, cu_k, 70, 95, True, 0, -3, 0.25)
    used = {
        name: torch.tensor(each, dtype=torch.int32)
        for name, each in (("seqused_q", (20, 1, 33)), ("seqused_k", (80, 5, 40)))
    }
    operator = torch.ops.warpwatch.flash_attention_varlen
    outcome = torch.library.opcheck(operator, given)
    of_used = {f"used_{name[-1]}": one for name, one in used.items()}
    outcome |= {
        f"{name} used": one for name, one in torch.library.opcheck(operator, given, of_used).items()
    }

    def model(q: Any, k: Any, v: Any) -> Any:
        given = (q, k, v, cu_q, cu_k, 70, 95)
        whole = kernels.flash_attention_varlen(*given, causal=True)
        return whole * 2.0 + kernels.flash_attention_varlen(*given, causal=True, **used)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(q, k, v)
    return outcome, compiled.detach(), model(q, k, v).detach()


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, compiled, eager = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"}
    assert torch.equal(compiled, eager)
