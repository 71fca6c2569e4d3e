"""Gradients of packed sequences of few keys beside longer ones, each against fp64 by itself, in
Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, product

import pytest
import torch
import triton
import triton.language as tl

from kernels.attention.common.numerics import exactness
from tests.kernels import scores_cases
from tests.kernels.interpreted import Errors, Worker, measure, strided
from tests.kernels.test_attention_varlen import through_descriptors


@dataclass(frozen=True, kw_only=True)
class Case:
    """``asked`` of scores, by the names of ``scores_cases.Case``. Without ``dlse`` the log-sum-exp
    has no gradient: those of q and k are 0 where a row sees one key. ``rows`` of a tile, which
    depend on the target, unless 0."""

    q: tuple[int, ...] = (128, 70, 0, 33, 40, 40, 60)
    k: tuple[int, ...] = (2, 1, 3, 5, 24, 25, 128)
    H: int = 2
    G: int = 2
    D: int = 64
    DV: int = 0
    dtype: str = "bfloat16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    view: str = "contiguous"
    dlse: bool = True
    tma: bool = False
    rows: int = 0
    asked: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        mask = "causal" if self.causal else "full"
        window = "" if self.window == (-1, -1) else f"-window{self.window[0]},{self.window[1]}"
        more = "-dlse" * self.dlse + "-tma" * self.tma + f"-rows{self.rows}" * bool(self.rows)
        more += "".join(f"-{name}" for name, _ in self.asked)
        shape = f"H{self.H}-G{self.G}-D{self.D}-DV{self.DV or self.D}"
        return f"{self.dtype}-q{lengths[0]}-k{lengths[1]}-{shape}-{mask}{window}-{self.view}{more}"

    def tensors(self) -> list[torch.Tensor]:
        """q, k and v."""
        shapes = (
            (sum(self.q), self.H, self.D),
            (sum(self.k), self.G, self.D),
            (sum(self.k), self.G, self.DV or self.D),
        )
        dtype = getattr(torch, self.dtype)
        return [strided(shape, self.view, dtype, seed) for seed, shape in enumerate(shapes)]

    def one(self, i: int) -> scores_cases.Case:
        """Sequence ``i`` as the formula takes it."""
        return scores_cases.Case(
            B=1, S=self.q[i], KV=self.k[i], H=self.H, G=self.G, D=self.D, DV=self.DV or self.D,
            dtype=self.dtype, causal=self.causal, window=self.window, empty=i,
            **dict(self.asked),
        )  # fmt: skip


def gradients(case: Case, dtype: str | None) -> list[torch.Tensor]:
    """Of q, k, v and, if there are any, of sinks; by the kernels where ``dtype`` is None."""
    import kernels

    whole = replace(case.one(0), B=len(case.q))
    extras = {name: one.detach() for name, one in whole.extras().items()}
    leaves = [one.detach() for one in case.tensors()]
    if dtype == "float64":
        leaves = [one.double() for one in leaves]
        extras = {name: one.double() for name, one in extras.items()}
    wanted = [*leaves, *([extras["sinks"]] if "sinks" in extras else [])]
    for leaf in wanted:
        leaf.requires_grad_()
    ends = [[*accumulate(lengths, initial=0)] for lengths in (case.q, case.k)]
    if dtype is None:
        out, lse = kernels.flash_attention_varlen(
            *leaves,
            *(torch.tensor(one, dtype=torch.int32) for one in ends),
            max(case.q),
            max(case.k),
            **whole.scalars,
            **extras,
            return_lse=True,
        )
    else:
        outs, lses = [], []
        for i, (o_q, o_k, n_q, n_k) in enumerate(zip(*ends, case.q, case.k, strict=False)):
            own = [leaves[0][None, o_q : o_q + n_q]]
            own += [one[None, o_k : o_k + n_k] for one in leaves[1:]]
            given = dict(extras)
            if given.get("alibi_slopes", torch.empty(0)).dim() == 2:
                given["alibi_slopes"] = given["alibi_slopes"][i : i + 1]
            out, lse = scores_cases.formula(case.one(i), *own, given, dtype)
            outs.append(out[0])
            lses.append(lse[0])
        out, lse = torch.cat(outs), torch.cat(lses, 1)
    generator = torch.Generator().manual_seed(4)
    dout = torch.randn(out.shape, generator=generator).to(getattr(torch, case.dtype))
    loss = (out * dout.to(out.dtype)).sum()
    if case.dlse:
        dlse = torch.randn(lse.shape, generator=generator)
        loss = loss + (lse * dlse)[lse > float("-inf")].sum()
    return list(torch.autograd.grad(loss, wanted))


def run(case: Case) -> dict[str, Errors]:
    """Of each sequence's dq, dk and dv, and of the sinks' gradient."""
    from kernels.attention.portable.backward import short_sequences

    through_descriptors(case.tma)
    chosen = short_sequences.cut
    if case.rows:
        short_sequences.cut = lambda *_: (case.rows, 4)
    try:
        every = [gradients(case, dtype) for dtype in (None, case.dtype, "float64")]
    finally:
        short_sequences.cut = chosen
    found = {}
    for name, lengths, *parts in zip(
        ("dq", "dk", "dv"), (case.q, case.k, case.k), *every, strict=False
    ):
        for i, own in enumerate(zip(*(one.split(lengths) for one in parts), strict=True)):
            found[f"{name} of {case.q[i]} rows over {case.k[i]} keys"] = measure(*own)
    if len(every[0]) == 4:
        found["dsinks"] = measure(*(one[3] for one in every))
    return found


PLAIN = Case()
CASES = [
    PLAIN,
    replace(PLAIN, dtype="float16", dlse=False),
    replace(PLAIN, D=128, H=4, G=2, dtype="float16", q=(128, 20, 1), k=(2, 17, 128), tma=True),
    replace(PLAIN, D=40, DV=24, view="skipping", q=(70, 70, 9), k=(1, 2, 100), dlse=False),
    replace(PLAIN, D=256, q=(64, 5), k=(2, 40), view="transposed", rows=16),
    # Causal rows see half of them in the mean.
    replace(PLAIN, causal=True, q=(2, 70, 5, 24, 48, 49, 128), k=(2, 2, 5, 24, 48, 49, 128)),
    replace(PLAIN, causal=True, q=(90, 48, 7), k=(2, 48, 130), D=128, dlse=False, H=4, G=1),
    # In windows of more keys than few: sequences that are short, and rows at the end of long ones.
    replace(PLAIN, window=(40, 0), causal=True, q=(2, 40, 130), k=(2, 40, 130)),
    replace(PLAIN, window=(9, 60), q=(2, 1, 12, 130), k=(5, 100, 77, 130), rows=16),
    replace(PLAIN, window=(9, -1), q=(2, 14, 130, 60), k=(2, 90, 130, 2), H=4, G=2),
    # Each of what may be asked of scores, and all.
    replace(PLAIN, asked=(("softcap", 2.0),), q=(128, 9), k=(2, 60)),
    replace(PLAIN, asked=(("alibi", "batch"),), q=(128, 9), k=(2, 60), causal=True),
    replace(PLAIN, asked=(("sinks", True),), q=(128, 60, 9), k=(2, 1, 60), H=8, G=2),
    replace(PLAIN, asked=(("dropout", 0.2),), q=(128, 70, 9), k=(2, 24, 60), rows=16),
    replace(
        PLAIN,
        asked=(("softcap", 2.0), ("alibi", "heads"), ("sinks", True), ("dropout", 0.2)),
        q=(9, 128, 30),
        k=(60, 2, 48),
        window=(40, 20),
        dtype="float16",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sequences_of_few_keys_beside_longer_ones_match_fp64(
    interpreter: Worker, case: Case
) -> None:
    interpreter.check(run, case)


LENGTHS = (1, 2, 3, 11, 12, 23, 24, 25, 26, 47, 48, 49, 50, 70, 200, 1000)
WINDOWS = [(False, 0, None), (True, 0, None)]
# Narrower ones let no row see more than a few: the host knows it of all sequences.
WINDOWS += [
    (True, right, left)
    for right in (0, 5, 30, 100)
    for left in (0, 9, 20, 40, 200)
    if left + right >= 24
]
WINDOWS += [(True, 9, None), (False, 0, 9), (False, 0, 40)]


@triton.jit
def _ask(
    lengths_q, lengths_k, to, right, left, CAUSAL: tl.constexpr, FEW: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    from kernels.attention.portable.backward.short_sequences import keys_of_few

    i = tl.program_id(0)
    seqlen_q, seqlen_k = tl.load(lengths_q + i), tl.load(lengths_k + i)
    more = seqlen_k - seqlen_q
    first = None if left is None else more - left
    few, begin = keys_of_few(seqlen_q, seqlen_k, more + right, first, CAUSAL, FEW, ROOM)
    tl.store(to + 2 * i, few.to(tl.int32))
    tl.store(to + 2 * i + 1, begin)


def asked(causal: bool, right: int, left: int | None) -> list[tuple[int, int, bool, int]]:
    """What the device finds of each pair of lengths."""
    from kernels.attention.portable.backward import short_sequences

    pairs = list(product(LENGTHS, LENGTHS))
    q, k = (torch.tensor([pair[i] for pair in pairs], dtype=torch.int32) for i in (0, 1))
    to = torch.empty((len(pairs), 2), dtype=torch.int32)
    plain = not causal and left is None
    room = short_sequences.BLOCK_N if plain else short_sequences.MASKED_BLOCK_N
    _ask[(len(pairs),)](
        q, k, to, right, left, CAUSAL=causal, FEW=exactness.FEW_KEYS, ROOM=room
    )  # fmt: skip
    return [
        (*pair, bool(few), begin) for pair, (few, begin) in zip(pairs, to.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("causal", "right", "left"), WINDOWS)
def test_the_device_finds_few_keys_where_the_host_would(
    interpreter: Worker, causal: bool, right: int, left: int | None
) -> None:
    from kernels.attention.portable.backward import short_sequences

    plain = not causal and left is None
    room = short_sequences.BLOCK_N if plain else short_sequences.MASKED_BLOCK_N
    for n_q, n_k, few, begin in interpreter.run(asked, causal, right, left):
        more = n_k - n_q
        first = None if left is None else more - left
        wanted = exactness.keys_seen(n_k, causal, more + right, first, n_q) <= exactness.FEW_KEYS
        # Rows that see none come before those that see some.
        seen = [
            (0 if first is None else max(row + first, 0), min(row + more + right + 1, n_k))
            if causal
            else (0 if first is None else max(row + first, 0), n_k)
            for row in range(n_q)
        ]
        some = [one for one in seen if one[0] < one[1]]
        widest = max((end - start for start, end in some), default=0)
        if few:
            assert wanted
            assert begin % 16 == 0
            assert all(begin <= start and end <= begin + room for start, end in some)
        elif wanted:
            # A window that the first, the middle and the last row see little of, and others all.
            assert widest > exactness.FEW_KEYS and left is not None and n_q > n_k, (n_q, n_k)
