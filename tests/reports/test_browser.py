"""The site as a reader's browser sees it, opened from files, with the network cut."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.reports import keeping, trees
from tests.reports.chromium import Browser, installed
from tools.docs import pictures
from warpwatch.report.charts import series

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(installed() is None, reason="no Chromium: install one to run browser tests"),
]

HOSTILE = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "<svg/onload=window.pwned=1>",
    "{{ 7*7 }}{% raw %}",
    "javascript:window.pwned=1",
    "]]><!--<b>",
    "\u202egnp.exe\u2028\u0000\ud800",
)
AXE = next(
    (
        path
        for path in (
            Path(os.environ.get("AXE_CORE", "none")),
            Path(".tools/node_modules/axe-core/axe.min.js"),
        )
        if path.is_file()
    ),
    None,
)


def one_of_each(site: Path) -> list[Path]:
    """A page of every kind, the largest of its folder."""
    pages = sorted(site.glob("*.html"))
    for folder in sorted(path for path in site.iterdir() if path.is_dir()):
        found = sorted(folder.glob("*.html"), key=lambda path: path.stat().st_size)
        pages += found[-1:]
    assert {page.parent.name for page in pages} == {site.name, "c", "f", "m", "r", "s", "w"}
    return pages


def test_no_page_loads_or_logs_anything_foreign(browser: Browser, site: Path) -> None:
    browser.view()
    for page in one_of_each(site):
        seen = browser.open(page.as_uri())
        assert seen.console == [], page
        assert all(url.startswith(site.as_uri()) for url in seen.requests), page


def test_pages_stand_without_scripts(browser: Browser, site: Path) -> None:
    browser.view(scripts=False)
    for page in one_of_each(site):
        seen = browser.open(page.as_uri())
        assert seen.console == []
    browser.view(scripts=True)
    series = next(path for path in (site / "s").iterdir() if "▼ regressed" in path.read_text())
    static = series.read_text()
    assert '<svg class="history"' in static
    assert "Newest values" in static


def test_the_script_draws_the_series_of_a_large_report(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = trees.make_repository(tmp_path, 60)
    tree.add_benchmark("bench.time_it", [[*HOSTILE[:3], "1"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    noise = random.Random(3)
    for commit in range(60):
        level = 1.0 if commit < 30 else 1.7
        values = [level * noise.lognormvariate(0, 0.01) for _ in range(4)]
        tree.write_result(commit, {"bench.time_it": values})
    small = trees.build_site(tree, tmp_path / "small")
    monkeypatch.setattr(series, "_MANY_POINTS", 0)
    large = trees.build_site(tree, tmp_path / "large")
    (page,) = (large / "s").iterdir()
    words = {
        "newest": "section > .lead b",
        "listed": "ul.columns span",
        "changes": "table.cards tr",
    }
    browser.view()
    shown = {}
    for site in (small, large):
        seen = browser.open((site / "s" / page.name).as_uri())
        drawn = "document.querySelectorAll('figure svg.live path.line').length"
        browser.until(f"{drawn} === 4")
        assert seen.console == []
        assert AXE is None or serious(browser) == []
        assert all(url.startswith(site.as_uri()) for url in seen.requests)
        assert browser.run("window.pwned === undefined")
        shown[site] = {
            name: browser.run(f"[...document.querySelectorAll('{of}')].map(e => e.textContent)")
            for name, of in words.items()
        }
        said = browser.run("[...document.querySelectorAll('p')].map(e => e.textContent)")
        assert sum(text.startswith("Noise: ") for text in said) == 4
    assert shown[large] == {**shown[small], "listed": shown[small]["newest"]}
    assert len(shown[large]["changes"]) == 2 * 4
    assert all(text.endswith(" s") for text in shown[large]["newest"])
    assert page.stat().st_size < 0.7 * (small / "s" / page.name).stat().st_size
    browser.view(width=400)
    browser.open(page.as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= 400
    browser.view(scripts=False)
    browser.open(page.as_uri())
    assert "script draws the charts" in browser.run("document.body.innerText")
    browser.view(scripts=True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.skipif(AXE is None, reason="axe is not there: make setup-tools")
def test_axe_finds_nothing_serious(
    browser: Browser, site: Path, published: Path, dark: bool
) -> None:
    # Pages that look different where kernels were measured.
    kernels = [published / "index.html", *(max((published / f).iterdir()) for f in "fmrw")]
    browser.view(dark=dark)
    for page in [*one_of_each(site), *kernels]:
        browser.open(page.as_uri())
        assert serious(browser) == [], page


def serious(browser: Browser) -> list[tuple[str, str]]:
    """What axe finds on the open page, with all that is folded unfolded."""
    assert AXE is not None
    browser.run("document.querySelectorAll('details').forEach(e => (e.open = true))")
    browser.call("Runtime.evaluate", expression=AXE.read_text())
    found: list[dict[str, Any]] = browser.run("axe.run().then((r) => r.violations)")
    return [
        (v["id"], v["nodes"][0]["html"][:200])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


LABELLED = """
[...document.querySelectorAll('svg.history')].every((svg) =>
  [...svg.querySelectorAll('text')].some((e) => /^[0-9a-f]{8}\\b/.test(e.textContent)))
