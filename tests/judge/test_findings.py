"""Changes of one cause are one finding, with the range that holds it and what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.reports import keeping
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings.grouping import group
from warpwatch.judge.model.core import Change, Commit, Finding, SeriesKey, Step, Verdict
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.results.history import History, SeriesInfo, Table
from warpwatch.judge.series.changes import series_changes

COUNT = 60


def commits() -> tuple[Commit, ...]:
    hashes = [f"{i:08x}" + 32 * "0" for i in range(COUNT)]
    return tuple(
        Commit(h, (hashes[i - 1],) if i else (), 1_700_000_000 + i, "a", f"commit {i}", i)
        for i, h in enumerate(hashes)
    )


UNITS = {"sm_cycles": "cycles", "kernel_cycles": "cycles", "peak_share": "%", "launches": "count"}


def history(
    rows: dict[str, np.ndarray],
    *,
    exact: frozenset[str] = frozenset(),
    method_change: dict[str, int] | None = None,
    weights: dict[str, float] | None = None,
) -> History:
    """A history of one machine; rows are named ``metric of workload``."""
    infos = []
    for name in rows:
        metric, _, workload = name.partition(" of ")
        share = metric == "peak_share"
        meaning = Meaning(
            UNITS.get(metric, "us"),
            "higher" if share else "lower",
            "evidence" if share else "verdict",
            name in exact,
            "latency",
            metric,
        )
        key = SeriesKey("m", "e", metric, (workload,))
        workload, _, peer = workload.partition(" @ ")  # as asv's parameter names a peer
        heavy = (weights or {}).get(workload, 1.0)
        infos.append(SeriesInfo(key, meaning, workload, peer, weight=heavy))
    values = np.array(list(rows.values()), dtype=np.float64)
    blank = np.full(values.shape, np.nan, dtype=np.float32)
    methods = np.zeros(values.shape, dtype=np.int32)
    for row, name in enumerate(rows):
        if name in (method_change or {}):
            methods[row, (method_change or {})[name] :] = 1
    table = Table(
        machine="m",
        environment="e",
        series=tuple(infos),
        commits=commits(),
        values=values,
        low=blank,
        high=blank,
        methods=methods,
        platforms=np.zeros(COUNT, dtype=np.int32),
        platform_names=("",),
        started_ms=np.zeros(COUNT, dtype=np.int64),
        machine_fields={},
    )
    return History(commits(), (table,))


def noisy(step_at: int | None, seed: int, size: float = 0.05) -> np.ndarray:
    values = 100.0 * np.exp(np.random.default_rng(seed).normal(0.0, 0.01, COUNT))
    if step_at is not None:
        values[step_at:] *= 1.0 + size
    return values


def every_change(made: History) -> list[Change]:
    return [
        change
        for table in made.tables
        for row in range(len(table.series))
        for change in series_changes(table, row)
    ]


def found(made: History) -> list[tuple[str, str, list[int], int]]:
    positions = made.positions
    return [
        (one.verdict, one.cause, [positions[c] for c in one.commits], len(one.changes))
        for one in group(every_change(made), made)
    ]


def test_a_cause_seen_in_many_series_is_one_finding_of_one_commit() -> None:
    rows = {f"latency of w{i}": noisy(30, seed=i, size=0.03) for i in range(6)}
    rows["launches of w0"] = np.where(np.arange(COUNT) < 30, 1.0, 2.0)
    (only,) = found(history(rows, exact=frozenset({"launches of w0"})))
    assert only == ("regressed", "kernel", [30], 7)


def ranges_of(known: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """First, last and members of the findings that changes make; each is the costlier, the earlier
    it is listed, and known by its interval and its likeliest commit."""
    made = history({f"latency of w{i}": noisy(None, seed=i) for i in range(len(known))})
    names = [commit.hash for commit in made.commits]
    changes = [
        Change(
            made.tables[0].series[row].key,
            "regressed",
            Step(at, 100.0, 130.0 - row, (first, last), 0.9),
            names[first - 1],
            names[at],
            1.3 - 0.01 * row,
        )
        for row, (first, last, at) in enumerate(known)
    ]
    findings = group(changes, made)
    assert len({one.identity for one in findings}) == len(findings)
    for one in findings:
        assert one.changes[0].first_commit in one.commits
    return sorted(
        (names.index(f.commits[0]), names.index(f.commits[-1]), len(f.changes)) for f in findings
    )


def test_the_range_of_a_finding_holds_the_step_of_its_costliest_series() -> None:
    # What shares no commit with the costliest and its nearest stays apart.
    assert ranges_of([(10, 17, 15), (8, 12, 11), (14, 18, 15)]) == [(8, 12, 1), (14, 17, 2)]
    # A narrow interval at the edge of a wide one: both likeliest commits are shown.
    assert ranges_of([(10, 17, 12), (16, 16, 16)]) == [(12, 16, 2)]
    assert ranges_of([(4, 5, 5), (4, 4, 4)]) == [(4, 5, 2)]
    # No wider than the interval of the costliest, however wide the others are.
    assert ranges_of([(10, 12, 11), (2, 30, 20), (5, 40, 6)]) == [(10, 12, 3)]


def test_of_two_neighbours_the_likelier_one_takes_a_change() -> None:
    """A costlier finding one commit away takes only those that nothing else explains."""
    known = [(14, 14, 14), (15, 15, 15), (14, 15, 15)]
    assert ranges_of(known) == [(14, 14, 1), (15, 15, 2)]
    assert ranges_of([(14, 14, 14), (14, 15, 15)]) == [(14, 14, 2)]


def test_a_step_beside_a_border_that_moved_nothing_is_found() -> None:
    steady = noisy(None, seed=3, size=0.0)
    for border, at in ((20, 21), (20, 22), (40, 38), (40, 39)):
        values = steady.copy()
        values[at:] *= 1.5
        made = history({"latency of w": values}, method_change={"latency of w": border})
        (change,) = every_change(made)
        assert made.positions[change.first_commit] == at
        values[border:] *= 1.3  # the method moved them, too: nothing is known of a level so short
        made = history({"latency of w": values}, method_change={"latency of w": border})
        assert every_change(made) == []


def test_where_the_costliest_recovered_the_range_holds_the_step_of_the_next() -> None:
    made = history({f"latency of w{i}": noisy(None, seed=i) for i in range(2)})
    names = [commit.hash for commit in made.commits]
    first, second = (info.key for info in made.tables[0].series)

    def change(key: SeriesKey, at: int, interval: tuple[int, int], levels: float) -> Change:
        verdict: Verdict = "regressed" if levels > 1 else "improved"
        step = Step(at, 100.0, 100.0 * levels, interval, 0.9)
        return Change(key, verdict, step, names[interval[0] - 1], names[at], levels)

    back = replace(change(first, 45, (45, 45), 0.7), step=Step(45, 140.0, 100.0, (45, 45), 0.9))
    every = [change(first, 30, (30, 30), 1.4), change(second, 28, (27, 30), 1.2), back]
    (worse,) = (one for one in group(every, made) if one.kind == "slower")
    assert [one.series for one in worse.changes] == [second, first]
    assert [made.positions[name] for name in worse.commits] == [28, 29, 30]
    assert worse.changes[0].first_commit == names[28]


def test_a_range_begins_near_the_step_with_who_touched_the_kernel(tmp_path: Path) -> None:
    """Merges come after what they brought; of commits that git lacks nobody knows the files."""
    known = {28: "own.py", 29: "own.py", 31: "own.py", 30: "tools.py", 33: "else.py", 27: "own.py"}
    every = list(commits())
    every[29] = replace(every[29], parents=(every[28].hash, every[0].hash))
    files = {every[at].hash: frozenset({f"k/{name}"}) for at, name in known.items()}
    made = replace(history({"latency of w": noisy(None, seed=1)}), commits=tuple(every))
    made = replace(made, files={"k": files})
    sources = {"own": ["k/own.py"], "imported": ["k/tools.py"]}
    keeping.write_compiled(
        tmp_path, every[30].hash, "3.7.1", {("w", "sm_90"): []}, recorded={"sources": sources}
    )
    step = Step(30, 100.0, 130.0, (27, 33), 0.9)
    key = made.tables[0].series[0].key
    change = Change(key, "regressed", step, every[26].hash, every[30].hash, 1.3)
    (finding,) = group([change], made, Evidence([tmp_path]))
    order = [made.positions[name] for name in finding.suspects]
    assert order == [31, 28, 27, 29, 30, 32, 33]


def test_one_interval_of_many_may_miss_its_commit() -> None:
    known = [(10, 14, 12)] * 12
    assert ranges_of([*known, (13, 14, 13)]) == [(10, 14, 13)]
    # Of two, none: a range of one commit that both share says little, and is as sure as that.
    assert ranges_of([(10, 14, 12), (12, 15, 13)]) == [(12, 14, 2)]


def test_a_range_says_how_sure_it_is() -> None:
    rows = {f"latency of w{i}": noisy(30, seed=i, size=0.03) for i in range(2)}
    made = history(rows)
    assert [one.sure for one in group(every_change(made)[:1], made)] == [0.95]
    assert [one.sure for one in group(every_change(made), made)] == [pytest.approx(0.9025)]
    rows["launches of w0"] = np.where(np.arange(COUNT) < 30, 1.0, 2.0)
    made = history(rows, exact=frozenset({"launches of w0"}))
    assert [one.sure for one in group(every_change(made), made)] == [1.0]


def test_where_an_exact_series_knows_the_commit_it_is_named_for_all() -> None:
    rows = {"latency of a": noisy(31, seed=8, size=0.03)}
    rows["latency of a"][30] *= 1.03
    rows["launches of a"] = np.where(np.arange(COUNT) < 30, 1.0, 2.0)
    made = history(rows, exact=frozenset({"launches of a"}))
    (one,) = group(every_change(made), made)
    assert one.commits == (commits()[30].hash,)
    assert {change.first_commit for change in one.changes} == set(one.commits)


def test_the_commit_that_mends_a_failure_does_not_place_what_changed_meanwhile() -> None:
    """A value is another after commits that failed: any of them may have changed it."""
    at = np.arange(COUNT)
    failing = (at >= 30) & (at < 33)
    rows = {
        "compile_failures of a": np.where(failing, 1.0, 0.0),
        "launches of a": np.where(failing, np.nan, np.where(at < 30, 5.0, 3.0)),
        "launches of b": np.where(at < 33, 5.0, 3.0),
    }
    made = history(rows, exact=frozenset(rows))
    better = [one for one in found(made) if one[0] == "improved"]
    assert sorted((one[2], one[3]) for one in better) == [([30, 31, 32, 33], 1), ([33], 2)]


def test_two_causes_are_two_findings_and_the_costlier_comes_first() -> None:
    rows = {
        "latency of a": noisy(20, seed=1, size=0.05),
        "latency of b": noisy(45, seed=2, size=0.30),
    }
    first, second = found(history(rows))
    assert 45 in first[2]
    assert 20 in second[2]


def test_better_and_worse_at_one_commit_are_told_apart() -> None:
    rows = {"latency of a": noisy(30, seed=1), "latency of b": noisy(30, seed=2, size=-0.05)}
    assert {one[0] for one in found(history(rows))} == {"regressed", "improved"}


def test_when_a_peer_moved_too_it_was_the_machine() -> None:
    rows = {"latency of a": noisy(30, seed=1), "latency of a @ cublas": noisy(30, seed=2)}
    (only,) = found(history(rows))
    assert only[1] == "machine"
    rows["latency of a @ cublas"] = noisy(None, seed=2)
    (only,) = found(history(rows))
    assert only[1] == "kernel"
    del rows["latency of a @ cublas"]
    (only,) = found(history(rows))
    assert only[1] == "unknown"


def test_a_regression_that_recovered_stays_on_record() -> None:
    values = noisy(20, seed=3, size=0.1)
    values[40:] /= 1.1
    verdicts = [one[0] for one in found(history({"latency of a": values}))]
    assert sorted(verdicts) == ["improved", "regressed"]


def only(made: History, evidence: Evidence | None = None) -> Finding:
    (one,) = group(every_change(made), made, evidence)
    return one


def test_a_kernel_that_no_longer_compiles_is_one_finding() -> None:
    before = np.arange(COUNT) < 30
    rows = {
        "compile_failures of a": np.where(before, 0.0, 1.0),
        "launches of a": np.where(before, 1.0, np.nan),
        "spilled_bytes of a": np.where(before, 0.0, np.nan),
    }
    one = only(history(rows, exact=frozenset(rows)))
    assert len(one.changes) == 3
    assert one.changes[0].series.benchmark == "compile_failures"
    assert one.commits == (commits()[30].hash,)


def test_findings_are_ranked_by_the_time_the_suite_loses() -> None:
    small, large = noisy(20, seed=1, size=0.30), 1000.0 * noisy(45, seed=2, size=0.05)
    rows = {"latency of short": small, "latency of long": large}
    ranked = group(every_change(history(rows)), history(rows))
    # 5 % of 100 ms are more than 30 % of 100 us.
    assert [one.changes[0].series.params for one in ranked] == [("long",), ("short",)]
    assert ranked[0].cost == pytest.approx(0.05 * 100e-3, rel=0.2)
    assert ranked[1].cost == pytest.approx(0.30 * 100e-6, rel=0.2)
    heavy = history(rows, weights={"short": 1000.0})
    ranked = group(every_change(heavy), heavy)
    assert ranked[0].changes[0].series.params == ("short",)


def test_a_workload_costs_its_time_once_however_many_metrics_moved() -> None:
    rows = {"latency of a": noisy(30, seed=1, size=0.1), "sm_cycles of a": noisy(30, 1, 0.1)}
    alone = {"latency of a": rows["latency of a"]}
    assert only(history(rows)).cost == pytest.approx(only(history(alone)).cost)


def test_where_the_method_changed_too_it_was_the_harness() -> None:
    rows = {"latency of a": noisy(30, seed=1), "host_us of a": noisy(None, seed=4)}
    one = only(history(rows, method_change={"host_us of a": 30}))
    assert (one.cause, one.why) == ("harness", "the method of host_us changed there")
    assert only(history(rows, method_change={"host_us of a": 50})).cause != "harness"


def test_time_and_share_of_the_peak_tell_a_clock_from_a_kernel() -> None:
    time = noisy(30, seed=1, size=0.08)
    jitter = np.exp(np.random.default_rng(5).normal(0.0, 0.002, COUNT))
    at_flat_clock = {"latency_cold of a": time, "peak_share of a": 4000.0 / time * jitter}
    kernel = only(history(at_flat_clock))
    assert kernel.cause == "kernel"
    assert "flat clock" in kernel.why
    # The time rose because the clock fell: the share of the peak at that clock stayed.
    level = np.where(np.arange(COUNT) < 30, 1.0, 1.08)
    slowed = {"latency_cold of a": time, "peak_share of a": 4000.0 * level / time * jitter}
    machine = only(history(slowed))
    assert machine.cause == "machine"
    assert "the clock went -7" in machine.why
    # A share taken at the datasheet's clock mirrors the time exactly, and says nothing.
    unknown = {"latency_cold of a": time, "peak_share of a": 4000.0 / time}
    assert only(history(unknown)).cause == "unknown"


def test_cycles_know_no_clock() -> None:
    rows = {"latency of a": noisy(30, seed=1), "sm_cycles of a": noisy(30, seed=2)}
    assert only(history(rows)).cause == "kernel"


def test_equal_machine_code_clears_the_kernel(tmp_path: Path) -> None:
    made = history({"latency of a": noisy(30, seed=1), "host_us of a": noisy(None, seed=4)})
    for commit in commits():
        keeping.write_compiled(tmp_path, commit.hash, "3.7.1", {("a", "sm_90"): ["  HGMMA\n"]})
    one = only(made, Evidence([tmp_path]))
    assert (one.cause, one.why) == ("machine", "the machine code is the same before and after")
    moved = history(
        {"latency of a": noisy(30, seed=1), "host_us of a": noisy(None, seed=4)},
        method_change={"host_us of a": 30},
    )
    assert only(moved, Evidence([tmp_path])).cause == "harness"
    bad = one.changes[0].first_commit
    keeping.write_compiled(tmp_path, bad, "3.7.1", {("a", "sm_90"): ["  HMMA\n"]})
    assert only(made, Evidence([tmp_path])).cause == "unknown"
