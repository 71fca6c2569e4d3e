"""Hopper's attention forward passes interpreted: within the bars of fp64, without a race."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from kernels.attention.hopper.forward import tail_cut
from tests.gluon.forward_cases import (
    FP8_KERNEL,
    KERNEL,
    SPOILS,
    Case,
    Fp8Case,
    Fp8Cut,
    PackedFp8Case,
    forms,
    run,
    run_signs,
    run_spoilt,
)
from tests.kernels.interpreted import Worker
from tools.gluon.drawn_forward import check, draw, draw_fp8

LENGTHS: dict[str, Any] = {"q": (70, 1, 0, 130, 64), "k": (90, 3, 70, 0, 64)}


def cut(consumers: int, block_n: int, stages: int = 2, **more: Any) -> dict[str, Any]:
    return {"consumers": consumers, "block_n": block_n, "stages": stages, **more}


# As ``choose`` cuts, through the public functions.
CHOSEN = [
    *(Case(D=D, G=2) for D in (16, 24, 64, 72, 80, 96, 160, 192, 256)),
    *(Case(D=D, causal=True) for D in (16, 40, 72, 80, 128, 144, 192, 256)),
    # One warpgroup a program; halves of causal rows.
    Case(S=100, KV=70, processors=8),
    Case(S=200, causal=True, D=128, processors=4, view="fused"),
    Case(S=100, KV=150, causal=True, D=256, processors=8),
    # A tile a program: of one warpgroup, of two, of keys in one block, of few causal rows.
    *(Case(S=70, KV=KV, D=D, G=2, B=2, processors=8, causal=c)
      for KV, D, c in ((300, 64, False), (128, 16, False), (150, 48, True))),
    *(Case(S=200, KV=KV, D=D, B=2, processors=10, causal=c)
      for KV, D, c in ((300, 64, False), (384, 64, False), (100, 32, False), (128, 64, False),
                       (250, 64, False), (256, 48, False), (200, 64, True), (330, 24, True))),
    Case(S=330, KV=330, processors=8, causal=True),
    # More keys than queries, and the reverse: 130 rows see nothing.
    Case(S=70, KV=300, causal=True, D=128, processors=1),
    Case(S=300, KV=170, causal=True, D=128, processors=1, H=4, G=2),
    Case(S=300, KV=170, causal=True, D=96, window=(256, -1)),
    # Blocks that keys fill, and one that holds them all.
    *(Case(KV=KV, D=D) for KV, D in ((256, 64), (256, 128), (128, 72), (5, 128))),
    *(Case(KV=KV, D=D, B=2, processors=1, S=130) for KV, D in ((256, 48), (250, 64), (192, 256))),
    # Three warpgroups, of full attention in tails; causal from 2048 rows, most of which see none.
    Case(S=800, KV=70, D=64, processors=3),
    Case(S=1030, KV=128, D=128, H=1, processors=3),
    Case(S=2050, KV=100, D=16, H=1, causal=True, processors=1),
    # Pairs, of an odd number of blocks.
    Case(S=700, KV=330, D=128, H=1, causal=True, processors=1, scale=0.3),
    # Windows of few keys, of many, and at head dims above 128.
    *(Case(S=330, KV=330, D=128, window=window, H=1) for window in ((256, 0), (257, 0), (250, 20))),
    Case(S=330, KV=370, D=192, causal=True, window=(70, -1), H=1),
    # Packed sequences, by head or not, three consumers by what is said to be the longest.
    Case(**LENGTHS, D=128, G=2),
    Case(**LENGTHS, D=128, causal=True, processors=1),
    Case(**LENGTHS, D=64, overstated=600, view="fused"),
    Case(**LENGTHS, D=64, overstated=2000, causal=True, H=1),
    Case(**LENGTHS, D=256, causal=True, view="transposed"),
    Case(**LENGTHS, D=80, causal=True, window=(260, -1)),
    Case(**LENGTHS, D=160, window=(70, 5)),
]  # fmt: skip
CHOSEN = [
    replace(one, public=True, order=i, dtype=("bfloat16", "float16")[i % 2])
    for i, one in enumerate(CHOSEN)
]
# Cuts that no choice takes, or not for so few rows.
FULL, CAUSAL = Case(S=330, KV=300), Case(S=330, KV=300, causal=True)
WINDOW = replace(FULL, window=(100, 3))
PACKED = Case(**LENGTHS, processors=1)
CUT = [
    # A program with one tile, whose first copies are requested before its warps part.
    *(replace(one, D=D, B=2, G=G, processors=24, config=cut(n, b, s, once=True, skip=k))
      for one, D, G, n, b, s, k in (
          (FULL, 16, 2, 1, 64, 3, False), (CAUSAL, 40, 2, 1, 64, 4, False),
          (replace(FULL, KV=256), 64, 1, 1, 64, 4, False), (FULL, 64, 1, 2, 128, 4, False),
          (replace(FULL, KV=90), 64, 1, 2, 128, 2, False), (CAUSAL, 64, 2, 2, 128, 2, True),
          (WINDOW, 128, 1, 2, 128, 2, False), (CAUSAL, 256, 1, 3, 64, 2, True))),
    # The next tile's place, found while values are multiplied.
    *(replace(one, D=D, config=cut(n, b, 2, q_stages=2, ahead=True, **more))
      for one, D, n, b, more in (
          (FULL, 64, 2, 128, {}), (replace(FULL, KV=200), 64, 2, 256, {}),
          (CAUSAL, 64, 2, 64, {"pairs": True}), (CAUSAL, 64, 3, 128, {"skip": True}),
          (replace(FULL, KV=70, S=700), 64, 3, 128, {"tails": True}), (WINDOW, 96, 1, 64, {}))),
    *(replace(FULL, config=cut(n, 64, 3, q_stages=1, in_turns=t))
      for n, t in ((1, False), (2, True), (2, False), (3, True), (3, False))),
    *(replace(CAUSAL, D=D, config=cut(n, 128, 2, skip=True, q_stages=2))
      for n, D in ((1, 64), (2, 72), (3, 128), (3, 256))),
    *(replace(CAUSAL, D=D, config=cut(n, 64, 4, pairs=True, q_stages=2, skip=n == 3))
      for n, D in ((1, 96), (2, 64), (3, 16), (2, 256))),
    # The last heads' blocks apart from pairs; groups of two heads, the first of one.
    *(replace(CAUSAL, D=D, config=cut(n, 64, 2, pairs=True, last_alone=True))
      for n, D in ((1, 64), (2, 128))),
    replace(CAUSAL, H=5, G=5, processors=3, config=cut(1, 64, 2)),
    *(replace(FULL, KV=KV, config=cut(n, 64, 2, tails=True, q_stages=q), processors=5)
      for n, KV, q in ((1, 64, 1), (2, 300, 2), (3, 256, 1), (3, 20, 2))),
    replace(FULL, D=160, S=700, H=1, config=cut(3, 64, 2, tails=True), processors=3),
    replace(FULL, D=128, KV=256, config=cut(2, 256, 3, pairs=True)),
    replace(FULL, D=32, KV=512, config=cut(3, 256, 2, pairs=True, skip=True)),
    *(replace(WINDOW, D=D, config=cut(n, 64, 3, pairs=p, q_stages=2))
      for n, D, p in ((1, 32, False), (2, 64, True), (3, 96, False), (2, 256, True))),
    replace(WINDOW, S=70, KV=600, window=(30, 0), D=128, config=cut(1, 128, 2)),
    replace(WINDOW, S=330, KV=100, window=(0, 0), D=64, config=cut(2, 64, 2)),
    *(replace(PACKED, D=D, causal=c, config=cut(n, 64, 3, pairs=p, by_head=b, skip=n > 1))
      for D, c, n, p, b in ((64, False, 2, True, True), (64, True, 2, True, False),
                            (256, False, 3, True, False), (128, True, 1, False, True),
                            (192, True, 3, False, False), (48, True, 3, True, True))),
]  # fmt: skip
# Full attention whose last rows are cut into blocks of fewer warpgroups: of all heads, of the last
# ones, of those without a whole block.
TAILS = [
    replace(FULL, S=S, H=H, processors=processors, config=cut(n, 64, tails=True, skip=n == 3))
    for n, S, H, processors in (
        (2, 330, 1, 2),
        (2, 230, 2, 3),
        (2, 130, 1, 3),
        (3, 530, 1, 2),
        (3, 330, 3, 4),
        (3, 380, 2, 3),
        (3, 130, 3, 2),
        (3, 180, 4, 3),
    )
]
CUTS_OF_FP8 = (
    (2, 64, 4, True, True, 2, 1, True, 128, "bfloat16"),
    (3, 64, 2, True, False, 4, 2, False, 64, "float32"),
    (3, 128, 3, False, True, 8, 1, True, 256, "float32"),
    (3, 128, 2, False, True, 1, 1, True, 64, "bfloat16"),
)
FP8 = [
    Fp8Case(S=200, KV=200, H=1, G=1, config=cut(2, 256, 2, q_stages=2, parts=1)),
    Fp8Case(S=200, KV=130, D=128, DV=128, causal=True, scales="heads"),
    Fp8Case(S=130, KV=200, D=256, DV=256, causal=True, out="float32", H=1, G=1),
    Fp8Case(S=200, KV=70, D=72, DV=72, view="beside", H=4, G=2, out="float16", processors=4),
    Fp8Case(S=2050, KV=64, D=64, DV=64, H=1, G=1, scales="tensor"),
    Fp8Case(S=2050, KV=64, D=16, DV=16, H=1, G=1, causal=True, processors=1),
    Fp8Case(S=70, KV=70, D=40, DV=40, view="beside"),
    *(Fp8Case(S=200, KV=130, H=4, scales="sequences", causal=c) for c in (False, True)),
    *(Fp8Case(S=70, KV=70, H=4, scales="zeros", causal=c) for c in (False, True)),
    *(Fp8Case(S=330, KV=150, H=1, G=1, causal=c, D=D, DV=D, processors=1, out=out,
              config=cut(n, b, s, pairs=p, skip=k, parts=parts, q_stages=q))
      for n, b, s, p, k, parts, q, c, D, out in CUTS_OF_FP8),
    # Packed sequences: without queries, without keys, of more and of fewer than a block.
    PackedFp8Case(**LENGTHS, H=4, scales="sequences"),
    PackedFp8Case(**LENGTHS, H=4, scales="sequences", config=cut(2, 256, 2, q_stages=2, parts=1)),
    PackedFp8Case(**LENGTHS, H=4, causal=True, scales="sequences", spare=40, overstated=500),
    PackedFp8Case(**LENGTHS, D=128, DV=128, scales="heads", processors=4, order=1),
    PackedFp8Case(q=(300, 66), k=(300, 200), D=72, DV=72, view="beside", out="float16", H=1, G=1,
                  causal=True, processors=1),
    PackedFp8Case(q=(40, 3), k=(40, 200), D=256, DV=256, H=1, G=1, out="float32"),
    PackedFp8Case(q=(200, 5, 133, 71), k=(210, 40, 233, 30), used=(130, 0, 120, 300), H=2, G=1,
                  causal=True, scales="tensor", spare=5, view="by head"),
    PackedFp8Case(q=(200, 5, 133), k=(270, 40, 30), used=(130, 5, 20), H=1, G=1,
                  scales="sequences", config=cut(2, 256, 2, q_stages=2, parts=1)),
    *(PackedFp8Case(q=(330, 70), k=(150, 300), H=1, G=1, causal=c, D=D, DV=D, processors=1, out=out,
                    config=cut(n, b, s, pairs=p, skip=k, parts=parts, q_stages=q))
      for n, b, s, p, k, parts, q, c, D, out in CUTS_OF_FP8),
]  # fmt: skip
BOTH = frozenset((False, True))
# Every value that cases must have reached, of whatever makes other code.
ALL: dict[str, dict[str, Any]] = {
    KERNEL: {
        **dict.fromkeys(
            (
                "SPLIT",
                "CAUSAL",
                "PAIRS",
                "LAST_ALONE",
                "IN_TURNS",
                "OUT_IN_Q",
                "SKIP",
                "TAILS",
                "EVEN",
                "ONE",
                "ONCE",
                "AHEAD",
            ),
            BOTH,
        ),
        **dict.fromkeys(("PACKED", "WINDOW"), BOTH),
        "CONSUMERS": {1, 2, 3},
        "BLOCK_N": {64, 128, 256},
        "HEAD_DIM": {16, 32, 64, 128, 256},
        "REST": {0, 16, 32, 64},
        "STAGES": {2, 3, 4},
        "Q_STAGES": {1, 2},
    },
    FP8_KERNEL: {
        **dict.fromkeys(("CAUSAL", "BY_SEQUENCE", "PAIRS", "SKIP", "PACKED"), BOTH),
        "CONSUMERS": {2, 3},
        "BLOCK_N": {64, 128, 256},
        "HEAD_DIM": {64, 128, 256},
        "STAGES": {2, 3, 4},
        "Q_STAGES": {1, 2},
        "PARTS": {1, 2, 4, 8},
        "ROOM": {0, 128, 256},
        "OUT": {"bfloat16", "float16", "float32"},
    },
}


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_what_is_chosen(worker: Worker, case: Case) -> None:
    worker.check(run, case)


@pytest.mark.parametrize("case", CUT, ids=str)
def test_every_cut(worker: Worker, case: Case) -> None:
    worker.check(run, case)


@pytest.mark.parametrize("case", TAILS, ids=str)
def test_tails_of_fewer_warpgroups(worker: Worker, case: Case) -> None:
    consumers = case.config["consumers"]
    assert tail_cut.cut(case.S, case.H, consumers, case.processors)[2] < consumers
    worker.check(run, case)


@pytest.mark.parametrize("case", FP8, ids=str)
def test_fp8(worker: Worker, case: Fp8Cut) -> None:
    worker.run(check, case)


def test_the_cases_reach_every_branch(worker: Worker) -> None:
    found: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for form in worker.run(forms, [*CHOSEN, *CUT, *FP8]):
        for name, value in form.items():
            found[form["KERNEL"], name].add(value)
    for kernel, branches in ALL.items():
        for name, values in branches.items():
            assert found[kernel, name] == values, (kernel, name)


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize(
    "case",
    [
        replace(CAUSAL, config=cut(2, 64, 2, pairs=True, skip=True), processors=1),
        replace(FULL, D=256, config=cut(2, 64, 2), processors=1),
        replace(PACKED, causal=True, config=cut(3, 64, 2, q_stages=2)),
    ],
    ids=str,
)
def test_in_other_orders(worker: Worker, case: Case, order: int) -> None:
    worker.check(run, replace(case, order=1000 + order))


@pytest.mark.parametrize("seed", range(30))
def test_drawn(worker: Worker, seed: int) -> None:
    print(f"seed {seed}: {draw(seed)!r}")
    worker.run(check, draw(seed))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_in_fp8(worker: Worker, seed: int) -> None:
    print(f"seed {seed}: {draw_fp8(seed)!r}")
    worker.run(check, draw_fp8(seed))


@pytest.mark.parametrize("keys", [256, 200], ids=["even", "masked"])
@pytest.mark.parametrize("name", SPOILS)
def test_scores_that_are_no_numbers(worker: Worker, name: str, keys: int) -> None:
    """With Q in registers and, of 200 keys, not."""
    for mine, theirs in worker.run(run_spoilt, Case(S=130, KV=keys), name):
        assert mine.equal(theirs)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_heads_of_scales_below_0_are_no_numbers(worker: Worker, causal: bool) -> None:
    any_nan, all_nan, same = worker.run(run_signs, causal)
    assert any_nan.tolist() == all_nan.tolist() == [False, True, True, False]
    assert same == [True, False, False, True]
