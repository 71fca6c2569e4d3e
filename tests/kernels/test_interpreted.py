"""What measures the errors of kernels: draws pooled are one measurement of all their values."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch

from tests.kernels.interpreted import Errors, judge, measure, numbers, pool, settled, strided
from tests.processes import ends, runs


def drawn(draw: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(got, plain, truth) of few values."""
    with numbers(draw):
        truth, error, plain_error = (
            strided((3, 5), "contiguous", torch.float64, i) for i in (1, 2, 3)
        )
    return (truth + 1e-7 * error).float(), (truth + 1e-7 * plain_error).float(), truth


def test_draws_are_measured_as_one() -> None:
    draws = [drawn(draw) for draw in range(4)]
    assert not torch.equal(draws[0][2], draws[1][2])
    assert torch.equal(draws[1][2], drawn(1)[2])
    want = measure(*(torch.cat(each) for each in zip(*draws, strict=True)))
    found = pool([[{"out": measure(*each)}] for each in draws])[0]["out"]
    for name, value in asdict(want).items():
        if name != "share":  # each value's unit in the last place is lost
            assert getattr(found, name) == pytest.approx(value), name


def test_what_one_draw_left_behind_fails_the_pool() -> None:
    draws = [drawn(draw) for draw in range(3)]
    draws[1][0][0, 0] = math.nan
    with pytest.raises(AssertionError, match="beyond the bar"):
        pool([measure(*each) for each in draws]).check("out")


@pytest.mark.parametrize("ratio", [1.0, 1.15, 1.2])
def test_a_scattering_ratio_is_drawn_until_it_is_on_one_side(ratio: float) -> None:
    """Ratios of one draw are off by 0.16, as those of 1,080 rows of head dim 1."""
    generator = torch.Generator().manual_seed(3)
    wrong = []
    for _ in range(100):
        draws: list[Errors] = []
        while not settled(draws) and len(draws) < 200:
            rms, plain = (0.11 * torch.randn(2, generator=generator)).exp().tolist()
            draws.append(Errors(0.0, 0.0, ratio * rms, 1.0, plain, 1000))
        wrong.append(pool(draws).within() != (ratio < 1.1))
    assert sum(wrong) <= 3


def judged(*ratios: float, count: int = 2000, draws: int = 1) -> int:
    """Of RMS errors by turns, beside another tensor that is within: how many were drawn."""
    taken = []

    def drawn(draw: int) -> dict[str, Errors]:
        taken.append(draw)
        within = Errors(0.0, 0.0, 0.5, 1.0, 1.0, count)
        return {"out": Errors(0.0, 0.0, ratios[draw % len(ratios)], 1.0, 1.0, count), "lse": within}

    judge(drawn, draws)
    assert taken == list(range(len(taken)))
    return len(taken)


def test_what_is_within_is_drawn_no_more() -> None:
    assert judged(1.09, 2.0) == 1
    assert judged(1.16, 0.9, draws=2) == 2


def test_what_seems_beyond_is_drawn_until_it_is_settled() -> None:
    assert judged(1.12, 1.0, 1.0, 0.98) == 8
    assert judged(1.22, 0.6, 0.6, 0.6, count=90) == 12  # a thousand values
    # The first two together are within.
    with pytest.raises(AssertionError, match="out: RMS error above"):
        judged(1.18, 1.0, 1.18, 1.18, 1.18)


def test_what_is_far_beyond_fails_at_once() -> None:
    with pytest.raises(AssertionError, match="RMS error"):
        judged(9.0, 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the process")
def test_the_interpreter_ends_with_the_tests_that_were_killed() -> None:
    code = (
        "import os, time\n"
        "from tests.kernels.interpreted import Worker\n"
        "if __name__ == '__main__':\n"
        "    worker = Worker()\n"
        "    print(worker.run(os.getpid), flush=True)\n"
        "    time.sleep(120)"
    )
    tests = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    worker = tests.stdout.readline().strip()
    assert runs(worker)
    tests.kill()
    tests.communicate(timeout=60)
    assert ends(worker)
