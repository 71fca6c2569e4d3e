"""What nobody asked for is a gap; what was asked for and is gone is lost, whoever measured it."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports import keeping, trees
from tests.reports.test_fuzz import MUTANTS, SEED, mutants
from tests.reports.test_judgement import changes_of, history_of, run
from tests.root import ROOT
from warpwatch.judge.evidence.gaps import leave_gaps
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings.judgement import Judgement, judge
from warpwatch.judge.pairs.commits import compare
from warpwatch.judge.results.history import History
from warpwatch.judge.series.changes import kind

FAIL = None
NONE = math.nan
TIME, CYCLES = "gpu.Attention.track_latency", "gpu.Attention.track_cycles"
PEER = "peers.Attention.track_latency"
SMALL, LARGE = "attention-small", "attention-large"

Values = dict[str, list[list[float | None]]]


def gpu_tree(
    root: Path, values: Values, *, instrument: str = "latency", metric: str = ""
) -> trees.Tree:
    """By benchmark a list a commit: the values of the small and of the large workload."""
    tree = trees.make_repository(root, max(map(len, values.values())))
    for name in values:
        tree.add_benchmark(
            name,
            [[SMALL, LARGE]],
            param_names=("workload",),
            instrument=instrument,
            metric=metric,
            better="lower",
            exact=True,
        )
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(len(tree.commits)):
        rows = {name: found[commit] for name, found in values.items() if found[commit]}
        tree.write_result(commit, rows)
    return tree


def told_apart(tree: trees.Tree) -> History:
    return leave_gaps(history_of(tree), Evidence([tree.results]))


def judged(tree: trees.Tree) -> list[tuple[str, str, int]]:
    """Kind, workload and commit number of every change."""
    found = changes_of(told_apart(tree))
    return [(kind(c), c.series.params[0], tree.commits.index(c.first_commit)) for c in found]


def judgement_of(tree: trees.Tree) -> Judgement:
    return judge(told_apart(tree), Evidence([tree.results]))


def test_a_smaller_set_behind_the_whole_suite_loses_nothing(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE], [1, NONE], [1, 5]]})
    keeping.write_asked(tree.results, tree.commits[0], {SMALL: "ok", LARGE: "ok"})
    for commit in tree.commits[1:3]:
        keeping.write_asked(tree.results, commit, {SMALL: "ok"})
    keeping.write_asked(tree.results, tree.commits[3], {SMALL: "ok", LARGE: "ok"})
    assert judged(tree) == []
    (table,) = told_apart(tree).tables
    assert [len(table.present(row)) for row in (0, 1)] == [4, 2]


@pytest.mark.parametrize(
    ("values", "statuses"),
    [
        ([1, NONE], {SMALL: "ok", LARGE: "not applicable"}),
        ([1, FAIL], {SMALL: "ok", LARGE: "failed"}),
        ([1, FAIL], {SMALL: "ok"}),
        ([1, FAIL], {}),
        ([NONE, NONE], {SMALL: "not applicable", LARGE: "not applicable"}),
    ],
    ids=["removed", "failed", "failed-unsaid", "failed-without-evidence", "all-removed"],
)
def test_what_was_asked_for_and_is_gone_is_lost(
    tmp_path: Path, values: list[float | None], statuses: dict[str, str]
) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], values]})
    if statuses:
        keeping.write_asked(tree.results, tree.commits[1], statuses)
    assert ("lost", LARGE, 1) in judged(tree)
    assert judgement_of(tree).findings[0].since == tree.commits[1]


def test_a_metric_that_failed_of_a_workload_that_was_timed_is_lost(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, 5]], CYCLES: [[10, 50], [10, NONE]]})
    keeping.write_asked(tree.results, tree.commits[1], {SMALL: "ok", LARGE: "ok"})
    assert judged(tree) == [("lost", LARGE, 1)]


def test_evidence_of_another_run_makes_no_loss(tmp_path: Path) -> None:
    """Two machines share a results folder; one measured all, the other a subset."""
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]]})
    keeping.write_asked(tree.results, tree.commits[1], {SMALL: "ok", LARGE: "ok"})
    assert judged(tree) == []


def test_a_subset_without_evidence_alarms_nobody_and_a_whole_row_does(tmp_path: Path) -> None:
    """asv has no row for a benchmark that nobody asked for; within a row it does not say."""
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]], CYCLES: [[10, 50], [NONE, NONE]]})
    assert sorted(judged(tree)) == [("lost", LARGE, 1), ("lost", SMALL, 1)]
    assert {c.series.benchmark for c in changes_of(told_apart(tree))} == {CYCLES}


def test_evidence_speaks_of_its_own_instruments_alone(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [NONE, NONE]]}, instrument="stopwatch")
    keeping.write_asked(tree.results, tree.commits[1], {"matmul": "ok"})
    assert len(judged(tree)) == 2


def test_a_class_that_the_smaller_set_leaves_out_is_a_gap_although_asv_ran_it(
    tmp_path: Path,
) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [NONE, NONE]]})
    keeping.write_asked(tree.results, tree.commits[1], {"matmul": "ok"})
    assert judged(tree) == []


def test_a_peer_is_known_by_workload_and_name(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 2)
    pairs = [f"{SMALL} @ cublas", f"{LARGE} @ cublas"]
    tree.add_benchmark(
        PEER, [pairs], param_names=("workload",), instrument="latency", better="lower", exact=True
    )
    tree.write_benchmarks()
    tree.write_machine("rig")
    tree.write_result(0, {PEER: [1.0, 5.0]})
    tree.write_result(1, {PEER: [NONE, NONE]})
    keeping.write_asked(tree.results, tree.commits[1], {SMALL: "ok", pairs[0]: "not applicable"})
    assert judged(tree) == [("lost", pairs[0], 1)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [("not applicable", [("lost", "large", 1)]), ("", [])],
    ids=["removed", "left-out"],
)
def test_compiled_evidence_tells_too(
    tmp_path: Path, status: str, expected: list[tuple[str, str, int]]
) -> None:
    name = "compiled.Attention.track_spills"
    tree = trees.make_repository(tmp_path, 2)
    tree.add_benchmark(
        name,
        [["small", "large"], ["sm_90"]],
        param_names=("workload", "target"),
        instrument="compiled",
        better="lower",
        exact=True,
    )
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit, values in enumerate(([0.0, 0.0], [0.0, NONE])):
        tree.write_result(commit, {name: values}, machine_fields={"triton": "3.7.1"})
    keeping.write_compiled(
        tree.results,
        tree.commits[1],
        "3.7.1",
        {("small", "sm_90"): ["  HGMMA"]} | ({("large", "sm_90"): []} if status else {}),
        statuses={("large", "sm_90"): status},
    )
    assert judged(tree) == expected


def test_a_value_of_the_commit_outlives_a_later_run_that_leaves_it_out(tmp_path: Path) -> None:
    whole = gpu_tree(tmp_path, {TIME: [[1, 5], [1, 5]]})
    again = trees.Tree(tmp_path / "again", whole.commits, whole.benchmarks)
    again.write_result(1, {TIME: [2.0, NONE]}, cells=lambda *_: {"started_at": 2**50})
    (whole.results / "rig" / "later.json").write_bytes(
        next((again.results / "rig").glob("*.json")).read_bytes()
    )
    (table,) = told_apart(whole).tables
    assert table.values[:, 1].tolist() == [2.0, 5.0]


def test_a_comparison_says_what_nobody_asked_for(tmp_path: Path) -> None:
    """Also of rows that the smaller set's file has not at all."""
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]], CYCLES: [[10, 50], []]})
    keeping.write_asked(tree.results, tree.commits[0], {SMALL: "ok", LARGE: "ok"})
    keeping.write_asked(tree.results, tree.commits[1], {SMALL: "ok"})
    said = {
        (c.series.key.benchmark, c.series.workload): (c.verdict, c.reason)
        for c in compare(told_apart(tree), *tree.commits)
    }
    unasked = ("not applicable", "nobody asked for it at head")
    assert said[TIME, SMALL] == ("unchanged", "")
    assert said[TIME, LARGE] == said[CYCLES, LARGE] == unasked
    # The row of what was asked for is not there.
    assert said[CYCLES, SMALL] == ("missing", "has no result at head")
    assert run(tree, "compare", "--recorded", *tree.commits) == 1
    back = {c.reason for c in compare(told_apart(tree), *reversed(tree.commits))}
    assert "nobody asked for it at base" in back


