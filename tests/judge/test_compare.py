"""``warpwatch compare``: measured in real processes on a software GPU, compiled for real."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.root import ROOT
from warpwatch.commands.gpu import compare
from warpwatch.compare import paired_runs, without_gpu
from warpwatch.config import metrics
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.findings.compiled_moves import explain
from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import RunVerdict, settle
from warpwatch.judge.pairs.stored_runs import judge_groups
from warpwatch.session import versions
from warpwatch.session.session import Session, make_ready

LIMITS = thresholds.load()


def software_gpu(
    base: Mapping[str, Mapping[str, object]], head: Mapping[str, Mapping[str, object]]
) -> paired_runs.Measure:
    """Real worker processes over scripted workloads."""

    def measure(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
        scripts = base if side == "base" else head
        request = {"mode": "latency", "scripts": {name: scripts[name] for name in workloads}}
        return Session(request, seconds_each=20.0).run(workloads)

    return paired_runs.one_by_one(measure)


def test_a_slower_kernel_and_a_broken_one_are_told_from_an_equal_one() -> None:
    base = {name: {"us": 100.0} for name in ("equal", "slower", "broken", "new")}
    head: dict[str, dict[str, object]] = {**base, "slower": {"us": 110.0}}
    head["broken"] = {"us": 100.0, "fails_at": 0}
    base["new"] = {"us": 100.0, "fails_at": 0}
    fought = paired_runs.Duel("latency", software_gpu(base, head), Plan(), seconds=300.0)
    judged = paired_runs.fight(fought, list(base), LIMITS, lambda _: None)
    found = {one.subject: one.judgement for one in judged}
    assert {name: one.verdict for name, one in found.items()} == {
        "equal": "unchanged",
        "slower": "regressed",
        "broken": "missing",
        "new": "not applicable",
    }
    assert found["slower"].ratio == pytest.approx(1.1, abs=0.01)
    assert found["slower"].pairs == 8
    assert "head: failed" in found["broken"].reason
    assert settle(judged, 0.05).exit_code == 1


def test_when_the_time_is_up_open_series_are_inconclusive() -> None:
    def measure(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
        us = 100.0 if side == "base" else 101.5
        return {name: Outcome(name, "ok", "", {"latency_cold": (us,)}) for name in workloads}

    fought = paired_runs.Duel("latency", paired_runs.one_by_one(measure), Plan(), seconds=-1.0)
    assert paired_runs.fight(fought, ["one"], LIMITS, lambda _: None) == []
    brief = paired_runs.Duel("latency", paired_runs.one_by_one(measure), Plan(), seconds=math.inf)
    (one,) = paired_runs.fight(brief, ["one"], LIMITS, lambda _: None)
    assert one.judgement.verdict == "regressed"


def test_the_order_is_balanced_and_random() -> None:
    order = list(versions.order(24, seed=3))
    assert sum(order) == 12
    assert all(sum(order[i : i + 4]) == 2 for i in range(0, 24, 4))
    assert order != list(versions.order(24, seed=4))


def row(status: str, **values: float) -> dict[str, object]:
    names = [metric.name for metric in metrics.COMPILED]
    return {
        "status": status,
        "detail": "" if status == "ok" else "no such kernel",
        "values": {name: values.get(name, math.nan) for name in names},
    }


def test_compiled_metrics_are_judged_exactly_and_explained() -> None:
    good = row("ok", launches=1, spilled_bytes=0, bound_us=10.0)
    bad = row("ok", launches=2, spilled_bytes=64, bound_us=10.01)
    judged = without_gpu.judge({("w", "sm_90"): good}, {("w", "sm_90"): bad}, LIMITS)
    verdicts = {one.metric: one.judgement.verdict for one in judged}
    assert verdicts == {
        "launches": "regressed",
        "spilled_bytes": "regressed",
        "bound_us": "unchanged",
    }
    lines = compare.lines("a", "b", settle(judged, 0.05), show_all=False)
    text = "\n".join(lines)
    assert sorted(one.split()[1] for one in lines if one.startswith("regressed")) == [
        "launches",
        "spilled_bytes",
    ]
    assert "why w: 2 launches a call instead of 1; registers spill: 0 -> 64 bytes" in text
    gone = without_gpu.judge(
        {("w", "sm_90"): good}, {("w", "sm_90"): row("not applicable")}, LIMITS
    )
    assert [one.judgement.verdict for one in gone] == ["missing"]
    lines = compare.lines("a", "b", settle(gone, 0.05), show_all=False)
    assert lines[0].startswith("missing        launches")
    assert lines[1:] == [
        "a -> b: 1 missing",
        "missing: base has a value, and head has none or fails",
    ]
    json.dumps(compare.document("a", "b", settle(gone, 0.05)), allow_nan=False)


def test_what_neither_side_has_a_value_of_is_named() -> None:
    good, bad = row("ok", launches=1), row("not applicable")
    both = {("w", "sm_90"): good, ("w", "sm_80"): bad, ("x", "sm_90"): bad, ("x", "sm_80"): bad}
    assert without_gpu.unread_on_both(both, both) == {"x": "not applicable: no such kernel"}
    assert without_gpu.unread_on_both({**both, ("x", "sm_80"): good}, both) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("C7510: Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
         "non wgmma instructions defining accumulator registers", "wgmma serialised"),
        ('reads UR4 in "UIADD3", which nothing wrote (1 such reads): the compiler\'s mistake; '
         "results are wrong", "reads a register nothing wrote"),
        ("", "the compiler advises against its code"),
    ],
)  # fmt: skip
def test_an_advisory_is_told_in_the_words_of_its_kind(text: str, said: str) -> None:
    good, bad = row("ok", advisories=0), row("ok", advisories=1)
    bad["evidence"] = {"launches": [{"advisories": [text]}] if text else []}
    judged = without_gpu.judge({("w", "sm_90"): good}, {("w", "sm_90"): bad}, LIMITS)
    shown = "\n".join(compare.lines("a", "b", settle(judged, 0.05), show_all=False))
    assert f"({said})" in shown
    assert f"why w: {said}: 0 -> 1 advisories" in shown


def test_nothing_measured_is_not_clean() -> None:
    assert RunVerdict((), 0.0, False).exit_code == 3


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose second commit doubles the launches of its kernel."""
    root = tmp_path_factory.mktemp("repository")

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, timeout=120
        )

    git("init", "-q")
    (root / "kernels").mkdir()
    for text in ("LAUNCHES = 1\n", "LAUNCHES = 2\n"):
        (root / "kernels" / "__init__.py").write_text(text)
        git("add", ".")
        git("commit", "-qm", text)
    return root


