"""Races and hangs that were reported in public are found in small kernels that have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from tests.gluon import reported_kernels as kernels
from warpwatch.simulator.session.check import check
from warpwatch.simulator.session.host import Card

RACE, FENCE, DEADLOCK = "race in shared memory", "missing fence", "deadlock"
UNWRITTEN, EARLY = "value nobody wrote", "product used before it was waited for"
HOPPER, BLACKWELL = Card((9, 0)), Card((10, 0))


@dataclass(frozen=True)
class Case:
    """A fault, who ``reported`` it, and of which ``kinds`` it may be in one order or another."""

    fault: str
    reported: str
    kinds: tuple[str, ...]
    run: Callable[[str, int], None] = kernels.run_ring
    readers: int = 1
    card: Card = HOPPER

    def __str__(self) -> str:
        return self.fault


CASES = (
    Case("no fence before the copy out", "MoonshotAI/FlashKDA#24", (FENCE,)),
    Case("no fence behind the barriers", "MoonshotAI/FlashKDA#24", (FENCE,)),
    Case("released before the product is done", "NVIDIA/Fuser#3561", (RACE,)),
    Case("one operand has one stage", "triton-lang/triton#3106", (RACE,)),
    Case("the accumulator is read early", "triton-lang/triton#8964", (EARLY,)),
    Case("the producer has no work", "cloudrift-ai/emmy#217", (DEADLOCK,)),
    Case("one side skips a block", "tile-ai/tilelang#374", (DEADLOCK,)),
    Case(
        "the stage is handed back by one of two readers",
        "tile-ai/tilelang#2613",
        (RACE, "misuse", DEADLOCK),
        readers=2,
    ),
    Case(
        "a copy goes on where the stage is filled again",
        "deepseek-ai/DeepEP#657",
        (RACE,),
        kernels.run_copy,
    ),
    Case(
        "a staged operand is not announced",
        "triton-lang/triton#11586",
        (RACE, UNWRITTEN),
        kernels.run_staged,
    ),
    Case(
        "no fence in the partition that stored",
        "triton-lang/triton#11586",
        (FENCE,),
        kernels.run_staged,
    ),
    Case(
        "who has no work only arrives",
        "vllm-project/vllm#26026",
        (DEADLOCK, "misuse"),
        kernels.run_rounds,
    ),
    Case("nobody is let on", "NVIDIA/cutlass#1296", (DEADLOCK,), kernels.run_in_turns),
    Case(
        "the accumulator is not waited for",
        "NVIDIA/cutlass#3652",
        ("race in shared memory",),
        kernels.run_on_blackwell,
        card=BLACKWELL,
    ),
    Case(
        "the product is not committed",
        "NVIDIA/Fuser#3561",
        (RACE, UNWRITTEN),
        kernels.run_on_blackwell,
        card=BLACKWELL,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_reported_is_found_in_every_order(case: Case) -> None:
    run = partial(case.run, case.fault, case.readers)
    for seed in range(6):
        found = check(run, [seed], case.card, strict=True)
        (report,) = found.reports
        assert report.kind in case.kinds, report.lines()
        assert all("reported_kernels.py" in site.file for _, site in report.sites)


@pytest.mark.parametrize(
    ("run", "readers", "card"),
    sorted({(case.run, case.readers, case.card) for case in CASES}, key=str),
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_without_the_fault_there_is_no_report(
    run: Callable[[str, int], None], readers: int, card: Card
) -> None:
    found = check(partial(run, "", readers), range(12), card, strict=True)
    assert not found.reports, [one.lines() for one in found.reports]
    assert found.launches == 12
