"""What speaks against a measured time: on the page of its series, its machine's and the index."""

from __future__ import annotations

from pathlib import Path

from tests.reports import keeping, trees
from tests.reports.test_index import words_of
from tests.reports.test_kept import contents

WORKLOAD = "attention-small"
SAID = {
    "notes": ["two modes, <b>9</b> and 12 us"],
    "unstable": True,
    "timed_out": False,
    "throttled": "",
    "set_apart": [{"us": 9.0}],
    "interval_us": [103.0, 105.5],
}


def gpu_tree(root: Path) -> trees.Tree:
    tree = trees.make_repository(root, 3)
    shared = {"param_names": ["workload"], "instrument": "latency"}
    for metric, unit in (("latency_cold", "us"), ("peak_share", "%")):
        name = f"gpu.track_{metric}"
        tree.add_benchmark(name, [[WORKLOAD]], metric=metric, unit=unit, **shared)
    tree.add_benchmark("gpu.track_spills", [[WORKLOAD]], param_names=["workload"], metric="spills")
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(3):
        names = ("gpu.track_latency_cold", "gpu.track_peak_share", "gpu.track_spills")
        tree.write_result(commit, {name: [104.0 if commit else None] for name in names})
    return tree


def page_of(site: Path, title: str) -> str:
    pages = (path.read_text() for path in (site / "s").iterdir())
    return next(page for page in pages if f"<title>{title} of {WORKLOAD}</title>" in page)


def test_what_speaks_against_a_time_stands_beside_it(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path)
    keeping.write_card(tree.results, tree.commits[2], WORKLOAD, 1.0, 1.0, **SAID)
    site = trees.build_site(tree, tmp_path / "html")
    against = (
        "unstable: two modes, &lt;b&gt;9&lt;/b&gt; and 12 us; known to ±1.20 %; "
        "1 of 10 samples set apart"
    )
    for metric in ("latency_cold", "peak_share"):  # one is derived from the other
        page = page_of(site, metric)
        values = words_of(page[page.index("Newest values") :])
        assert f"what speaks against it {tree.commits[2][:10]}" in values
        assert against in page and "<b>9" not in page
        assert "104 µs not kept" in values or "104 % not kept" in values
        assert values.count("not kept") == 1  # a value that is not there needs nothing against it
    assert "speaks against it" not in page_of(site, "spills")
    machine = next((site / "m").iterdir()).read_text()
    table = words_of(machine[machine.index("How sure its times are") :])
    assert (
        f"utilization by {tree.commits[2][:10]} 2023-11-14 1 1 1 0 1 0 not kept Of the cold"
        in table
    )
    assert f"latency_cold of {WORKLOAD} {against}" in words_of(machine)
    index = words_of((site / "index.html").read_text())
    assert f"1 unstable, 1 known to worse than 0.4 %, of 1 at {tree.commits[2][:10]}" in index


def test_evidence_of_another_run_speaks_against_nothing(tmp_path: Path) -> None:
    """Two machines share a results folder, which has one file for a commit."""
    tree = gpu_tree(tmp_path)
    samples = [{"us": 50.0 + i} for i in range(9)]
    keeping.write_card(
        tree.results, tree.commits[2], WORKLOAD, 1.0, 1.0, **{**SAID, "samples": samples}
    )
    site = trees.build_site(tree, tmp_path / "html")
    pages = [path.read_text() for folder in "sm" for path in (site / folder).iterdir()]
    assert not [page for page in pages if "two modes, &lt;b" in page]
    assert "times in doubt" not in (site / "index.html").read_text()


def test_pages_follow_what_is_kept_beside_the_results(tmp_path: Path) -> None:
    tree = gpu_tree(tmp_path)
    sites = []
    for said in ({}, SAID, {**SAID, "unstable": 7}):
        keeping.write_card(tree.results, tree.commits[2], WORKLOAD, 1.0, 1.0, **said)
        sites.append(contents(trees.build_site(tree, tmp_path / "html")))
        assert sites[-1] == contents(trees.build_site(tree, tmp_path / f"fresh{len(sites)}"))
    clean, unstable, refused = sites
    assert clean != unstable != refused
    notice = "unstable: expected true or false, got 7"
    indexes = [words_of(site["index.html"].decode()) for site in sites]
    assert [notice in index for index in indexes] == [False, False, True]
    assert ["times in doubt" in index for index in indexes] == [True, True, False]
