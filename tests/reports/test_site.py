"""The site on disk: complete, valid, linked, rebuilt only where something changed."""

from __future__ import annotations

import json
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import html5lib
import numpy as np
import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.judge.model import thresholds
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.results.store import code_version
from warpwatch.judge.series import incremental
from warpwatch.judge.series.changes import changes_of_rows
from warpwatch.report import builder, draw_all
from warpwatch.report.pages.series import series_page


def build(tree: trees.Tree, out: Path) -> int:
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    return main(["report", *arguments])


def noisy_tree(root: Path, *, series: int = 6, commits: int = 24) -> trees.Tree:
    """One noisy benchmark with a step in its first series, and one exact metric that changes."""
    tree = trees.make_repository(root, commits)
    tree.add_benchmark("bench.time_it", [[str(number) for number in range(series)]])
    tree.add_benchmark("bench.track_size", unit="bytes", exact=True)
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(commits - 1):
        write(tree, commit, series)
    return tree


def write(tree: trees.Tree, commit: int, series: int = 6) -> None:
    noise = [1 + 0.005 * math.sin(12.9 * commit + 7 * number) for number in range(series)]
    noise[0] *= 1.5 if commit >= 12 else 1.0
    tree.write_result(
        commit, {"bench.time_it": list(noise), "bench.track_size": [float(commit // 8)]}
    )


def contents(site: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(site)): path.read_bytes()
        for path in sorted(site.rglob("*"))
        if path.is_file() and path.name != ".warpwatch-site"
    }


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value for name, value in attrs if name in ("href", "src") and value]


def test_every_link_of_the_site_resolves(tmp_path: Path) -> None:
    assert build(noisy_tree(tmp_path), tmp_path / "html") == 0
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        links = Links()
        links.feed(page.read_text())
        for target in links.targets:
            path, _, anchor = target.partition("#")
            led_to = page.parent / path if path else page
            assert led_to.is_file(), (page, target)
            if anchor.startswith("s="):
                # Its anchors name series, as the script reads them.
                for name in anchor.removeprefix("s=").split(","):
                    series, _, section = name.partition(".")
                    shown = (tmp_path / f"html/s/{series}.html").read_text()
                    assert not section or f'id="{section}"' in shown, (page, target)
                continue
            if led_to.name == "compare.html" and ".." in anchor:
                # Two commits, as the script reads them.
                assert re.fullmatch(r"[0-9a-f]{12}\.\.[0-9a-f]{12}", anchor), (page, target)
                continue
            assert not anchor or f'id="{anchor}"' in led_to.read_text(), (page, target)


def test_every_page_is_valid_html(tmp_path: Path) -> None:
    build(noisy_tree(tmp_path), tmp_path / "html")
    for page in (tmp_path / "html").rglob("*.html"):
        text = page.read_text()
        html5lib.HTMLParser(strict=True).parse(text)
        identities = re.findall(r'\bid="([^"]*)"', text)
        assert len(identities) == len(set(identities))
        assert text.count("<h1") == 1
        assert "style=" not in text
        assert " on" not in re.sub(r">[^<]*<", "><", text).replace('" content="', "")


def test_a_second_build_has_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = noisy_tree(tmp_path)
    build(tree, tmp_path / "html")
    before = contents(tmp_path / "html")
    capsys.readouterr()
    assert build(tree, tmp_path / "html") == 0
    assert "nothing changed" in capsys.readouterr().err
    assert contents(tmp_path / "html") == before


def test_an_incremental_build_equals_a_fresh_one(tmp_path: Path) -> None:
    tree = noisy_tree(tmp_path)
    build(tree, tmp_path / "html")
    write(tree, 23)
    build(tree, tmp_path / "html")
    build(tree, tmp_path / "fresh")
    assert contents(tmp_path / "html") == contents(tmp_path / "fresh")


def test_a_series_without_news_is_taken_over(tmp_path: Path) -> None:
    tree = noisy_tree(tmp_path)
    tree.write_result(3, {"bench.track_size": [5.0]}, machine="other")
    build(tree, tmp_path / "html")
    before = {path.name: path.stat().st_ino for path in (tmp_path / "html/s").iterdir()}
    tree.write_result(3, {"bench.track_size": [7.0]}, machine="other")
    build(tree, tmp_path / "html")
    after = {path.name: path.stat().st_ino for path in (tmp_path / "html/s").iterdir()}
    assert sum(before[name] != after[name] for name in before) == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "gone"])
