"""Rows of one heavy weight, whose 16-bit gradients are little else than the rounding of the output:
they keep the bar of all others, and without ``exact_gradients`` they do not."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch

from tests.kernels import scores_cases
from tests.kernels import test_far_scores as far
from tests.kernels import test_packed_few as packed
from tests.kernels.interpreted import Worker

DTYPES = ["float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Case(scores_cases.Case):
    """Each query is its own key. ``steep`` is what both are multiplied by at head dim 64, at others
    what makes scores as large; of 0 they are drawn, and key 0 has 0.99 of every row."""

    S: int = 150
    KV: int = 150
    H: int = 2
    G: int = 2
    D: int = 64
    steep: float = 1.4
    exact: bool = True

    def __str__(self) -> str:
        return super().__str__() + (f"-steep{self.steep:g}" if self.steep else "-key0")

    @property
    def scalars(self) -> dict[str, Any]:
        return super().scalars | {"exact_gradients": self.exact}

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = super().tensors()
        if not self.steep:
            # The weights of the other keys sum up to some KV * e^(1/2).
            heavy = torch.tensor(99.0 * self.KV).log() + 0.5
            q[..., 0], k[..., 0] = 4.0, 0.0
            k[:, 0] = 0.0
            k[:, 0, :, 0] = heavy * self.D**0.5 / 4.0
            return q, k, v
        times = self.steep * (64 / self.D) ** 0.25
        q.mul_(times)
        k.mul_(times)
        rows = torch.arange(max(0, self.S - self.KV), self.S)
        own = k.repeat_interleave(self.H // self.G, 2)
        q[:, rows] = own[:, rows + self.KV - self.S]
        return q, k, v


PLAIN = [
    Case(),
    Case(causal=True),
    Case(steep=1.0),
    Case(steep=0.0),
    Case(H=6, causal=True),
]
# What a bias adds is less than a query's own key has before the others.
BIASED = Case(bias=(1, 2, 150, 150), bias_dtype="bfloat16")
CASES = [
    *PLAIN,
    Case(D=40, KV=200, causal=True),
    Case(D=128, S=100, KV=100),
    Case(D=256, S=70, KV=70),
    Case(DV=32),
    Case(view="skipping"),
    Case(KV=90, causal=True),  # rows without keys
    Case(window=(40, 30)),
    Case(window=(70, -1), causal=True),
    Case(dropout=0.2),
    Case(dropout=0.2, steep=0.0, causal=True),
    Case(softcap=20.0),
    Case(alibi="heads"),
    Case(sinks=True),
    Case(sinks=True, steep=1.0, causal=True),
    BIASED,
    replace(BIASED, causal=True, bias_dtype="float32"),
    replace(BIASED, learnt=False),
    replace(BIASED, hiding=True, steep=0.0),
    replace(BIASED, hiding=True, bias_dtype="bool"),
    *(replace(BIASED, bias=shape) for shape in ((1, 2, 1, 150), (1, 2, 150, 1))),
    Case(blocks=(1, 2), S=300, KV=300),
    Case(blocks=(1, 1), S=300, KV=300, causal=True, sinks=True),
    # Of fp32, it shows what the rounding of a large log-sum-exp makes of all weights of a row.
    replace(BIASED, S=64, KV=64, H=6, bias=(1, 1, 64, 64), bias_dtype="float32", steep=2.0),
    replace(BIASED, softcap=20.0, alibi="heads", sinks=True, dropout=0.1, window=(100, 60)),
]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_keep_the_bar(interpreter: Worker, case: Case, dtype: str) -> None:
    interpreter.check(scores_cases.run, replace(case, dtype=dtype))


# The bar is 1.1 of the formula's RMS error.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_without_them_they_do_not(interpreter: Worker, case: Case, dtype: str) -> None:
    found = interpreter.run(scores_cases.run, replace(case, dtype=dtype, exact=False))
    for name in ("dq", "dk"):
        assert found[name].rms > 1.3 * found[name].plain_rms, name


@dataclass(frozen=True, kw_only=True)
class Packed(packed.Case):
    """Sequences of which each is as ``Case`` has them."""

    q: tuple[int, ...] = (0, 150, 9, 70, 0, 90)
    k: tuple[int, ...] = (0, 150, 9, 130, 40, 60)
    steep: float = 1.4
    exact: bool = True

    def __str__(self) -> str:
        return super().__str__() + (f"-steep{self.steep:g}" if self.steep else "-key0")

    def one(self, i: int) -> Case:
        given = super().one(i)
        own = {one.name: getattr(given, one.name) for one in fields(given)}
        return Case(**own, steep=self.steep, exact=self.exact)

    def tensors(self) -> list[torch.Tensor]:
        each = (self.one(i).tensors() for i in range(len(self.q)))
        return [torch.cat([one[0] for one in parts]) for parts in zip(*each, strict=True)]


PACKED = [
    Packed(),
    Packed(causal=True, H=4),
    Packed(steep=0.0, dlse=False, q=(9, 150, 90), k=(150, 9, 150)),
    Packed(D=128, window=(60, 30)),
    Packed(asked=(("sinks", True), ("dropout", 0.2)), causal=True),
    Packed(asked=(("softcap", 20.0), ("alibi", "heads"))),
]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_packed_sequences_keep_it_each_by_itself(
    interpreter: Worker, case: Packed, dtype: str
) -> None:
    interpreter.check(packed.run, replace(case, dtype=dtype))


def run_behind() -> list[torch.Tensor]:
    """Gradients of a buffer whose last rows, NaN, are no sequence's."""
    import kernels

    q, k, v = (
        torch.cat((one, torch.full_like(one[:21], torch.nan))).requires_grad_()
        for one in Packed().tensors()
    )
    ends = torch.tensor([[0, 150, 150, 240]] * 2, dtype=torch.int32)
    out, lse = kernels.flash_attention_varlen(q, k, v, *ends, 150, 150, return_lse=True)
    rows, behind = slice(240), slice(240, None)
    found = torch.autograd.grad(out[rows].sum() + lse[:, rows].sum(), (q, k, v))
    return [part for one in found for part in (one[rows], one[behind])]


