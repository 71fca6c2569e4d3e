"""The interval of a predicted change: calibrated on early commits, and honest about late ones."""

from __future__ import annotations

import pytest

from tools.docs.figures.prediction import calibration
from tools.docs.figures.prediction import times as predicted_time
from warpwatch.judge.predicted import interval


def test_it_holds_no_change_where_little_is_predicted() -> None:
    assert [interval.verdict(ratio) for ratio in (0.5, 0.99, 1.0, 1.01, 2.0)] == [-1, 0, 0, 0, 1]
    low, high = interval.of_ratio(2.0)
    assert 1 < low < 2 < high
    assert interval.of_ratio(0.5)[0] == pytest.approx(1 / high)


def test_its_width_is_the_calibrated_one() -> None:
    assert calibration.calibrated() <= interval.WIDTH < calibration.calibrated() + 0.02


def test_it_is_honest_about_commits_it_was_not_calibrated_on() -> None:
    later = [one for one in predicted_time.halves()[1] if one.sure]
    held = sum(one.is_covered for one in later) / len(later)
    assert len(later) > 100 and 0.85 <= held <= 0.98


def test_no_verdict_on_the_published_history_is_wrong() -> None:
    moved = [one for one in predicted_time.changes() if abs(one.truth) >= predicted_time.MOVED]
    assert sum(one.verdict * one.truth > 0 for one in moved) > 50
    assert not [one for one in moved if one.verdict * one.truth < 0]
    still = [one for one in predicted_time.changes() if abs(one.truth) < predicted_time.QUIET]
    assert len(still) > 200 and sum(one.verdict != 0 for one in still) <= 2
