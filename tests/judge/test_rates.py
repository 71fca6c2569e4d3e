"""A small scorecard: fails when an error rate of the judge worsens. ``warpwatch
scorecard`` is the large one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warpwatch.__main__ import main
from warpwatch.commands.results import scorecard
from warpwatch.judge.scorecard import error_rates, many_steps
from warpwatch.judge.series.suspicion import slide, suspect_newest, suspicions
from warpwatch.judge.statistics.recorded import recordings
from warpwatch.judge.statistics.synthetic import Kind

SERIES = 120
LOGNORMAL = error_rates.made("lognormal", 0.01)


@pytest.mark.parametrize(
    ("kind", "step", "precision", "recall"),
    [
        ("lognormal", 0.02, 0.92, 0.90),
        ("lognormal", 0.05, 0.98, 0.98),
        ("bimodal", 0.02, 0.82, 0.70),
        ("bimodal", 0.05, 0.96, 0.96),
        ("autocorrelated", 0.05, 0.95, 0.97),
        ("gpu-like", 0.05, 0.90, 0.93),
    ],
)
def test_steps_are_found_where_they_are(
    kind: Kind, step: float, precision: float, recall: float
) -> None:
    found = error_rates.steps_found(
        error_rates.ours, error_rates.made(kind, 0.01), step, SERIES, seed=7
    )
    assert found.precision >= precision, found
    assert found.recall >= recall, found


@pytest.mark.parametrize(
    ("kind", "most"),
    [("lognormal", 0.1), ("bimodal", 0.15), ("autocorrelated", 0.3), ("gpu-like", 0.8)],
)
def test_false_alarms_are_rare(kind: Kind, most: float) -> None:
    assert (
        error_rates.false_alarms(error_rates.ours, error_rates.made(kind, 0.01), 150, seed=7)
        <= most
    )


def test_steps_in_the_noise_of_a_real_gpu() -> None:
    recorded = recordings()
    assert len(recorded) >= 8
    calm = [one for one in recorded if 0.005 <= one.spread <= 0.015]
    assert calm
    for one in calm:
        found = error_rates.steps_found(error_rates.ours, one.resampled, 0.05, 40, seed=7)
        assert found.precision >= 0.9, one.workload
        assert found.recall >= 0.9, one.workload
    alarms = [
        error_rates.false_alarms(error_rates.ours, one.resampled, 30, seed=7) for one in recorded
    ]
    assert np.mean(alarms) <= 0.3


def test_suspicions_come_within_three_commits() -> None:
    assert error_rates.suspected(LOGNORMAL, 0.05, 3, 100, seed=7, runs=1) >= 0.95
    assert error_rates.suspected(LOGNORMAL, 0.02, 3, 100, seed=7, runs=4) >= 0.90
    assert error_rates.needless_suspicions(LOGNORMAL, 4, seed=7) <= 8.0


def test_a_slide_is_seen_against_the_anchor_and_a_step_is_none() -> None:
    random = np.random.default_rng(5)
    flat = 100.0 * np.exp(random.normal(0.0, 0.01, 200))
    sliding = flat * np.linspace(1.0, 1.04, 200)
    found = slide(sliding.tolist())
    assert found is not None
    assert found.ratio == pytest.approx(1.035, abs=0.01)
    assert slide(flat.tolist()) is None
    flat[100:] *= 1.05
    assert slide(flat.tolist()) is None


def test_a_spike_is_no_suspicion() -> None:
    values = [100.0 + i % 3 * 0.5 for i in range(60)]
    assert suspect_newest([*values, 150.0]) is None
    found = suspect_newest([*values, 110.0, 110.5, None, 110.0])
    assert found is not None
    assert (found.first, found.last) == (59, 63)
    assert suspicions([]) == suspicions([1.0, 2.0]) == []


def test_a_recording_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"schema_version": 1}')
    with pytest.raises(ValueError, match=r"bad\.json"):
        recordings(tmp_path)


@pytest.mark.parametrize("case", many_steps.CASES, ids=[case.name for case in many_steps.CASES])
def test_several_steps_of_a_series_are_found(case: many_steps.Case) -> None:
    found = many_steps.several_found(error_rates.ours, case, 60, seed=7)
    assert found.recall >= 0.9
    assert found.precision >= 0.95


def test_the_ranges_of_findings_hold_the_commits_that_caused_them() -> None:
    found = many_steps.ranges(5, seed=7)
    assert found.own == found.findings
    assert found.true >= 0.9 * found.findings
    assert found.commits < 2.0
    assert 0.8 <= found.sure <= 1.0
    assert 0.9 * found.causes <= found.findings <= 1.5 * found.causes


def test_the_scorecard_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every section of it; what its rates are is held above, on as many series as that takes."""
    page = tmp_path / "docs" / "scorecard.md"
    assert main(["scorecard", "--series", "1"]) == 2
    assert "expected at least 20" in capsys.readouterr().err
    monkeypatch.setattr(scorecard, "LEAST", 4)
    assert main(["scorecard", "--series", "4", "--gates", "4", "--out", str(page)]) == 0
    text = page.read_text()
    for part in (
        "asv step_detect",
        "apache-otava",
        "recorded H200",
        "Processor seconds",
        "from 10 series",
        "Several steps in a series",
        "Ranges of findings",
        "With a prior",
    ):
        assert part in text
    assert main(["scorecard", "--only-gates", "--gates", "5", "--out", str(page)]) == 0
    renewed = page.read_text()
    part, _, rest = text.partition("## The gate of a pull request")
    assert renewed.startswith(part)
    assert renewed.endswith(rest[rest.index("## Processor seconds") :])
    assert "Measured again by `warpwatch scorecard --only-gates --gates 5`" in renewed
    assert "| 5 |" in renewed and "| 4 |" not in renewed[len(part) :]
    page.write_text("no scorecard")
    assert main(["scorecard", "--only-gates", "--out", str(page)]) == 2
    assert main(["scorecard", "--only-gates", "--out", str(tmp_path / "none.md")]) == 2


@pytest.mark.parametrize("told", [None, 1.0, 0.2, 5.0])
def test_gates_hardly_err_whatever_the_prior_says(told: float | None) -> None:
    equal = error_rates.gates([LOGNORMAL], 0.0, 400, 3, told)
    assert equal.alarms <= 3  # 400 times 0.2 % is less than one
    slower = error_rates.gates([LOGNORMAL], 0.02, 100, 3, told)
    assert slower.regressed >= 92
    assert slower.improved == 0


def test_a_right_prior_decides_sooner() -> None:
    noise = error_rates.made("plain", 0.003)
    blind = error_rates.gates([noise], 0.01, 80, 3, metric="sm_cycles")
    known = error_rates.gates([noise], 0.01, 80, 3, 1.0, "sm_cycles")
    assert known.pairs < blind.pairs
    assert known.first_batch >= blind.first_batch + 5
    assert known.regressed >= 78
