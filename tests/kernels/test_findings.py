"""What one draw finds beyond a bar is drawn again, but for what no other draw excuses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from tests.kernels.findings import Drawn, Finding
from tests.kernels.interpreted import Errors


@dataclass
class Run:
    """RMS errors ``first`` of the first numbers and ``then`` of any others, by turns, with the
    plain formula's as 1; ``again`` of the first numbers when they come once more."""

    first: float
    then: tuple[float, ...]
    again: float = 0.0
    excess: float = -1.0
    seeds: list[int] = field(default_factory=list)

    def __call__(self, case: object) -> dict[str, Errors]:
        seed = torch.Generator().manual_seed(0).initial_seed()
        self.seeds.append(seed)
        rms = self.then[len(self.seeds) % len(self.then)]
        if seed == self.seeds[0]:
            rms = self.again if self.again and len(self.seeds) > 1 else self.first
        return {"out": Errors(1.0, self.excess, rms, 1.0, 1.0, 1080)}

    def finding(self) -> Finding:
        (found,) = Drawn("any", None, self).findings(7)
        return found


@pytest.mark.parametrize(("then", "fails"), [((0.98, 1.04), False), ((1.12, 1.16), True)])
def test_an_rms_error_beyond_its_bar_is_judged_by_many_draws(
    then: tuple[float, ...], fails: bool
) -> None:
    run = Run(1.16, then)
    found = run.finding()
    assert bool(found.problem) == fails
    assert found.draws >= 8 and found.count == 1080 * found.draws
    assert len(set(run.seeds)) == found.draws  # the first is computed twice


def test_an_error_that_comes_and_goes_is_not_drawn_away() -> None:
    run = Run(1.16, (1.0,), again=1.0)
    found = run.finding()
    assert "of the same numbers twice" in found.problem
    assert found.draws == 1 and len(run.seeds) == 2


@pytest.mark.parametrize("run", [Run(1.0, (1.0,)), Run(1.0, (1.0,), excess=0.1), Run(9.0, (1.0,))])
def test_one_draw_decides(run: Run) -> None:
    """What is within, a largest error beyond its bar, and an RMS error far beyond."""
    found = run.finding()
    assert bool(found.problem) == (run.excess > 0.0 or run.first > 2.0)
    assert found.draws == len(run.seeds) == 1
