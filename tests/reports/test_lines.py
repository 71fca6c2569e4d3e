"""Lines in rows of a large report: the script draws those that the site draws of a smaller one."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.chromium import Browser, installed
from tests.reports.test_browser import AXE, HOSTILE, serious
from warpwatch.report.charts import series

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(installed() is None, reason="no Chromium: install one to run browser tests"),
]

KINDS = ("noisy", "gaps", "fails", "levels", "short", HOSTILE[0])
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def history_of(root: Path, commits: int) -> trees.Tree:
    """Times and exact counts, with steps, gaps and failures; every second commit measures all."""
    tree = trees.make_repository(root, commits)
    tree.add_benchmark("bench.time_it", [KINDS])
    tree.add_benchmark("bench.track_it", [KINDS], unit="count", exact=True)
    tree.add_benchmark("bench.time_often")
    tree.write_benchmarks()
    tree.write_machine("rig")
    noise = random.Random(5)
    for commit in range(commits):
        late = commit >= commits // 2
        values: dict[str, list[float | None]] = {"bench.time_often": [noise.lognormvariate(0, 0.1)]}
        if commit % 2 == 0:
            times = [noise.lognormvariate(late, 0.01) for _ in KINDS]
            counts = [
                float(commit // 7 % 3),
                5.0 + late,
                1e15 + late,
                float(late),
                -2.5,
                8.0 + late,
            ]
            gone = {2: commit % 6 == 0, 4: commit < commits - 5, 1: commit % 8 == 0}
            values["bench.time_it"], values["bench.track_it"] = (
                [None if gone.get(i) else value for i, value in enumerate(of)]
                for of in (times, counts)
            )
        tree.write_result(commit, values)
    return tree


@pytest.mark.parametrize("commits", [24, 97], ids=["every-point", "buckets"])
def test_the_script_draws_the_line_that_python_draws(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    tree = history_of(tmp_path, commits)
    monkeypatch.setattr(series, "_MANY_POINTS", 0)
    large = trees.build_site(tree, tmp_path / "large")
    monkeypatch.setattr(series, "LEAN", replace(series.LEAN, scripted=False))
    drawn = trees.build_site(tree, tmp_path / "drawn")
    browser.view(height=20_000)
    exact = seen = 0
    for page in sorted(drawn.rglob("*.html")):
        if '<svg class="spark' not in page.read_text():
            continue
        lines, tables = [], []
        for site in (drawn, large):
            browser.open((site / page.relative_to(drawn)).as_uri())
            browser.run("document.querySelectorAll('details').forEach(e => (e.open = true))")
            browser.until("document.querySelectorAll('svg.spark:empty').length === 0")
            browser.until(
                "[...document.querySelectorAll('td[data-of] a')].every(e => e.textContent !== '…')"
            )
            assert browser.seen.console == []
            assert browser.run("window.pwned === undefined")
            tables.append(
                browser.run("[...document.querySelectorAll('table')].map(e => e.innerText)")
            )
            lines.append(
                browser.run("[...document.querySelectorAll('svg.spark')].map(e => e.outerHTML)")
            )
        assert tables[0] == tables[1]
        assert page.parent.name != "w" or not any("…" in text for text in tables[1])
        for by_python, by_script in zip(*lines, strict=True):
            same = re.sub(r' data-of="[0-9a-f#s]+"', "", by_script)
            # Scripts have values to four digits, which may lie on the other side of half a pixel.
            assert _NUMBER.sub("0", same) == _NUMBER.sub("0", by_python)
            places = zip(
                *(map(float, _NUMBER.findall(one)) for one in (same, by_python)), strict=True
            )
            assert max(abs(a - b) for a, b in places) <= 1
            exact += same == by_python
            seen += 1
        assert AXE is None or serious(browser) == [], page
        browser.view(width=400, height=20_000, dark=True)
        assert browser.run("document.documentElement.scrollWidth") <= 400, page
        browser.view(height=20_000)
    assert seen > 40
    assert exact >= (seen if commits < 40 else 0.9 * seen)


def test_a_line_is_drawn_when_it_comes_near(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of many rows loads the histories of those that are seen."""
    tree = trees.make_repository(tmp_path, 20)
    names = [f"bench_{number}.time_it" for number in range(80)]
    for name in names:
        tree.add_benchmark(name)
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(20):
        tree.write_result(
            commit,
            {name: [1.0 + (i + 1) * (commit >= 10)] for i, name in enumerate(names)},
        )
    monkeypatch.setattr(series, "_MANY_POINTS", 0)
    site = trees.build_site(tree, tmp_path / "large")
    browser.view(height=600)
    browser.open((site / f"c/{tree.commits[10][:12]}.html").as_uri())
    browser.until("document.querySelectorAll('svg.spark:not(:empty)').length > 0")
    browser.settle()
    left = "document.querySelectorAll('svg.spark:empty').length"
    before = browser.run(left)
    loaded = len([url for url in browser.seen.requests if "/data/h" in url])
    assert before >= 68  # those that are folded, at least
    assert 0 < loaded < 40
    browser.run("document.querySelectorAll('details').forEach(e => (e.open = true))")
    browser.settle()
    assert browser.run(left) > 40
    browser.run("scrollTo(0, document.documentElement.scrollHeight)")
    before = browser.run(left)
    browser.until(f"{left} < {before}")
    assert browser.seen.console == []