def test_each_version_sees_its_own_package(repository: Path, tmp_path: Path) -> None:
    for revision, launches in (("HEAD~1", "1"), ("HEAD", "2"), (".", "2")):
        version = versions.prepare(revision, tmp_path / revision, repository)
        done = subprocess.run(
            [sys.executable, "-c", "import kernels; print(kernels.LAUNCHES)"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=versions.isolation.subprocess_environment(version.environment),
            timeout=600,
        )
        assert done.stdout.strip() == launches, done.stderr
    with pytest.raises(ValueError, match="expected a commit"):
        versions.prepare("--output=x", tmp_path / "x", repository)


def test_a_measuring_process_imports_its_version_wherever_it_is_started(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `compare` does: from the checkout, in which the package of today lies.
    monkeypatch.chdir(repository)
    monkeypatch.setenv("WARPWATCH_CONFIG", str(ROOT / "warpwatch.toml"))
    version = versions.prepare("HEAD~1", tmp_path / "base", repository)
    request = {"mode": "latency", "scripts": {"w": {}}}
    for ahead in (True, False):
        session = Session(request, environment=version.environment)
        if ahead:
            make_ready([session])
        outcome = session.run(["w"])["w"]
        assert outcome.status == "ok", outcome.detail  # the worker refuses another's package


def always(base: float, head: float, seen: list[str]) -> paired_runs.Measure:
    def measure(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
        seen.append(side)
        us = base if side == "base" else head
        return {name: Outcome(name, "ok", "", {"latency_cold": (us,)}) for name in workloads}

    return paired_runs.one_by_one(measure)


def test_as_many_pairs_are_measured_together_as_the_next_look_needs() -> None:
    seen: list[str] = []
    asked: list[int] = []
    each = always(100.0, 120.0, seen)

    def measure(turns: Sequence[tuple[paired_runs.Side, paired_runs.Side]], names: Sequence[str]):  # type: ignore[no-untyped-def]
        asked.append(len(turns))
        return each(turns, names)

    fought = paired_runs.Duel("latency", measure, Plan(), 60.0, together=8)
    (one,) = paired_runs.fight(fought, ["w"], LIMITS, lambda _: None)
    assert one.judgement.verdict == "regressed"
    assert asked == [8]  # as many as decide nearly every series
    assert sorted(seen) == ["base"] * 8 + ["head"] * 8


def test_a_stopped_comparison_judges_what_it_has() -> None:
    seen: list[str] = []
    fought = paired_runs.Duel("latency", always(100.0, 120.0, seen), Plan(), 60.0)
    fought.stop.set()
    assert paired_runs.fight(fought, ["w"], LIMITS, lambda _: None) == []
    assert not seen

    def tell(text: str) -> None:
        if "pair 2" in text:
            late.stop.set()

    late = paired_runs.Duel("latency", always(100.0, 120.0, seen), Plan(), 60.0)
    (one,) = paired_runs.fight(late, ["w"], LIMITS, tell)
    assert len(seen) == 4
    assert one.judgement.verdict == "inconclusive"
    assert "2 pairs" in one.judgement.reason


def test_an_answer_that_got_worse_within_its_tolerance_is_an_alarm() -> None:
    def measure(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
        error = 2e-4 if side == "base" else 8e-4
        samples = {"latency_cold": (100.0,), "relative_error": (error, error)}
        return {name: Outcome(name, "ok", "", samples) for name in workloads}

    fought = paired_runs.Duel("latency", paired_runs.one_by_one(measure), Plan(), 60.0)
    judged = {one.metric: one for one in paired_runs.fight(fought, ["w"], LIMITS, lambda _: None)}
    assert judged["latency_cold"].judgement.verdict == "unchanged"
    assert judged["relative_error"].judgement.verdict == "regressed"
    assert not judged["relative_error"].evidence
    assert settle(list(judged.values()), 0.05).exit_code == 1


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (
            {"instructions": (100.0, 103.0), "sm_cycles": (100.0, 180.0), "tensor_pipe": (60, 30)},
            "the tensor cores wait longer",
        ),
        ({"instructions": (100.0, 140.0), "sm_cycles": (100.0, 180.0)}, "the inner loop does more"),
        (
            {"instructions": (100.0, 101.0), "dram_bytes": (1e6, 3e6), "sm_cycles": (100, 103)},
            "reuse in the L2 was lost",
        ),
        ({"instructions": (100.0, 200.0), "dram_bytes": (1e6, 2e6)}, "work was added"),
        ({"latency_cold": (70.0, 900.0), "sm_cycles": (9.0, 5.0)}, "some are idle"),
        (
            {"instructions": (100.0, 102.0), "sm_cycles": (100.0, 120.0)},
            "the same work takes more cycles",
        ),
        ({"latency_cold": (70.0, 90.0), "unheld": (0.0, 100.0)}, "waits for the GPU: in 100 %"),
    ],
)
def test_the_cause_is_what_moved_by_enough(
    moves: Mapping[str, tuple[float, float]], said: str
) -> None:
    (sentence,) = explain(moves)
    assert said in sentence


def test_multiprocessors_are_idle_where_time_grows_far_beyond_cycles_that_were_read() -> None:
    late = {"latency_cold": (70.0, 900.0)}
    (sentence,) = explain(late, "", {"sm_cycles": (113.0, 99.0)})
    assert "some are idle" in sentence
    for measured in ({}, {"sm_cycles": (113.0, 1400.0)}):
        assert explain(late, "", measured) == [
            "only the time moved, no counter: host, clock or machine"
        ]
    (sentence,) = explain({"latency_cold": (70.0, 90.0)}, "", {"sm_cycles": (113.0, 113.0)})
    assert "clock" in sentence


def noisy(spread: float, shift: float = 0.0) -> paired_runs.Measure:
    """Runs that wander by ``spread``, head slower by ``shift``."""
    random = np.random.default_rng(6)

    def measure(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
        level = 100.0 * (1.0 + shift) if side == "head" else 100.0
        us = level * float(np.exp(spread * random.standard_normal()))
        return {name: Outcome(name, "ok", "", {"latency_cold": (us,)}) for name in workloads}

    return paired_runs.one_by_one(measure)


def test_too_noisy_says_how_many_seconds_would_decide_and_which_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(paired_runs.time, "monotonic", lambda: float(next(clock)))
    fought = paired_runs.Duel("latency", noisy(0.04), Plan(), 1e6)
    (one,) = paired_runs.fight(fought, ["w"], LIMITS, lambda _: None)
    found = one.judgement
    assert (found.verdict, found.pairs) == ("inconclusive", 16)
    assert found.more_pairs > 20  # 4 % of noise; 3 % is asked for
    assert one.seconds_more == pytest.approx(11.0 * found.more_pairs, rel=0.1)
    said = f"about {one.seconds_more:.0f} s more would decide"
    assert found.reason.endswith(f"{said} ({16 + found.more_pairs} pairs in all)")
    text = "\n".join(compare.lines("a", "b", settle([one], 0.05), show_all=False))
    assert f"{said} latency_cold of w: --seconds" in text
    document = compare.document("a", "b", settle([one], 0.05))
    assert document["seconds_more"] == document["series"][0]["seconds_more"] == one.seconds_more
    # As many pairs as it says do decide.
    whole = 16 + found.more_pairs
    base, head = 100.0 * np.exp(0.04 * np.random.default_rng(2).standard_normal((2, whole)))
    assert judge_groups(base, head, "lower", LIMITS.of("latency_cold")).verdict == "unchanged"


def test_out_of_time_says_how_many_seconds_more_the_confirmation_takes() -> None:
    seen: list[str] = []

    def tell(text: str) -> None:
        if "pair 4" in text:
            late.stop.set()

    late = paired_runs.Duel("latency", always(100.0, 120.0, seen), Plan(), 60.0)
    (one,) = paired_runs.fight(late, ["w"], LIMITS, tell)
    assert one.judgement.more_pairs == 4  # to the end of the first eight
    assert one.judgement.reason.startswith("the time ended after 4 pairs: an alarm waits")
    assert one.judgement.reason.endswith("s more would decide (8 pairs in all)")


def test_a_bound_that_says_nothing_is_printed_nowhere() -> None:
    fought = paired_runs.Duel("latency", noisy(30.0), Plan(), 60.0)
    (one,) = paired_runs.fight(fought, ["w"], LIMITS, lambda _: None)
    assert one.judgement.verdict == "inconclusive"
    assert one.judgement.smallest_seen == math.inf
    verdict = settle([one], 0.05)
    text = "\n".join(compare.lines("a", "b", verdict, show_all=True))
    assert "would have seen no change" in text
    assert "would decide" not in text
    assert not re.search(r"seen [^;)]*\d{5,}", text) and "e+" not in one.judgement.reason
    row = json.loads(json.dumps(compare.document("a", "b", verdict), allow_nan=False))["series"][0]
    assert row["smallest_seen"] is None and row["seconds_more"] is None


def test_a_verdict_that_stands_needs_no_more_seconds() -> None:
    fought = paired_runs.Duel("latency", always(100.0, 120.0, []), Plan(), 60.0)
    (one,) = paired_runs.fight(fought, ["w"], LIMITS, lambda _: None)
    assert math.isnan(one.seconds_more) and one.judgement.more_pairs == 0
    assert compare.document("a", "b", settle([one], 0.05))["seconds_more"] is None
