"""How kernels stand: against peers as far as intervals tell, and against what is possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.reports import keeping, trees
from tests.reports.test_index import words_of
from tests.reports.test_peers_on_pages import gpu_tree

COLD = "own.Product.track_latency_cold"
PEERS = "peers.Product.track_latency_cold"


def standing_tree(root: Path, peer_us: float) -> trees.Tree:
    """A product of 10 us at three commits, the newest of which times a peer; its roof is 5 us."""
    tree = trees.make_repository(root, 3)
    given = {"param_names": ["workload"], "unit": "us", "metric": "latency_cold"}
    work = {"flops": [5e9], "bytes_moved": [1e6], "peaks": {"h200": [1000.0]}}
    roofs = {"bandwidths": {"h200": 5000}, "devices": {"h200": "NVIDIA H200"}}
    tree.add_benchmark(COLD, [["product"]], instrument="latency", **given, **work, **roofs)
    tree.add_benchmark(PEERS, [["product @ cublas"]], role="evidence", **given)
    tree.write_benchmarks()
    tree.write_machine("h200", gpu="NVIDIA H200")
    for commit in range(3):
        values: dict[str, list[float | None]] = {COLD: [10.0]}
        if commit == 2:
            values[PEERS] = [peer_us]
        tree.write_result(commit, values, machine="h200", intervals=0.01)
    return tree


@pytest.mark.parametrize(
    ("peer_us", "said"),
    [
        (12.0, "▲ ahead of the best peer on 1 of 1 workloads"),
        (8.0, "▼ behind on 1 of 1 workloads"),
        # Intervals of a hundredth on both sides hold the same time.
        (10.1, "● level on 1 of 1 workloads"),
    ],
)
def test_ahead_or_behind_is_said_where_the_intervals_tell(
    tmp_path: Path, peer_us: float, said: str
) -> None:
    site = trees.build_site(standing_tree(tmp_path, peer_us), tmp_path / "html")
    page = (site / "index.html").read_text()
    text = words_of(page)
    assert said in text
    assert "50 % of its roof" in text
    assert "datasheet roof: no call can take less" in text
    assert "none measured" not in text
    assert f'aria-label="3 commits, this package 10 µs, cublas {peer_us:g} µs' in page
    (machine,) = (site / "m").iterdir()
    assert f"cublas, {peer_us / 10:.2f}× " in words_of(machine.read_text())


@pytest.mark.parametrize("newest", [8.0, 10.5])
def test_a_bound_that_only_evidence_keeps_is_on_the_card(tmp_path: Path, newest: float) -> None:
    """Nobody compiled for asv's results, yet evidence has the bound of each commit. A call that
    took less has refuted it."""
    tree = standing_tree(tmp_path, 12.0)
    for commit, bound in enumerate((6.0, 8.0, newest)):
        keeping.write_compiled(
            tree.results,
            tree.commits[commit],
            "3.6.0",
            {("product", "sm_90"): [], ("product", "sm_80"): []},
            devices={"sm_80": "NVIDIA A100", "sm_90": "NVIDIA H200 SXM"},
            values={
                ("product", "sm_90"): {"bound_us": bound},
                ("product", "sm_80"): {"bound_us": 1.0},
            },
        )
    page = (trees.build_site(tree, tmp_path / "html") / "index.html").read_text()
    text = words_of(page)
    if newest > 10.0:
        assert "50 % of its roof" in text
        assert "bound" not in text
        return
    assert "80 % of its bound" in text
    assert "predicted bound: no call can take less" in text
    assert "predicted bound 8 µs" in page
    assert "datasheet roof" not in text


def test_a_machine_that_timed_no_call_stands_aside(tmp_path: Path) -> None:
    """A run without a GPU adds what its host takes: that is how no kernel stands."""
    tree = standing_tree(tmp_path, 12.0)
    tree.add_benchmark("host.ColdStart.track_import_s", unit="s", metric="import_s")
    tree.write_benchmarks()
    tree.write_machine("laptop")
    for commit in range(3):
        tree.write_result(commit, {"host.ColdStart.track_import_s": [0.5]}, machine="laptop")
    page = (trees.build_site(tree, tmp_path / "html") / "index.html").read_text()
    assert page.count('<svg class="stand"') == 1
    assert "host.ColdStart" not in page.split('id="stand"')[1].split("<h2")[0]


def keep_bounds(tree: trees.Tree, commits: Sequence[str]) -> None:
    """Evidence of 8 us at each commit."""
    place = ("product", "sm_90")
    for commit in commits:
        keeping.write_compiled(
            tree.results,
            commit,
            "3.6.0",
            {place: []},
            devices={"sm_90": "NVIDIA H200 SXM"},
            values={place: {"bound_us": 8.0}},
        )


def test_compiled_series_add_to_the_bounds_that_evidence_keeps(tmp_path: Path) -> None:
    """Who compiles one commit has a bound of the others still."""
    tree = standing_tree(tmp_path, 12.0)
    series = "compiled.Product.track_bound_us"
    names = {"param_names": ["workload", "target"], "unit": "us", "metric": "bound_us"}
    tree.add_benchmark(series, [["product"], ["sm_90"]], instrument="compiled", exact=True, **names)
    tree.write_benchmarks()
    tree.write_result(2, {series: [7.0]}, machine="laptop")
    tree.write_machine("laptop")
    keep_bounds(tree, tree.commits[:2])
    page = (trees.build_site(tree, tmp_path / "html", 3) / "index.html").read_text()
    (line,) = re.findall(r'<path class="limit" d="([^"]+)"', page.split('<svg class="stand"')[1])
    assert "70 % of its bound" in words_of(page)
    assert len(re.findall("[ML]", line)) > 1


def test_a_commit_that_did_not_time_the_call_refutes_no_bound(tmp_path: Path) -> None:
    """A smaller set leaves the workload out there, and its code was compiled all the same."""
    tree = standing_tree(tmp_path, 12.0)
    tree.write_result(1, {PEERS: [12.0]}, machine="h200", intervals=0.01)
    keep_bounds(tree, tree.commits)
    text = words_of((trees.build_site(tree, tmp_path / "html") / "index.html").read_text())
    assert "80 % of its bound" in text


def test_a_workload_without_a_peer_is_counted_and_no_column_is_empty(tmp_path: Path) -> None:
    site = trees.build_site(gpu_tree(tmp_path), tmp_path / "html")
    text = words_of((site / "index.html").read_text())
    assert "behind on 1 of 1 workloads timed next to a peer: its time is 0.90" in text
    assert "Of 1 other workload these results hold no peer." in text
    # Neither a datasheet nor compiled code sets a limit here.
    assert "of its roof" not in text
    assert "no call can take less" not in text


def test_every_kernel_has_a_chart_before_the_workloads_whose_peer_is_fastest(
    tmp_path: Path,
) -> None:
    """However many workloads of one kernel are behind, another kernel is on the screen."""
    tree = trees.make_repository(tmp_path, 3)
    given = {"param_names": ["workload"], "unit": "us", "metric": "latency_cold"}
    small = [f"small{number}" for number in range(1, 14)]
    for kernel, names in (("Product", small), ("Sum", ["wide"])):
        tree.add_benchmark(f"own.{kernel}.track_latency_cold", [names], instrument="l", **given)
        rivals = [f"{name} @ cublas" for name in names]
        tree.add_benchmark(f"peers.{kernel}.track_latency_cold", [rivals], role="evidence", **given)
    tree.write_benchmarks()
    tree.write_machine("h200", gpu="NVIDIA H200")
    for commit in range(3):
        values: dict[str, list[float | None]] = {
            "own.Product.track_latency_cold": [10.0] * 13,
            "own.Sum.track_latency_cold": [10.0],
            "peers.Product.track_latency_cold": [9.0 - 0.1 * number for number in range(1, 14)],
            "peers.Sum.track_latency_cold": [12.0],
        }
        tree.write_result(commit, values, machine="h200", intervals=0.001)
    page = (trees.build_site(tree, tmp_path / "html") / "index.html").read_text()
    shown = re.findall(r"<h3><a [^>]*>([^<]+)</a></h3>", page)
    worst = [f"small{number}" for number in range(13, 2, -1)]
    assert shown == ["small9", "wide", *(name for name in worst if name != "small9")][:12]
    text = words_of(page)
    assert re.search("ahead of the best peer on 1 ?, ▼ behind on 13 of 14 workloads", text)
    assert "one of 13 of own.Product, h200: 13 behind" in text


def test_a_project_without_workloads_has_charts_of_its_times(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 4)
    tree.add_benchmark("bench.Linalg.time_det", [["3", "5"]])
    tree.add_benchmark("bench.Core.time_sum", kernel="ops.core:<i>sum")
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(4):
        times = {"bench.Linalg.time_det": [0.1, 0.2], "bench.Core.time_sum": [0.5]}
        tree.write_result(commit, times)
    site = trees.build_site(tree, tmp_path / "html")
    page = (site / "index.html").read_text()
    assert page.count('<svg class="stand"') == 2
    text = words_of(page)
    assert "one of 2 of bench.Linalg, rig" in text
    assert "ops.core:&lt;i&gt;sum, rig" in page and "bench.Core, rig" not in page
    assert "peer" not in text


def test_a_project_without_a_time_has_charts_of_what_it_counts(tmp_path: Path) -> None:
    """asv's default unit says nothing: no sentence of the index may turn it into seconds."""
    tree = trees.make_repository(tmp_path, 30)
    for robot in ("Cloth", "Panda"):
        tree.add_benchmark(f"bench.{robot}.track_metric", [["step", "memory"]], unit="unit")
    tree.write_benchmarks()
    tree.write_machine("rig", ram="65836440")
    for commit in range(30):
        level = 1 + 0.5 * (commit >= 12) + 0.001 * (commit % 3)
        names = ("bench.Cloth.track_metric", "bench.Panda.track_metric")
        tree.write_result(commit, {name: [5.0, 70.0 * level] for name in names})
    site = trees.build_site(tree, tmp_path / "html")
    page = (site / "index.html").read_text()
    assert page.count('<svg class="stand"') == 2
    text = words_of(page.replace("<wbr>", ""))
    # The parameter that changed stands for its kernel.
    assert "bench.Panda.track_metric (memory)" in text
    assert "value over commits" in text
    assert "▼ regressed +50 % track_metric of Cloth, Panda (2 series) since" in text
    assert "a run of the suite" not in text
    (machine,) = (site / "m").iterdir()
    assert "newest value" in machine.read_text()
    assert "62.79 GiB" in machine.read_text()
    # Later releases of asv write bytes.
    tree.write_machine("rig", ram=str(65836440 * 1024))
    assert (
        "62.79 GiB"
        in (trees.build_site(tree, tmp_path / "bytes") / machine.relative_to(site)).read_text()
    )
    (finding,) = (site / "f").iterdir()
    assert "a run of the suite" not in finding.read_text()


