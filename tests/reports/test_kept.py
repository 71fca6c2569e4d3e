"""What is taken over from the site before: nothing that changed, and nothing less than it can."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports import keeping, trees
from warpwatch.judge.results import history
from warpwatch.report.charts import series
from warpwatch.report.pages import finding, workload_grid

COMMITS, STEP, LATE = 16, 9, 5
SITE = "html"


def samples_of(_: str, values: list[float | None]) -> dict[str, Any]:
    return {"samples": [[(v or 0.0) * factor for factor in (0.98, 1.0, 1.03)] for v in values]}


def write(tree: trees.Tree, commit: int, machine: str, factor: float = 1.0) -> Path:
    """A time with a step on every machine, and an exact count that changes with it."""
    noise = [factor * (1 + 0.004 * math.sin(12.9 * commit + 7 * number)) for number in range(2)]
    noise[0] *= 1.6 if commit >= STEP else 1.0
    values: dict[str, list[float | None]] = {
        "bench.time_it": [*noise],
        "bench.track_size": [1.0 if commit < STEP else 3.0],
    }
    return tree.write_result(commit, values, machine=machine, cells=samples_of)


@pytest.fixture
def tree(tmp_path: Path) -> trees.Tree:
    made = trees.make_repository(tmp_path, COMMITS)
    made.add_benchmark(
        "bench.time_it",
        [["one", "two"]],
        param_names=["workload"],
        metric="latency_cold",
        instrument="latency",
        sources="bench",
    )
    made.add_benchmark("bench.track_size", unit="bytes", exact=True)
    made.write_benchmarks()
    for machine in ("rig", "other"):
        made.write_machine(machine)
        for commit in range(COMMITS - 1):
            if commit != LATE:
                write(made, commit, machine)
    trees.build_site(made, tmp_path / SITE)
    return made


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def first_after(tree: trees.Tree, machine: str = "rig") -> Path:
    return next((tree.results / machine).glob(f"{tree.commits[STEP][:8]}-*.json"))


def other_samples(tree: trees.Tree) -> None:
    """The value stays, what it was made from does not."""
    samples = [[0.2, 0.7, 2.2], [0.1]]
    for machine in ("rig", "other"):
        path = first_after(tree, machine)
        edit(path, lambda d: d["results"]["bench.time_it"].__setitem__(11, samples))


def other_package(tree: trees.Tree) -> None:
    for machine in ("rig", "other"):
        edit(first_after(tree, machine), lambda d: d["env_vars"].update(THREADS="7"))


def other_unit(tree: trees.Tree) -> None:
    edit(tree.results / "benchmarks.json", lambda d: d["bench.track_size"].update(unit="levels"))


def one_more(tree: trees.Tree) -> None:
    write(tree, COMMITS - 1, "other")


def one_less(tree: trees.Tree) -> None:
    first_after(tree, "other").unlink()


def new_machine(tree: trees.Tree) -> None:
    tree.write_machine("third")
    write(tree, STEP, "third")


def recovered(tree: trees.Tree) -> None:
    write(tree, COMMITS - 1, "rig", 1 / 1.6)


def older_value(tree: trees.Tree) -> None:
    write(tree, 3, "other", 1.02)


def older_commit(tree: trees.Tree) -> None:
    """Of one series alone: all others lie elsewhere among the commits now."""
    tree.write_result(LATE, {"bench.track_size": [1.0]}, machine="other")


def one_more_series(tree: trees.Tree) -> None:
    """The lines of the others are as long as the table's commits."""
    tree.write_result(COMMITS - 1, {"bench.track_size": [3.0]}, machine="other")


@pytest.mark.parametrize(
    "change",
    [other_samples, other_package, other_unit, one_more, one_less, new_machine, recovered,
     older_value, older_commit, one_more_series],
)  # fmt: skip
def test_a_site_that_was_built_on_is_that_of_a_cold_build(
    tree: trees.Tree, tmp_path: Path, change: Callable[[trees.Tree], None]
) -> None:
    before = contents(tmp_path / SITE)
    change(tree)
    after = contents(trees.build_site(tree, tmp_path / SITE))
    assert after == contents(trees.build_site(tree, tmp_path / "fresh"))
    assert after != before


@pytest.mark.parametrize(
    "change", [other_unit, one_more, one_less, recovered, older_value, older_commit]
)
def test_so_is_a_large_one_whose_charts_the_script_draws(
    tree: trees.Tree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[trees.Tree], None],
) -> None:
    monkeypatch.setattr(series, "_MANY_POINTS", 0)
    site = trees.build_site(tree, tmp_path / "large")
    before, places = contents(site), inodes(site)
    change(tree)
    after = contents(trees.build_site(tree, site))
    assert after == contents(trees.build_site(tree, tmp_path / "fresh"))
    # A point that changes no word of a page is drawn from its data, and the page stays.
    pages = [name for name in before if name.startswith("s/") and before[name] == after.get(name)]
    assert [name for name in pages if inodes(site)[name] == places[name]] == pages
    if change is one_more:
        grown = [
            name for name in before if name.startswith("data/h") and before[name] != after[name]
        ]
        assert len(grown) == 3
        assert len(pages) == len([name for name in before if name.startswith("s/")]) == 6


