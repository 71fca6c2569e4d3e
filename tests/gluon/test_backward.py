"""Hopper's gradients of attention, interpreted: against fp64, in any order, and without a race."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.gluon import backward_cases as cases
from tests.gluon import marked_cases
from tests.gluon.backward_cases import NAMES, ONE, SHORT, WIDE, Case
from tests.kernels.interpreted import Worker
from tools.gluon.drawn_backward import draw

CAUSAL = {"causal": True}
# Of one pass; packed sequences have no windows there. Blocks of keys are whole where EVEN.
MASKS: dict[str, dict[str, Any]] = {
    "even": {"q": (200,), "k": (256,)},
    "uneven": {"q": (140,), "k": (200,), "H": 2, "G": 2},
    "causal even": {"q": (256,), "k": (256,), **CAUSAL},
    "causal uneven": {"q": (200, 200), "k": (90, 90), "H": 2, **CAUSAL},  # rows that see nothing
    "window even": {"q": (300,), "k": (384,), "window": (100, 0), **CAUSAL},
    "window uneven": {"q": (333,), "k": (200,), "window": (40, 5), **CAUSAL},
    "packed": {"q": (70, 0, 1, 130), "k": (150, 5, 33, 64), "packed": True},
    "packed causal": {
        "q": (130, 33, 0, 1, 64),
        "k": (130, 200, 1, 90, 64),
        "packed": True,
        **CAUSAL,
    },
}
ONES = [
    Case(
        of=ONE, D=D, **mask, stages=2,
        dtype=("float16", "bfloat16")[(i + (D > 64)) % 2], lse_too=i % 2 == 0,
    )
    for Ds in ((64, 40), (128, 80))
    for i, mask in enumerate(MASKS.values())
    for D in [Ds[i % 3 == 2]]
] + [
    # Blocks of one step each, and pairs of which the middle one has no other.
    Case(q=(100,), k=(700,), H=2, stages=2),
    Case(D=128, q=(60,), k=(300,), H=2, stages=2, lse_too=False),
    Case(q=(640,), k=(640,), **CAUSAL, H=2, stages=2, multiprocessors=3, lse_too=False),
    Case(D=96, q=(330,), k=(330,), **CAUSAL, H=4, G=2, stages=2, multiprocessors=1),
    # Heads so few that the blocks of all come in the order of their length; the second turn is of
    # some programs.
    Case(
        q=(1050,), k=(1050,), window=(70, 0), **CAUSAL, H=2, G=2, stages=2, multiprocessors=16,
        lse_too=False,
    ),
]  # fmt: skip
PLAIN = {"q": (150,), "k": (200,), "H": 2}
TRIANGLE = {"q": (200,), "k": (200,), **CAUSAL}
BAND = {"q": (260,), "k": (260,), "window": (70, 0), **CAUSAL}
SHORTS = [
    Case(of=SHORT, D=128, **PLAIN, dtype="float16"),
    Case(of=SHORT, D=80, **PLAIN, stages=4, lse_too=False),
    # By head where a program has six tiles.
    Case(of=SHORT, D=128, **TRIANGLE, H=2, G=2, multiprocessors=3),
    Case(of=SHORT, D=72, **TRIANGLE, H=3, G=3, multiprocessors=1, lse_too=False),
    Case(of=SHORT, D=96, q=(70, 70), k=(300, 300), H=2, **CAUSAL, stages=4, dtype="float16"),
    Case(of=SHORT, D=128, q=(300,), k=(70,), H=2, **CAUSAL, multiprocessors=8),  # see nothing
    Case(of=SHORT, D=128, **BAND, H=2, dtype="float16", multiprocessors=5),
    Case(of=SHORT, D=96, **BAND, H=2, G=2, multiprocessors=1, view="apart"),
    Case(of=SHORT, D=128, q=(130,), k=(300,), window=(30, 60), **CAUSAL, stages=4),
    Case(of=SHORT, D=128, q=(300,), k=(140,), window=(64, 0), **CAUSAL, H=2, view="transposed"),
]
WIDES = [
    Case(
        of=WIDE, D=D, **mask, stages=stages, dtype=("float16", "bfloat16")[stages % 2], lse_too=odd
    )
    for stages, Ds in ((2, (256, 192, 136)), (3, (160, 256, 192)), (4, (192, 136, 256)))
    for D, mask, odd in zip(
        Ds, (PLAIN, TRIANGLE | {"H": 2}, BAND), (True, False, stages == 3), strict=True
    )
]
MORE = [
    # As the launch chooses.
    Case(q=(100, 100, 100), k=(200, 200, 200), **CAUSAL, view="transposed"),
    Case(q=(300,), k=(64,), H=4, G=2, view="apart", dtype="float16", multiprocessors=7),
    # Heads in chunks, the last of fewer.
    Case(of=WIDE, D=160, q=(64,), k=(190,), H=3, G=3, **CAUSAL, together=2, view="transposed"),
    Case(of=WIDE, D=256, q=(200,), k=(70,), **CAUSAL, scale=0.02, view="apart"),
    Case(of=WIDE, D=192, q=(130,), k=(260,), window=(64, 20), **CAUSAL, H=2, together=1),
    Case(q=(64, 1), k=(90, 1), H=2, packed=True, overstated=700, view="apart"),
    Case(D=128, q=(0, 128), k=(64, 128), packed=True, **CAUSAL, view="transposed"),
]
CASES = [*ONES, *SHORTS, *WIDES, *MORE]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_match_fp64(worker: Worker, case: Case) -> None:
    worker.check(cases.run, case)


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_a_drawn_case(worker: Worker, seed: int) -> None:
    case = draw(seed, most=1 << 16)
    print(f"python -m tools.gluon.drawn_backward --first {seed} --count 1 --most {1 << 16}: {case}")
    worker.check(cases.run, case, seed)


@pytest.mark.parametrize(
    "case",
    [
        ONES[3],
        ONES[-1],
        replace(SHORTS[3], lse_too=True),
        SHORTS[6],
        WIDES[1],
    ],
    ids=str,
)
def test_gradients_are_the_same_bits_in_every_order(worker: Worker, case: Case) -> None:
    assert worker.run(cases.alike, case, (1, 2, 5), (1, 2, 8))


# Orders in which a warpgroup comes late to what it only passes over: of the queries' kernel, and of
# the keys'.
LATE = Case(of=SHORT, D=128, q=(256,), k=(256,), window=(70, 0), **CAUSAL)
LATE_QUERIES, LATE_KEYS = (9, 21), (11, 12)


def _hang_with(worker: Worker, orders: tuple[int, ...], *change: str) -> bool:
    told = [worker.run(cases.told_of_a_change, LATE, order, *change) for order in orders]
    print(told)
    return all("waits for" in one for one in told)


def test_a_warpgroup_gives_nothing_back_that_it_never_took(worker: Worker) -> None:
    """In these orders the first warpgroup is done before the second one has looked at its first
    block of values, which it only passes over; given back in its name, it was filled again."""
    assert worker.run(cases.alike, LATE, LATE_QUERIES, (2, 2))
    arrival = "mbarrier.arrive(v_ring.empty.index(v_at.stage), pred=more) in any case"
    assert _hang_with(worker, LATE_QUERIES, "short.query_grads", "_consume", arrival)


def test_what_a_warpgroup_passes_over_is_filled_again_behind_it(worker: Worker) -> None:
    """In these orders one has given a step's Q back and not yet looked at its dO, whose stage must
    not be filled for the next round: its barrier would be two phases on."""
    assert worker.run(cases.alike, LATE, LATE_KEYS, (2, 2))
    wait = "no wait in dout_ring.acquire(at, BYTES)"
    assert _hang_with(worker, LATE_KEYS, "short.key_grads", "_produce", wait)


def test_cases_are_of_every_kind_of_each_kernel(worker: Worker) -> None:
    """What its code asks at compile time, in all combinations that launches have."""
    found: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for name, told in worker.run(cases.variants, CASES):
        given = dict(told)
        mask = "window" if not given["left_offset"] else "causal" if given["CAUSAL"] else "full"
        found[f"{name} stages"].add((given.get("STAGES", 0), mask))
        if name == "attention_backward_hopper":
            packed = "" if given["tiles"] else "packed"
            found["mask"].add((given["HEAD_DIM"], mask, packed, given["EVEN"]))
            found["cut"].add((given["HEAD_DIM"], given["BLOCK_M"]))
        elif "BY_HEAD" in given:
            found[name].add((mask, given["BY_HEAD"]))
            if "dlse" in given:
                found["dlse"].add(given["dlse"])
    assert found["mask"] == {
        (D, mask, packed, even)
        for D in (64, 128)
        for mask, packed, even in (
            *((mask, "", even) for mask in ("full", "causal", "window") for even in (False, True)),
            *((mask, "packed", False) for mask in ("full", "causal")),
        )
    }
    assert found["cut"] == {(64, 128), (128, 64)}
    masks = ("full", "causal", "window")
    for name in cases.KERNELS[SHORT]:
        orders = {("full", True), *((mask, by) for mask in masks[1:] for by in (False, True))}
        assert found[name] == orders
        assert found[f"{name} stages"] == {(stages, mask) for stages in (3, 4) for mask in masks}
    kv, q = cases.KERNELS[WIDE]
    assert found[f"{kv} stages"] == {(stages, mask) for stages in (2, 3, 4) for mask in masks}
    assert found[f"{q} stages"] == {(0, mask) for mask in masks}
    assert found["dlse"] == {False, True}


SPOILT = {"q": math.inf, "k": math.nan, "v": math.inf, "dout": math.nan}


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.parametrize(("of", "D"), [(ONE, 64), (SHORT, 128), (WIDE, 136)])
def test_what_is_not_finite_comes_out_where_the_formulas_does(
    worker: Worker, of: str, D: int, name: str, causal: bool
) -> None:
    case = Case(of=of, D=D, q=(90,), k=(90,), H=2, G=2, causal=causal, lse_too=False)
    found, wanted = worker.run(cases.run_spoilt, case, name, SPOILT[name])
    rows = torch.arange(90)
    seeing, seen = (rows >= 40, rows >= 0) if name in ("k", "v") else (rows == 40, rows <= 40)
    for what, mine, theirs in zip(NAMES, found, wanted, strict=True):
        assert not mine[:, 1].isnan().any(), "the other head"
        if of == ONE and what == "dq" and name in ("k", "v"):
            assert mine[:, 0].isnan().all()
        elif causal:  # beside what sees nothing of it, where a tile reads it or the formula does
            rest = seeing if what == "dq" else seen
            assert (mine.isnan() | theirs.isfinite())[rest].all()
        else:
            assert torch.equal(mine.isnan(), ~theirs.isfinite())


@pytest.mark.parametrize(
    ("case", "served"),
    [
        (Case(D=32, q=(70,), k=(70,)), []),
        (Case(D=64, q=(130,), k=(130,), **CAUSAL), cases.KERNELS[ONE]),
        (Case(D=96, H=2, G=2, q=(64,), k=(100,), dtype="float16"), cases.KERNELS[SHORT]),
        # Of few rows gradients are exact, which portable kernels compute.
        (Case(D=96, q=(64,), k=(100,), dtype="float16"), []),
        (Case(D=192, q=(100,), k=(90,), **CAUSAL), cases.KERNELS[WIDE]),
        (Case(D=128, q=(70, 65), k=(80, 65), packed=True), ["list_tiles", *cases.KERNELS[ONE]]),
        # Those of few keys by one more kernel, a portable one.
        (Case(D=64, q=(65, 128, 3), k=(80, 2, 1), packed=True), cases.KERNELS[ONE]),
        (
            Case(D=128, H=2, q=(70, 48, 5, 66), k=(70, 48, 24, 2), packed=True, **CAUSAL),
            cases.KERNELS[ONE],
        ),
    ],
    ids=str,
)
def test_operators_are_served_behind_the_forward_pass(
    worker: Worker, case: Case, served: list[str]
) -> None:
    errors, told = worker.run(cases.run_operator, case)
    ours = [name for name in served if name.startswith("attention")]
    # Before them rows of one heavy weight are looked for.
    looked = [marked_cases.KERNEL] if ours else []
    assert [name for name in told if "forward" not in name] == looked + ours
    for name, one in errors.items():
        one.check(name)