"""
# Of each chart the words of one line that stand less than a letter apart.
TOUCHING = """
[...document.querySelectorAll('svg.history')].flatMap((svg) => {
  const words = [...svg.querySelectorAll('text')];
  const places = words.map((e) => [e.textContent, e.getBoundingClientRect()]);
  return places.flatMap(([one, a]) => places
    .filter(([, b]) => b.y === a.y && b.left > a.left && b.left < a.right + 6)
    .map(([other]) => [one, other]));
})
"""


@pytest.mark.parametrize("width", [340, 400])
def test_nothing_is_cut_off_on_a_narrow_screen(browser: Browser, site: Path, width: int) -> None:
    browser.view(width=width)
    for page in one_of_each(site):
        browser.open(page.as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= width, page
        browser.until(LABELLED)
        assert browser.run(TOUCHING) == [], page
    browser.view()


def test_long_names_are_broken_on_a_narrow_screen(browser: Browser, tmp_path: Path) -> None:
    name = "bench_array_coercion.ArrayCoercionSmall.time_" + "_".join(["every_kind"] * 6)
    tree = trees.make_repository(tmp_path, 12)
    tree.add_benchmark(name, [["array_of_" + "x" * 60, "2"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(12):
        # One gets worse, one fails.
        tree.write_result(commit, {name: [1.0 + (commit > 5), None if commit > 5 else 1.0]})
    site = trees.build_site(tree, tmp_path / "html")
    browser.view(width=400)
    for page in site.rglob("*.html"):
        browser.open(page.as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= 400, page
    browser.view()


@pytest.mark.parametrize("width", [400, 1280])
def test_every_word_of_a_picture_can_be_read(browser: Browser, published: Path, width: int) -> None:
    browser.view(width=width)
    for page in one_of_each(published):
        browser.open(page.as_uri())
        # A roofline's numbers are left out where there is no room for them.
        heights = browser.run(
            "[...document.querySelectorAll('svg text')].filter(e => e.getClientRects().length)"
            ".map(e => e.getBoundingClientRect().height)"
        )
        assert min(heights, default=12) >= 11, page
        # Findings, changes, the newest commits and the dots: read without scrolling sideways.
        shown = "table.cards, .newest > svg, svg.roofline a"
        edges = "(e => e.getBoundingClientRect().right)"
        wide = browser.run(f"[...document.querySelectorAll('{shown}')].map({edges})")
        assert max(wide, default=0) <= width, page
    browser.view()


def test_hostile_names_run_no_script(browser: Browser, tmp_path: Path) -> None:
    subjects = [text.replace("\0", "").replace("\ud800", "") for text in HOSTILE]
    tree = trees.make_repository(
        tmp_path, 10, subjects=subjects, author='"onload=pwned(1)&lt; <a@b.invalid>'
    )
    for text in HOSTILE:
        tree.add_benchmark(text, [[text, "2"]], param_names=(text,), unit=text, metric=text)
    tree.write_benchmarks()
    tree.write_machine("rig", **{"<b>field</b>": HOSTILE[0]})
    for commit in range(10):
        values: dict[str, list[float | None]] = {
            text: [1.0 if commit < 5 else 2.0, 1e300] for text in HOSTILE
        }
        tree.write_result(commit, values, environment="<script>window.pwned=1<_script>")
        line = f"{HOSTILE[1]}{commit}\n"
        code = {(text, "<b>"): [f"{HOSTILE[0]}\n{line}"] for text in HOSTILE}
        keeping.write_compiled(tree.results, tree.commits[commit], "3.7.1", code)
        keeping.write_card(tree.results, tree.commits[commit], HOSTILE[0], 1e300, -1e300)
    (tree.results / "rig" / "<img src=x onerror=window.pwned=1>.json").write_text("{")
    site = trees.build_site(tree, tmp_path / "html")
    assert any("Machine code" in page.read_text() for page in (site / "f").iterdir())
    browser.view()
    pages = [*site.glob("*.html"), *(sorted((site / f).glob("*.html"))[-3:] for f in "swcfm")]
    for page in pages:
        for one in page if isinstance(page, list) else [page]:
            browser.open(one.as_uri())
            assert browser.run("window.pwned") is None, one
            assert (
                browser.run("document.querySelectorAll('script:not([src]):not([type])').length")
                == 0
            )
            assert browser.run("document.images.length") == 0
    browser.open((site / "index.html").as_uri())
    browser.search("script")
    browser.until("document.querySelectorAll('#found li').length > 1")
    assert browser.run("window.pwned") is None


@pytest.mark.slow
def test_ten_thousand_series_and_five_thousand_points_open_at_once(
    browser: Browser, tmp_path: Path
) -> None:
    tree = trees.make_repository(tmp_path, 5000)
    names = [str(number) for number in range(100)]
    tree.add_benchmark("bench.time_many", [names, names])
    tree.add_benchmark("bench.time_long")
    tree.write_benchmarks()
    random.seed(1)
    for commit in range(5000):
        values: dict[str, list[float | None]] = {
            "bench.time_long": [random.lognormvariate(0, 0.01)]
        }
        if commit in (0, 4999):
            values["bench.time_many"] = [1.0 + i for i in range(10_000)]
        tree.write_result(commit, values)
    site = trees.build_site(tree, tmp_path / "html", code=3)
    browser.view()
    long = next(p for p in (site / "s").iterdir() if "bench.time_long" in p.read_text())
    assert browser.milliseconds(site / "index.html", most=1000) <= 1000
    assert browser.milliseconds(long, most=300) <= 300
    assert (
        browser.run("document.querySelector('svg.live path.line').getAttribute('d').length") > 9999
    )
    scripts = sum(path.stat().st_size for path in site.glob("*.js"))
    assert scripts <= 100_000
    shutil.rmtree(site)


def test_the_page_data_is_no_markup_and_holds_no_history_twice(site: Path) -> None:
    for page in (site / "s").iterdir():
        blocks = re.findall(r'type="application/json"[^>]*>(.*?)</script>', page.read_text())
        assert all("<" not in block for block in blocks)
        shared, *each = map(json.loads, blocks)
        assert len(each) == page.read_text().count("<figure")
        assert not any({"at", "v"} & one.keys() for one in (shared, *each))
        (script,) = re.findall(r'src="../(data/h[0-9a-f]+\.js)" defer', page.read_text())
        text = (site / script).read_text()
        histories = json.loads(text.partition(").")[2].partition("=")[2][:-2])["histories"]
        for one in each:
            page_id, _, anchor = one["of"].partition("#")
            at, values = histories[page_id]["series"][anchor]
            assert values
            assert at or histories[page_id]["at"]


def test_a_picture_is_taken_in_every_look_and_a_wide_page_is_named(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    pages = pictures.kinds(site)
    assert {"index", "finding", "series", "machine", "commit", "compare"} <= pages.keys()
    assert all((site / page.partition("#")[0]).is_file() for page in pages.values())
    taken = set()
    for name, look in pictures.LOOKS.items():
        path = tmp_path / f"{name}.png"
        assert pictures.taken(browser, site, pages["compare"], look, path) == []
        taken.add(path.read_bytes())
    assert len(taken) == len(pictures.LOOKS)
    (tmp_path / "wide.html").write_text('<p style="width: 900px">wide')
    said = pictures.taken(
        browser, tmp_path, "wide.html", pictures.LOOKS["narrow"], tmp_path / "wide.png"
    )
    assert len(said) == 1
    assert "dots wide where the screen has 400" in said[0]
    browser.view()


def test_the_published_history_is_worth_a_picture(browser: Browser, published: Path) -> None:
    """Index, finding and roofline of the results shipped with the project.

    ``WARPWATCH_PICTURES=docs/images`` writes the pictures the README shows.
    """
    site = published
    findings = json.loads((site / "regressions.json").read_text())["findings"]
    worst = next((f for f in findings if f["status"] == "open"), findings[0])
    # What the benchmarks say of their sources leaves commits out that cannot be the cause.
    log = ["git", "log", "--format=%H"]
    known, touching = (
        set(
            subprocess.run(
                [*log, *path], capture_output=True, text=True, timeout=120
            ).stdout.split()
        )
        for path in ((), ("--", "kernels"))
    )
    named = {commit for finding in findings for commit in finding["commits"]}
    assert named & known <= touching
    pages = {
        "index": site / "index.html",
        "finding": site / worst["page"],
        "roofline": min((site / "r").iterdir()),
    }
    wanted = os.environ.get("WARPWATCH_PICTURES")
    for name, page in pages.items():
        browser.view(width=1100, height=760)
        seen = browser.open(page.as_uri())
        assert seen.console == []
        assert browser.run("document.querySelector('svg') !== null"), page
        if wanted:
            Path(wanted).mkdir(parents=True, exist_ok=True)
            browser.screenshot(Path(wanted) / f"report-{name}.png")