def test_a_broken_memory_is_no_obstacle(tmp_path: Path, damage: str) -> None:
    tree = noisy_tree(tmp_path)
    build(tree, tmp_path / "html")
    expected = contents(tmp_path / "html")
    for path in (tmp_path / ".html.cache").iterdir():
        data = path.read_bytes()
        {
            "cut": lambda p=path, d=data: p.write_bytes(d[: len(d) // 2]),
            "empty": lambda p=path: p.write_bytes(b""),
            "other": lambda p=path: p.write_bytes(b'{"code": 1, "content": [1]}'),
            "gone": lambda p=path: p.unlink(),
        }[damage]()
    (tmp_path / "html/.warpwatch-site").write_text("stale")
    assert build(tree, tmp_path / "html") == 0
    assert contents(tmp_path / "html") == expected


def test_a_site_drawn_by_several_processes_is_that_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = noisy_tree(tmp_path)
    sources = builder.Sources((tree.results,), tree.repo)
    with Workers(1) as alone:
        builder.build(sources, tmp_path / "one", workers=alone)
    monkeypatch.setattr(incremental, "_WORTH_ROWS", 0)
    monkeypatch.setattr(incremental, "_BATCH_ROWS", 2)
    monkeypatch.setattr(draw_all, "_WORTH_PAGES", 0)
    monkeypatch.setattr(draw_all, "_SERIES", 1)
    here = os.getpid()

    def elsewhere(function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*given: Any) -> Any:
            assert os.getpid() != here
            return function(*given)

        return checked

    monkeypatch.setattr(incremental, "changes_of_rows", elsewhere(changes_of_rows))
    monkeypatch.setattr(draw_all, "series_page", elsewhere(series_page))
    with Workers(2) as several:
        builder.build(sources, tmp_path / "two", workers=several)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_the_verdict_file_and_the_feed_say_the_same(tmp_path: Path) -> None:
    tree = noisy_tree(tmp_path)
    build(tree, tmp_path / "html")
    document = json.loads((tmp_path / "html/regressions.json").read_text())
    assert document["schema_version"] == 1
    worse = {
        change["first_commit"]
        for finding in document["findings"]
        for change in finding["changes"]
        if change["kind"] == "hurt"
    }
    assert worse == {tree.commits[8], tree.commits[12], tree.commits[16]}
    changes = [change for finding in document["findings"] for change in finding["changes"]]
    levels = {value for change in changes for value in (change["before"], change["after"]) if value}
    assert any(not level.is_integer() for level in levels)
    assert all(level == float(f"{level:.8g}") for level in levels if not level.is_integer())
    feed = ElementTree.parse(tmp_path / "html/feed.atom").getroot()
    space = {"a": "http://www.w3.org/2005/Atom"}
    assert 'type="application/atom+xml"' in (tmp_path / "html/index.html").read_text()
    entries = feed.findall("a:entry", space)
    assert len(entries) == len(document["findings"])
    for link in feed.findall(".//a:link", space):
        assert (tmp_path / "html" / link.attrib["href"]).is_file()


def test_a_regression_that_recovered_is_on_record_but_not_open(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 3, 1], "spilled_bytes": [0, 0, 8]})
    build(tree, tmp_path / "html")
    index = (tmp_path / "html/index.html").read_text()
    assert "1 finding to look at" in index
    assert index.index("Needs attention") < index.index("spilled_bytes of")
    assert index.index("Recovered") < index.index("launches of", index.index("Recovered"))


def test_results_without_a_single_value_are_not_a_clean_bill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.write_benchmarks()
    tree.write_machine("rig")
    (tree.results / "rig" / "x.json").write_text('{"version": 2')
    assert build(tree, tmp_path / "html") == 3
    assert "Nothing was measured" in (tmp_path / "html/index.html").read_text()
    assert "cut short" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert (
        main(["report", "--results", str(tmp_path / "absent"), "--out", str(tmp_path / "h")]) == 2
    )
    assert not (tmp_path / "h").exists()


def test_the_page_of_a_series_says_what_noise_it_has(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 60)
    tree.add_benchmark("bench.time_it", [["wandering", "quiet", "few"]])
    tree.add_benchmark("bench.track_size", exact=True)
    tree.write_benchmarks()
    random = np.random.default_rng(3)
    wander = np.cumsum(random.normal(0, 0.01, 60))
    for commit in range(60):
        quiet = float(np.exp(random.normal(0, 0.01)))
        tree.write_result(
            commit,
            {
                "bench.time_it": [
                    float(np.exp(wander[commit])),
                    quiet,
                    quiet if commit > 52 else math.nan,
                ],
                "bench.track_size": [1.0],
            },
        )
    build(tree, tmp_path / "html")
    pages = [page.read_text() for page in (tmp_path / "html/s").iterdir()]
    size, times = sorted(pages, key=lambda page: "<title>bench.time_it</title>" in page)
    assert "<title>bench.track_size</title>" in size
    assert "Noise: " not in size
    said = {
        name: re.findall(r"Noise: (.*)</p>", section)
        for name, section in re.findall(r"<h2>'?(\w+).*?</h2>(.*?)</section>", times, re.DOTALL)
    }
    assert said["wandering"][0].startswith("autocorrelated (neighbours are alike")
    assert said["wandering"][0].endswith("a gate compares pairs of neighbours.")
    assert said["quiet"][0].startswith("quiet (symmetric")
    assert said["few"][0].startswith("7 commits are too few")


def test_what_counts_is_part_of_what_a_build_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_version()
    assert code_version() == before
    read = Path.read_bytes
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: read(path) + b"#" * (path == thresholds.default_file()),
    )
    assert code_version() != before