def test_a_machine_is_named_with_its_environment_where_it_has_several(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 24)
    tree.add_benchmark("bench.Core.time_sum", [["2", "3"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(24):
        noise = 1 + 0.002 * (commit % 3)
        slower = commit >= 12
        times = {"bench.Core.time_sum": [noise * (1 + slower), noise * (1 + 0.3 * slower)]}
        for environment in ("old", "new"):
            tree.write_result(commit, times, environment=environment)
    text = words_of((trees.build_site(tree, tmp_path / "html") / "index.html").read_text())
    assert "Every workload of rig, old" in text
    assert "one of 2 of bench.Core, rig, new" in text
    # Of several sizes the largest is said to be that.
    assert "▼ regressed up to +100 % bench.Core.time_sum" in text


def test_benchmarks_of_a_class_stand_below_one_heading(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 24)
    for name in ("bench.Core.time_sum", "bench.Core.time_product"):
        tree.add_benchmark(name)
    tree.add_benchmark("bench.Sort.time_it", [["2", "3"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(24):
        level = 1 + 0.002 * (commit % 3) + 0.5 * (commit >= 12)
        times = {name: [level] for name in ("bench.Core.time_sum", "bench.Core.time_product")}
        tree.write_result(commit, times | {"bench.Sort.time_it": [level, level]})
    site = trees.build_site(tree, tmp_path / "html")
    text = words_of((site / "c" / f"{tree.commits[12][:12]}.html").read_text())
    assert "bench.Core, 2 series on rig" in text
    assert "▼ regressed time_sum 1" in text
    # Of one benchmark its parameters are enough.
    assert "bench.Sort.time_it, 2 series on rig" in text
    assert "▼ regressed 2 1" in text


def test_no_kernel_is_left_out_of_a_machine_with_many_workloads(tmp_path: Path) -> None:
    """Of each the workloads that changed last are listed, and the count is of all."""
    tree = trees.make_repository(tmp_path, 24)
    sizes = [str(size) for size in range(150)]
    for name in ("bench.First.time_it", "bench.Last.time_it"):
        tree.add_benchmark(name, [sizes])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(24):
        noise = 1 + 0.002 * (commit % 3)
        times: list[float | None] = [noise] * 150
        times[3] = noise * (1.5 if commit >= 12 else 1.0)
        tree.write_result(commit, {"bench.First.time_it": times, "bench.Last.time_it": times})
    site = trees.build_site(tree, tmp_path / "html")
    (machine,) = (site / "m").iterdir()
    page = machine.read_text()
    text = words_of(page)
    for name in ("First", "Last"):
        assert (
            f"bench.{name}, 150 workloads; listed: 100, those measured most and changed last"
            in text
        )
        assert f"bench.{name}.time_it (3)" in text
    assert page.count('<th scope="row">') == 200


def test_a_bound_is_not_called_a_time(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"bound_us": [10.0, 10.0, 12.0]})
    page = words_of((trees.build_site(tree, tmp_path / "html") / "index.html").read_text())
    assert "not timed: the least time that sm_90 needs, read from code, over commits" in page
    assert " time over commits" not in page