def test_rows_behind_the_last_sequence_are_not_read(interpreter: Worker) -> None:
    found = interpreter.run(run_behind)
    assert all(one.isfinite().all() for one in found[::2])
    assert not any(one.any() for one in found[1::2])


FAR = (-1e9, "bfloat16", "float32", 70, far.ROWS, far.HEAD_DIM)


@pytest.mark.parametrize("beside", ["", "window", "sinks"])
def test_rows_far_from_0_stay_the_formulas(interpreter: Worker, beside: str) -> None:
    interpreter.check(far.run, *FAR, beside, {}, names=far.NAMES)


def run_exact_as_they_are(exact: bool) -> dict[str, torch.Tensor]:
    """Gradients that hold no rounding of the output as it is: of rows far from 0, and of packed
    sequences of few keys."""
    import kernels

    dq, dk, _ = packed.gradients(Packed(q=(9, 150), k=(9, 150), exact=exact), None)
    q, k, v = (one.requires_grad_() for one in Case().tensors())
    generator = torch.Generator().manual_seed(4)
    bias = torch.randn(1, 2, 150, 150, generator=generator)
    bias[:, :, :7] = -1e9
    asked: dict[str, Any] = {"bias": bias, "exact_gradients": exact, "return_lse": True}
    out, lse = kernels.flash_attention(q, k, v, **asked)
    dout, dlse = (torch.randn(one.shape, generator=generator) for one in (out, lse))
    (of_all,) = torch.autograd.grad((out, lse), [q], (dout.to(out.dtype), dlse))
    return {
        "far rows": of_all[:, :7],
        "few keys": torch.cat((dq[:9], dk[:9])),
        "others": of_all[:, 7:],
    }


def test_what_is_exact_as_it_is_stays_the_same_bits(interpreter: Worker) -> None:
    exact, without = (interpreter.run(run_exact_as_they_are, one) for one in (True, False))
    same = [name for name, one in exact.items() if torch.equal(one, without[name])]
    assert same == ["far rows", "few keys"]


