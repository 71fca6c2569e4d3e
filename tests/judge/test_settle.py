"""All series of one comparison together: false discoveries, and what looks like noise."""

from __future__ import annotations

from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs.gate import judge_exact
from warpwatch.judge.pairs.run_verdict import Judged, settle

LIMITS = thresholds.load()


def alarm(verdict: str, p_value: float, head: float = 1.05, subject: str = "w") -> Judged:
    judgement = judge_exact(1.0, head, "lower", LIMITS.default)
    changed = type(judgement)(**{**vars(judgement), "verdict": verdict, "p_value": p_value})
    return Judged("latency_cold", subject, "us", 1.0, head, changed, False, "latency")


def alarms(verdict: str, count: int, head: float = 1.05) -> list[Judged]:
    """One of each of so many workloads."""
    return [alarm(verdict, 1e-9, head, f"{verdict} {head} {i}") for i in range(count)]


def test_false_discoveries_are_bounded_over_the_run() -> None:
    quiet = [alarm("unchanged", 0.5)] * 999
    assert settle([*quiet, alarm("regressed", 1e-3)], 0.05).exit_code == 3
    clear = settle([*quiet, alarm("regressed", 1e-6)], 0.05)
    assert clear.exit_code == 1
    assert 0.0 < clear.expected_false <= 1.0


def test_as_many_improvements_as_regressions_are_noise() -> None:
    verdict = settle(alarms("regressed", 5) + alarms("improved", 5), 0.05)
    assert verdict.symmetric
    assert verdict.exit_code == 3
    one_way = settle(alarms("regressed", 9) + alarms("improved", 1), 0.05)
    assert not one_way.symmetric
    assert one_way.exit_code == 1


def test_series_of_one_workload_have_one_vote_on_what_is_noise() -> None:
    """On a card three of four workloads were slower and one had fewer cycles: nine series."""
    slower = [alarm("regressed", 1e-9, subject=f"slower {i}") for i in range(3)] * 3
    fewer_cycles = [alarm("improved", 1e-10, subject="fewer cycles")] * 3
    verdict = settle(slower + fewer_cycles, 0.05)
    assert not verdict.symmetric
    assert verdict.exit_code == 1


def test_a_change_no_machine_makes_counts_whatever_the_others_do() -> None:
    """Tiles by head dim made some workloads 3.4 times as fast and others a fifth slower."""
    large = alarms("regressed", 5, 1.2) + alarms("improved", 5, 0.3)
    verdict = settle(large, 0.05)
    assert not verdict.symmetric
    assert verdict.exit_code == 1
    small = alarms("regressed", 4) + alarms("improved", 4)
    mixed = settle([*small, *large], 0.05)
    assert mixed.symmetric
    words = [one.judgement.verdict for one in mixed.judged]
    assert words == ["inconclusive"] * 8 + ["regressed"] * 5 + ["improved"] * 5
    assert mixed.expected_false > 0.0
