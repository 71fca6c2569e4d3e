"""A workload's page: our time beside its peers', commit by commit, and the rates it means."""

from __future__ import annotations

import json
from pathlib import Path

from tests.reports import trees
from tests.reports.test_index import words_of
from tests.reports.test_kept import contents

PRODUCT, LONELY = "matmul-4096", "matmul-odd"
OWN, PEERS = "own.track_latency_cold", "peers.track_latency_cold"
BYTES = "own.track_peak_bytes"


def gpu_tree(root: Path) -> trees.Tree:
    """Of three commits the first times no peer, the second one, the third both."""
    tree = trees.make_repository(root, 3)
    shared = {"param_names": ["workload"], "metric": "latency_cold", "unit": "us"}
    work = {"flops": [1e9, 1e9], "bytes_moved": [1e7, 1e7], "peaks": {}, "bandwidths": {}}
    work["formula_bytes"] = [8 << 20, None]
    tree.add_benchmark(OWN, [[PRODUCT, LONELY]], **shared, **work)
    pairs = [f"{PRODUCT} @ {peer}" for peer in ("slow", "cublas")]
    memory = {"param_names": ["workload"], "metric": "peak_bytes", "unit": "bytes"}
    tree.add_benchmark(BYTES, [[PRODUCT, LONELY]], **memory)
    tree.add_benchmark(PEERS, [pairs], role="evidence", **shared)
    tree.write_benchmarks()
    tree.write_machine("rig")
    tree.write_result(0, {OWN: [12.0, 5.0]}, intervals=0.01)
    tree.write_result(1, {OWN: [10.0, 5.0], PEERS: [20.0, None]}, intervals=0.01)
    both = {OWN: [10.0, 5.0], PEERS: [20.0, 9.0], BYTES: [2.0**21, 2.0**21]}
    tree.write_result(2, both, intervals=0.01)
    return tree


def said_of(site: Path, name: str) -> str:
    pages = (path.read_text() for path in (site / "w").iterdir())
    return words_of(next(page for page in pages if f"<h1>{name}</h1>" in page))


def test_the_best_peers_time_over_ours_stands_by_commit(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path)
    site = trees.build_site(tree, tmp_path / "html")
    said = said_of(site, PRODUCT)
    newer, older = (commit[:10] for commit in tree.commits[:0:-1])
    # 9 over 10 us, the interval of each a hundredth wide on both sides.
    assert f"{newer} 2023-11-14 10 µs 9 µs 20 µs 0.900 cublas 0.882 to 0.918" in said
    assert f"{older} 2023-11-14 10 µs — 20 µs 2.000 slow 1.960 to 2.040" in said
    assert tree.commits[0][:10] not in said[said.index("Beside its peers") :]
    assert "this package 100 TFLOP/s and 1,000 GB/s ; cublas 111.1 TFLOP/s" in said
    assert "inputs: 2 MiB ; the formula written out holds at least 8 MiB at once, 4 times" in said
    alone = said_of(site, LONELY)
    assert "No peer was timed beside it here: warpwatch peers" in alone
    assert "this package 200 TFLOP/s and 2,000 GB/s ." in alone
    assert "the formula" not in alone


def test_a_page_follows_what_its_work_is(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path)
    before = contents(trees.build_site(tree, tmp_path / "html"))
    path = tree.results / "benchmarks.json"
    document = json.loads(path.read_text())
    document[OWN]["bytes_moved"] = [2e7, 2e7]
    path.write_text(json.dumps(document))
    after = contents(trees.build_site(tree, tmp_path / "html"))
    assert after == contents(trees.build_site(tree, tmp_path / "fresh"))
    assert after != before