def test_a_new_point_leaves_the_rows_of_a_large_report_as_they_are(
    tree: trees.Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of commits, findings and workloads name the series that got one."""
    newest: dict[str, list[float | None]] = {"bench.time_it": [1.6, 1.0]}
    tree.write_result(COMMITS - 1, newest, machine="other", cells=samples_of)
    monkeypatch.setattr(series, "_MANY_POINTS", 0)
    site = trees.build_site(tree, tmp_path / "large")
    before, places = contents(site), inodes(site)
    rows = [
        name
        for name in before
        if name[:2] in ("c/", "f/", "w/") and b'class="spark"' in before[name]
    ]
    assert {name[0] for name in rows} == {"c", "f", "w"}
    newest["bench.track_size"] = [3.0]
    tree.write_result(COMMITS - 1, newest, machine="other", cells=samples_of)
    after = contents(trees.build_site(tree, site))
    assert after == contents(trees.build_site(tree, tmp_path / "fresh"))
    assert [name for name in rows if inodes(site)[name] == places[name]] == rows
    grown = {name for name in before if before[name] != after[name]} - {"index.html"}
    assert all(name.startswith(("data/", "m/")) for name in grown)
    assert any(name.startswith("data/h") for name in grown)


def inodes(site: Path) -> dict[str, int]:
    return {str(path.relative_to(site)): path.stat().st_ino for path in site.rglob("*")}


def test_a_finding_follows_what_is_kept_beside_the_results(
    tree: trees.Tree, tmp_path: Path
) -> None:
    sites = []
    for mhz in (1500.0, 1700.0):
        for commit in (STEP - 1, STEP):
            keeping.write_card(tree.results, tree.commits[commit], "one", mhz, 500.0)
        sites.append(contents(trees.build_site(tree, tmp_path / SITE)))
    assert sites[1] == contents(trees.build_site(tree, tmp_path / "fresh"))
    assert sites[0] != sites[1]


def test_a_page_keeps_the_tables_of_machines_without_news(
    tree: trees.Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def grid(view: Any, home: tuple[str, str], members: Any) -> Any:
        drawn.append(home[0])
        return original(view, home, members)

    original = workload_grid.workload_grid
    monkeypatch.setattr(workload_grid, "workload_grid", grid)
    places = {path: path.stat().st_ino for path in (tmp_path / SITE / "c").iterdir()}
    suspected = {path for path in places if "range holds this commit" in path.read_text()}
    one_more(tree)
    trees.build_site(tree, tmp_path / SITE)
    assert drawn == ["other"] * 3  # of three workloads
    # Of the old ones, that with a new neighbour, those with a chart, which grew, and those
    # in a range, which shrank.
    news = {path for path, place in places.items() if path.stat().st_ino != place}
    changed = {path for path in places if 'class="spark' in path.read_text()}
    assert news == changed | suspected | {
        tmp_path / SITE / f"c/{tree.commits[COMMITS - 2][:12]}.html"
    }
    assert len(news) < 5


def test_a_finding_keeps_samples_and_sources_when_a_point_is_added(
    tree: trees.Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_more(tree)  # of `other`: its change is the smaller one now, so `rig` shows its samples
    trees.build_site(tree, tmp_path / SITE)
    opened, asked = [], []

    def read(path: Path, *what: Any) -> tuple[float, ...]:
        opened.append(path.name)
        return original(path, *what)

    def ask(*what: Any) -> Any:
        asked.append(what)
        return sources(*what)

    original, sources = history.read_samples, finding.source_changes
    monkeypatch.setattr(history, "read_samples", read)
    monkeypatch.setattr(finding, "source_changes", ask)
    pages = {page: page.read_text() for page in (tmp_path / SITE / "f").iterdir()}
    write(tree, COMMITS - 1, "other", 1.001)
    trees.build_site(tree, tmp_path / SITE)
    assert opened == []
    drawn = [page for page, before in pages.items() if page.read_text() != before]
    assert len(asked) == sum(in_range(page.read_text()) != in_range(pages[page]) for page in drawn)
    assert len(asked) < len(drawn)
    asked.clear()
    assert any("Before and after" in page.read_text() for page in drawn)
    other_samples(tree)
    trees.build_site(tree, tmp_path / SITE)
    assert opened and not asked
    trees.git(tree.repo, "tag", "v1.0", tree.commits[STEP])  # a page names it with the commit
    trees.build_site(tree, tmp_path / SITE)
    assert asked


def in_range(page: str) -> str:
    """What a finding's page says of the commits that may hold its cause."""
    return page.partition("Commits in range")[2].partition("<h2>")[0]


def contents(site: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(site)): path.read_bytes()
        for path in sorted(site.rglob("*"))
        if path.is_file() and path.name != ".warpwatch-site"
    }


def test_a_tag_is_shown_with_its_commit_once_there_is_one(tree: trees.Tree, tmp_path: Path) -> None:
    page = tmp_path / SITE / "c" / f"{tree.commits[STEP][:12]}.html"
    before = page.read_text("utf-8")
    trees.git(tree.repo, "tag", "v1.0", tree.commits[STEP])
    trees.git(
        tree.repo,
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.invalid",
        "tag",
        "--annotate",
        "--message=<b>",
        "<b>v1",
        tree.commits[STEP],
    )
    trees.build_site(tree, tmp_path / SITE)
    (heading,) = [line for line in page.read_text("utf-8").splitlines() if "<h1>" in line]
    (plain,) = [line for line in before.splitlines() if "<h1>" in line]
    assert heading == plain.replace("</span> ", "</span> &lt;b&gt;v1: v1.0: ")
