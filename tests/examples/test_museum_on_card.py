"""Exhibits timed on a card: which there are, and both sides on a software card."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from examples.museum import on_card
from examples.museum.cases import CASES
from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card.software import FakeGpu, Script

LIMITS = latency.Limits(seconds=1.0)


def test_exhibits_are_those_of_one_triton_for_hopper() -> None:
    found = on_card.exhibits([])
    assert {one.name for one in found} >= {"unrolled-loop", "fewer-blocks"}
    assert all("sm_90" in one.targets and not one.tritons for one in found)
    assert [one.name for one in on_card.exhibits(["fewer-blocks"])] == ["fewer-blocks"]
    with pytest.raises(ValueError, match=r"an exhibit of sm_90 .*, got tf32x3-shared"):
        on_card.exhibits(["tf32x3-shared"])


def test_both_sides_are_timed_and_one_that_does_not_run_has_no_ratio(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpu = FakeGpu()

    def call(us: float) -> None:
        gpu.script = Script(us=us)

    both = {"before": lambda: call(20.0), "after": lambda: call(23.0)}
    found = on_card.timed(gpu, "slower", both, LIMITS)
    assert found.after_us / found.before_us == pytest.approx(1.15, rel=0.01)
    assert 1.1 < found.low <= found.after_us / found.before_us <= found.high < 1.2
    assert "slower" in found.line and "1.15" in found.line

    def refused() -> None:
        raise RuntimeError("out of resources")

    found = on_card.timed(gpu, "refused", {**both, "after": refused}, LIMITS)
    assert math.isinf(found.after_us) and math.isnan(found.low)
    assert "refused: after does not run: RuntimeError" in capsys.readouterr().err


def test_a_side_is_loaded_with_its_edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = (one for one in CASES if one.name == "unrolled-loop")
    path = tmp_path / "after.py"
    call = on_card.loaded(case, case.after, path)
    assert "static_range(0, 256" in path.read_text(encoding="utf-8")
    assert callable(call)
    monkeypatch.setattr(sys, "argv", ["on_card", "no-such-exhibit"])
    with pytest.raises(SystemExit) as stopped:
        on_card.main()
    assert stopped.value.code == 2