def test_the_gate_of_a_pull_request_still_asks_for_everything(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]]})
    said = {c.series.workload: c.reason for c in compare(history_of(tree), *tree.commits)}
    assert said[LARGE] == "head has no such kernel"


def test_a_machine_misses_what_was_lost_when_it_was_last_asked_for(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [FAIL, 5], [NONE, NONE], [NONE, NONE]]})
    for commit in tree.commits[2:]:
        keeping.write_asked(tree.results, commit, {"matmul": "ok"})
    site = trees.build_site(tree, tmp_path / "html")
    page = next((site / "m").iterdir()).read_text()
    _, _, missing = page.partition("missing</b> at the newest commit")
    assert SMALL in missing.partition("</ul>")[0]
    assert LARGE not in missing.partition("</ul>")[0]


def test_what_is_lost_stays_open_while_nobody_asks_for_it(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, FAIL], [1, NONE]]})
    judgement = judgement_of(tree)
    assert [judgement.status(one) for one in judgement.findings] == ["open"]


def test_odd_evidence_is_left_out(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]]})
    path = keeping.write_asked(tree.results, tree.commits[1], {LARGE: "not applicable"})
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["timed"] += [None, 3, {"workload": 7, "status": "ok"}, {"workload": "x", "status": 1}]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    asked = Evidence([tree.results]).asked(tree.commits[1])
    assert asked.statuses == {LARGE: "not applicable", "x": ""}
    document["methods"] = ["latency"]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    assert Evidence([tree.results]).asked(tree.commits[1]).instruments == frozenset()


