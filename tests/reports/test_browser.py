"""The site as a reader's browser sees it, opened from files, with the network cut."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.__main__ import main
from tests.reports import keeping, trees
from tests.reports.chromium import Browser, installed

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


def build(tree: trees.Tree, out: Path) -> Path:
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    assert main(["build", *arguments]) == 0
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with every kind of page: exact and noisy, worse and better, lost and gained."""
    root = tmp_path_factory.mktemp("site")
    tree = trees.make_repository(root, 30)
    workloads, targets = ["matmul-fp16-64", "attention-fp16-64"], ["sm_90", "gfx942"]
    exact = {"instrument": "compiled", "exact": True}
    names = ("workload", "target")
    for metric, unit, better in (
        ("launches", "count", "lower"),
        ("spilled_bytes", "bytes", "lower"),
        ("bound_utilization", "%", "higher"),
    ):
        tree.add_benchmark(
            f"compiled.track_{metric}",
            [workloads, targets],
            param_names=names,
            unit=unit,
            better=better,
            metric=metric,
            **exact,
        )
    tree.add_benchmark(
        "compiled.track_bound_us",
        [workloads, targets],
        param_names=names,
        unit="us",
        better="lower",
        metric="bound_us",
        flops=[1e9, 2e9],
        bytes_moved=[1e7, 1e6],
        peaks={"sm_90": [989.4, 989.4], "gfx942": [1307.4, 653.7]},
        bandwidths={"sm_90": 4800, "gfx942": 5300},
        devices={"sm_90": "NVIDIA H200", "gfx942": "AMD MI300X"},
        **exact,
    )
    tree.add_benchmark("bench.time_it", [["1", "2"]])
    tree.write_benchmarks()
    tree.write_machine("rig", gpu="H200")
    rng = np.random.default_rng(3)
    for commit in range(30):
        worse = commit >= 12
        tree.write_result(
            commit,
            {
                "compiled.track_launches": [1, 1, 3 if commit >= 20 else 1, 1],
                "compiled.track_spilled_bytes": [128 * worse, 0, None if commit == 15 else 0, 0],
                "compiled.track_bound_utilization": [40.0 - 5 * worse, 55.5, 70.0, 99.0],
                "compiled.track_bound_us": [3.0 + worse, 2.5, 4.0, 5.0],
                "bench.time_it": [
                    float((1.3 if worse else 1.0) * np.exp(rng.normal(0, 0.01))),
                    float(np.exp(rng.normal(0, 0.01))),
                ],
            },
            environment="env-triton3.7.1",
            intervals=0.01,
            machine_fields={"triton": "3.7.1"},
            cells=lambda name, values: (
                {"samples": [v and [v, 1.01 * v] for v in values]}
                if name.startswith("bench")
                else {}
            ),
        )
    for commit in (11, 12):
        code = "  HGMMA R0\n" if commit < 12 else 300 * "  HMMA R0\n"
        place = ("matmul-fp16-64", "sm_90")
        keeping.write_compiled(tree.results, tree.commits[commit], "3.7.1", {place: [code]})
    return build(tree, root / "html")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the results shipped with the project."""
    site = tmp_path_factory.mktemp("published") / "html"
    assert main(["build", "--results", "reports/published", "--out", str(site)]) == 0
    return site


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
    series = next(path for path in (site / "s").iterdir() if "HURT" in path.read_text())
    static = series.read_text()
    assert '<svg class="history"' in static
    assert "Newest values" in static


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.skipif(AXE is None, reason="axe is not there: make setup-tools")
def test_axe_finds_nothing_serious(
    browser: Browser, site: Path, published: Path, dark: bool
) -> None:
    assert AXE is not None
    checker = AXE.read_text()
    # Pages that look different where kernels were measured.
    kernels = [published / "index.html", *(max((published / f).iterdir()) for f in "fw")]
    browser.view(dark=dark)
    for page in [*one_of_each(site), *kernels]:
        browser.open(page.as_uri())
        browser.run("document.querySelectorAll('details').forEach(e => (e.open = true))")
        browser.call("Runtime.evaluate", expression=checker)
        found: list[dict[str, Any]] = browser.run("axe.run().then((r) => r.violations)")
        serious = [
            (v["id"], v["nodes"][0]["html"][:200])
            for v in found
            if v["impact"] in ("serious", "critical")
        ]
        assert serious == [], page


def test_nothing_is_cut_off_on_a_narrow_screen(browser: Browser, site: Path) -> None:
    browser.view(width=400)
    for page in one_of_each(site):
        browser.open(page.as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= 400, page
    browser.view()


@pytest.mark.parametrize("width", [400, 1280])
def test_every_word_of_a_picture_can_be_read(browser: Browser, published: Path, width: int) -> None:
    browser.view(width=width)
    for page in one_of_each(published):
        browser.open(page.as_uri())
        heights = browser.run(
            "[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height)"
        )
        assert min(heights, default=12) >= 11, page
        # Findings, changes, the newest commits and the dots: read without scrolling sideways.
        shown = "table.cards, .newest > svg, svg.roofline a"
        edges = "(e => e.getBoundingClientRect().right)"
        wide = browser.run(f"[...document.querySelectorAll('{shown}')].map({edges})")
        assert max(wide, default=0) <= width, page
    browser.view()


def test_the_chart_is_driven_by_keys_and_remembers_the_commit(browser: Browser, site: Path) -> None:
    page = next(path for path in (site / "s").iterdir() if "bench.time_it" in path.read_text())
    browser.view()
    browser.open(page.as_uri())
    browser.run("document.querySelector('svg.history').focus()")
    for key in ("End", "ArrowLeft"):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    says = "document.querySelector('.readout').textContent.includes('Change number 28')"
    browser.until(says)
    browser.until("/^#s[0-9a-f]+&c=[0-9a-f]{12}$/.test(location.hash)")
    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.until(says)
    assert browser.run("scrollY") > 0  # the section of that chart


def search(browser: Browser, text: str) -> None:
    browser.run(
        f"((e) => {{ e.value = {text!r}; e.dispatchEvent(new Event('input')); }})"
        "(document.getElementById('find'))"
    )


def test_search_finds_series_and_commits(browser: Browser, site: Path) -> None:
    browser.view()
    browser.open((site / "index.html").as_uri())
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
    assert browser.run("document.activeElement.id") == "find"
    shown = "document.getElementById('found').textContent"
    for text, expected in (("spilled gfx942", "spilled_bytes of"), ("number 7", "Change number 7")):
        search(browser, text)
        browser.until(f"{shown}.includes({expected!r})")
    # The address finds the same again, also in another browser.
    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.until(f"{shown}.includes('Change number 7')")
    search(browser, "no such thing")
    browser.until(f"{shown} === 'nothing found'")
    browser.open("about:blank")
    browser.open(address.partition("#")[0] + "#q=%E0%A4%A")
    assert browser.seen.console == []


def test_paper_is_light_and_shows_what_is_folded(browser: Browser, published: Path) -> None:
    browser.view(dark=True)
    browser.open((published / "index.html").as_uri())
    light = "getComputedStyle(document.body).color === 'rgb(27, 31, 36)'"
    assert not browser.run(light)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
    assert browser.run(light)
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.run("document.querySelector('details').open = false")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 1
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.view()


def test_two_commits_are_compared_as_they_were_judged(browser: Browser, site: Path) -> None:
    browser.view()
    browser.open((site / "compare.html").as_uri())
    commits = browser.run("[...base.options].map(o => o.value)")
    browser.run(
        f"(base.value={commits[-1]!r}, head.value={commits[0]!r},"
        " base.dispatchEvent(new Event('input', {bubbles: true})))"
    )
    browser.until("document.querySelectorAll('#compared tbody tr').length === 5")
    rows = browser.run(
        "[...document.querySelectorAll('#compared tbody tr')].map(r=>r.children[0].textContent+"
        "' '+r.children[1].textContent)"
    )
    assert sorted(rows) == sorted(
        [
            "▼ regressed launches of attention-fp16-64 @ sm_90",
            "▼ regressed spilled_bytes of matmul-fp16-64 @ sm_90",
            "▼ regressed bound_us of matmul-fp16-64 @ sm_90",
            "▼ regressed bound_utilization of matmul-fp16-64 @ sm_90",
            "▼ regressed bench.time_it (1)",
        ]
    )


def test_what_one_commit_alone_has_is_counted_and_not_listed(
    browser: Browser, tmp_path: Path
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2], "spilled_bytes": [0, 0]})
    tree.write_result(0, {"compiled.Attention.track_spilled_bytes": [0.0]})
    browser.view()
    browser.open((build(tree, tmp_path / "html") / "compare.html").as_uri())
    browser.until("document.querySelector('#compared .lead') !== null")
    said = browser.run("document.querySelector('#compared .lead').textContent")
    assert said == "1 unchanged, 1 measured at one of the two alone"
    assert browser.run("document.querySelectorAll('#compared tbody tr').length") == 0
    browser.run(
        "(narrow.value='launches', narrow.dispatchEvent(new Event('input', {bubbles: true})))"
    )
    browser.until("document.querySelectorAll('#compared tbody tr').length === 1")


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
    site = build(tree, tmp_path / "html")
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
    search(browser, "script")
    browser.until("document.querySelectorAll('#found li').length > 1")
    assert browser.run("window.pwned") is None


def milliseconds(browser: Browser, page: Path) -> float:
    """From navigation to interactive, scripts run; the quickest of three, for busy machines."""
    times = []
    for _ in range(3):
        browser.open("about:blank")
        browser.open(page.as_uri())
        times.append(
            browser.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        )
    return float(min(times))


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
    site = build(tree, tmp_path / "html")
    browser.view()
    long = next(p for p in (site / "s").iterdir() if "bench.time_long" in p.read_text())
    assert milliseconds(browser, site / "index.html") <= 1000
    assert milliseconds(browser, long) <= 300
    assert (
        browser.run("document.querySelector('svg.live path.line').getAttribute('d').length") > 9999
    )
    scripts = sum(path.stat().st_size for path in site.glob("*.js"))
    assert scripts <= 100_000
    shutil.rmtree(site)


def test_the_page_data_is_no_markup(site: Path) -> None:
    for page in (site / "s").iterdir():
        blocks = re.findall(r'type="application/json"[^>]*>(.*?)</script>', page.read_text())
        assert all("<" not in block for block in blocks)
        shared, *each = map(json.loads, blocks)
        assert shared["at"]
        assert len(each) == page.read_text().count("<figure")
        assert all(one["v"] for one in each)


def test_cold_and_warm_cycles_and_time_stand_side_by_side_and_share_a_cursor(
    browser: Browser, published: Path
) -> None:
    page = next(p for p in (published / "w").iterdir() if "H32-D128" in p.read_text())
    browser.view(width=1280)
    browser.open(page.as_uri())
    titles = browser.run(
        "[...document.querySelectorAll('.together figcaption')].map(e=>e.textContent)"
    )
    assert titles == [
        f"{metric}, h200" for metric in ("latency_cold", "latency_warm", "sm_cycles", "tensor_pipe")
    ]
    tops = browser.run(
        "[...document.querySelectorAll('.together figure')].map(e=>e.getBoundingClientRect().top)"
    )
    assert tops[0] == tops[1] < tops[2] == tops[3]
    browser.run("document.querySelector('.together svg.history').focus()")
    for key in ("End", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    shown = "[...document.querySelectorAll('.together .readout a')].map(e=>e.textContent)"
    browser.until(f"{shown}.length === 4 && new Set({shown}).size === 1")
    # Nothing that a chart says lies outside of it or on another word.
    cut = browser.run(
        "[...document.querySelectorAll('svg.live')].flatMap(svg => {"
        "const box = svg.getBoundingClientRect();"
        "const words = [...svg.querySelectorAll('text')].map(e => e.getBoundingClientRect());"
        "return words.filter((a, i) => a.left < box.left - 1 || a.right > box.right + 1 ||"
        "words.some((b, k) => k > i && a.left < b.right && b.left < a.right &&"
        "a.top + 3 < b.bottom && b.top + 3 < a.bottom)).length})"
    )
    assert cut == [0, 0, 0, 0]


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
        set(subprocess.run([*log, *path], capture_output=True, text=True).stdout.split())
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