def run_calls() -> dict[str, list[list[torch.Tensor]]]:
    """Gradients by each public call beside those of ``flash_attention``; in the end, where all rows
    are taken for such, of the log-sum-exp that is returned."""
    import kernels

    case = Case(causal=True)
    q, k, v = (one.requires_grad_() for one in case.tensors())
    dout = torch.randn(q.shape, generator=torch.Generator().manual_seed(4)).to(q.dtype)
    ends = torch.tensor([0, case.S], dtype=torch.int32)
    found: dict[str, list[list[torch.Tensor]]] = {"exact": [], "not": [], "all": []}
    for name, asked in (("exact", {}), ("not", {"exact_gradients": False})):
        given: dict[str, Any] = {"causal": True, **asked}
        out, lse = kernels.flash_attention(q, k, v, **given, return_lse=True)
        outs = [
            out,
            kernels.flash_attention_varlen(
                q[0], k[0], v[0], ends, ends, case.S, case.S, **given
            ).unsqueeze(0),
            kernels.scaled_dot_product_attention(
                *(one.transpose(1, 2) for one in (q, k, v)), is_causal=True, **asked
            ).transpose(1, 2),
        ]
        found[name] = [list(torch.autograd.grad(one, (q, k, v), dout)) for one in outs]
        alone = [one.detach() for one in (dout, q, k, v, out, lse)]
        name = "all" if name == "exact" else name
        given["exact_gradients"] = name == "all"
        found[name].append(list(kernels.flash_attention_backward(*alone, **given)))
    return found


def test_every_call_takes_it(interpreter: Worker) -> None:
    found = interpreter.run(run_calls)
    for first, *others in found.values():
        for other in others:
            assert all(torch.equal(*pair) for pair in zip(first, other, strict=True))
    assert not torch.equal(found["exact"][0][0], found["not"][0][0])
    # No row's own key has less than half of it.
    assert all(torch.equal(*pair) for pair in zip(found["exact"][0], found["all"][0], strict=True))


def run_fp32() -> list[list[torch.Tensor]]:
    import kernels

    q, k, v = (one.requires_grad_() for one in Case(dtype="float32", S=40, KV=40).tensors())
    return [
        list(
            torch.autograd.grad(kernels.flash_attention(q, k, v, exact_gradients=one).sum(), (q, k))
        )
        for one in (False, True)
    ]


def test_fp32_has_them_as_it_is(interpreter: Worker) -> None:
    without, asked = interpreter.run(run_fp32)
    assert all(torch.equal(*pair) for pair in zip(without, asked, strict=True))


def run_traced() -> tuple[list[dict[str, str]], list[list[list[torch.Tensor]]]]:
    import kernels.public

    q, k, v = (one.requires_grad_() for one in Case(D=16).tensors())
    ends = torch.tensor([0, 90, 150], dtype=torch.int32)
    none = (None,) * 5
    operators = torch.ops.warpwatch
    flat = [one[0].detach().requires_grad_() for one in (q, k, v)]
    outcomes = [
        torch.library.opcheck(
            operators.flash_attention, (q, k, v, True, 0, None, 0.25, *none, True)
        ),
        torch.library.opcheck(
            operators.flash_attention_varlen,
            (*flat, ends, ends, 90, 90, True, 0, None, 0.25, *none, True),
        ),
    ]

    def whole(q: Any, k: Any, v: Any) -> Any:
        return kernels.flash_attention(q, k, v, causal=True) * 2.0

    def packed(q: Any, k: Any, v: Any) -> Any:
        given = (*(one[0] for one in (q, k, v)), ends, ends, 90, 90)
        return kernels.flash_attention_varlen(*given) * 2.0

    def mapped(q: Any, k: Any, v: Any) -> Any:
        return torch.func.vmap(whole)(*(one.unsqueeze(0) for one in (q, k, v)))

    def gradients(model: Any) -> list[torch.Tensor]:
        return list(torch.autograd.grad(model(q, k, v).float().square().sum(), (q, k, v)))

    pairs = [
        [gradients(torch.compile(one, fullgraph=True, backend="aot_eager")), gradients(one)]
        for one in (whole, packed)
    ]
    pairs.append([gradients(mapped), pairs[0][1]])
    return outcomes, pairs


def test_operators_pass_opcheck_and_compile_in_one_graph(interpreter: Worker) -> None:
    outcomes, pairs = interpreter.run(run_traced)
    assert all(set(one.values()) == {"SUCCESS"} for one in outcomes)
    for ours, eager in pairs:
        assert all(torch.equal(*pair) for pair in zip(ours, eager, strict=True))