def test_no_mutant_of_evidence_does_more_than_be_refused(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, NONE]]})
    history = history_of(tree)
    path = keeping.write_asked(tree.results, tree.commits[1], {SMALL: "ok", LARGE: "failed"})
    document = json.loads(gzip.decompress(path.read_bytes()))
    for mutant in mutants(document, MUTANTS // 2, SEED):
        path.write_bytes(gzip.compress(mutant, compresslevel=1))
        found = Evidence([tree.results])
        (table,) = leave_gaps(history, found).tables
        # A number is never touched, whatever evidence says.
        assert table.values[0].tolist() == [1.0, 1.0]
        assert table.values[1, 0] == 5.0
        assert all(f"{path.parent.name}/{path.name}" in reason for reason in found.rejected)


def test_a_machines_page_says_what_gave_its_counters(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: 2 * [[1.0, 2.0]]})
    why = "ERR_NVGPUCTRPERM: <b>set</b> NVreg_RestrictProfilingToAdminUsers=0"
    keeping.write_asked(
        tree.results,
        tree.commits[-1],
        dict.fromkeys((SMALL, LARGE), "ok"),
        counters={"tier": "gpm", "why": why},
    )
    site = trees.build_site(tree, tmp_path / "html")
    page = next((site / "m").iterdir()).read_text()
    assert "from the driver&#39;s sampling (gpm), not from hardware counters: ERR_NVGPU" in page
    assert "&lt;b&gt;set&lt;/b&gt; NVreg" in page and "<b>set" not in page


def test_a_page_of_counters_names_who_read_them(tmp_path: Path) -> None:
    values: Values = {CYCLES: 2 * [[1.0, 2.0]]}
    tree = gpu_tree(tmp_path, values, instrument="ncu", metric="tensor_pipe")
    statuses = dict.fromkeys((SMALL, LARGE), "ok")
    # The second build keeps what pages it can of the first.
    for tier, other in (("ncu", "rocprofv3"), ("rocprofv3", "ncu")):
        counters = {"tier": tier, "why": ""}
        keeping.write_asked(tree.results, tree.commits[-1], statuses, counters=counters)
        site = trees.build_site(tree, tmp_path / "html")
        pages = "".join(page.read_text() for page in (site / "s").iterdir())
        assert f", instrument {tier}" in pages and f", instrument {other}" not in pages
        counted = Evidence([tree.results]).asked(tree.commits[-1]).counted
        assert counted is not None and counted.said == f"from hardware counters ({tier})"


def test_a_kernel_without_tensor_cores_lacks_nothing_at_head(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path, {TIME: [[1, 5]] * 3, CYCLES: [[10, NONE], [10, NONE], [10, 50]]})
    said = {
        (c.series.key.benchmark, c.series.workload): (c.verdict, c.reason)
        for c in compare(history_of(tree), *tree.commits[:2])
    }
    assert said[CYCLES, LARGE] == ("not applicable", "does not apply at either commit")


def test_whoever_reads_may_have_enough(tmp_path: Path) -> None:
    """As ``| head``: no traceback."""
    tree = gpu_tree(tmp_path, {TIME: [[1, 5], [1, 9]]})
    reading, writing = os.pipe()
    os.close(reading)
    where = ("--results", str(tree.results), "--repo", str(tree.repo))
    command = (sys.executable, "-m", "warpwatch", "compare", "--recorded", *tree.commits, *where)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, env=environment, text=True, timeout=300
    )
    os.close(writing)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
