"""What the pages do under a reader's hands: cursors, search, comparison, paper."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.chromium import Browser, installed
from tests.reports.test_browser import one_of_each

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(installed() is None, reason="no Chromium: install one to run browser tests"),
]


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


def test_search_finds_series_and_commits(browser: Browser, site: Path) -> None:
    browser.view()
    browser.open((site / "index.html").as_uri())
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
    assert browser.run("document.activeElement.id") == "find"
    shown = "document.getElementById('found').textContent"
    for text, expected in (("spilled gfx942", "spilled_bytes of"), ("number 7", "Change number 7")):
        browser.search(text)
        browser.until(f"{shown}.includes({expected!r})")
    # The address finds the same again, also in another browser.
    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.until(f"{shown}.includes('Change number 7')")
    browser.search("no such thing")
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
    folded = "document.querySelectorAll('details:not([open])').length"
    browser.run("document.querySelector('details').open = false")
    before = browser.run(folded)
    assert before >= 1
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folded) == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(folded) == before
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.view()


def test_paper_holds_the_whole_width_of_every_page(browser: Browser, published: Path) -> None:
    """What scrolls on a screen is cut off on paper: A4 without its margins."""
    browser.view(width=703)
    browser.call("Emulation.setEmulatedMedia", media="print")
    holders = "'.scroll, pre.commands, details.code pre, .sides, div.heat, div.heat .newest'"
    cut = (
        f"[...document.querySelectorAll({holders})].filter(e => e.checkVisibility() && "
        "e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 200))"
    )
    for page in one_of_each(published):
        browser.open(page.as_uri())
        browser.run("document.querySelectorAll('details').forEach(e => (e.open = true))")
        assert browser.run(cut) == [], page
        assert browser.run("document.documentElement.scrollWidth") <= 703, page
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.view()


def test_the_numbers_beside_a_chart_are_not_cut_off(browser: Browser, tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 6)
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(6):
        tree.write_result(commit, {"bench.time_it": [0.65 if commit < 3 else 0.5]})
    (page,) = (trees.build_site(tree, tmp_path / "html") / "s").iterdir()
    browser.view()
    browser.open(page.as_uri())
    lefts = browser.run(
        "[...document.querySelectorAll('svg.live text')].map(e => e.getBoundingClientRect().left"
        " - e.ownerSVGElement.getBoundingClientRect().left)"
    )
    assert len(lefts) >= 5
    assert min(lefts) >= 0


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


def test_nothing_is_listed_that_lies_across_a_change_of_platform(
    browser: Browser, tmp_path: Path
) -> None:
    tree = trees.make_repository(tmp_path, 12)
    tree.add_benchmark("bench.time_it", [["1", "2"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(12):
        field = {"cpu": "old" if commit < 6 else "new"}
        values = {"bench.time_it": [1.0 + 0.01 * (commit % 3), 2.0]}
        tree.write_result(commit, values, machine_fields=field)
    site = trees.build_site(tree, tmp_path / "html")
    browser.view()
    newest, oldest = tree.commits[-1][:12], tree.commits[0][:12]
    browser.open(f"{(site / 'compare.html').as_uri()}#{oldest}..{newest}")
    shown = "document.getElementById('compared').textContent"
    browser.until(f"{shown}.includes('2 inconclusive')")
    assert "the platform changed between the two" in browser.run(shown)
    assert browser.run("document.querySelectorAll('#compared tbody tr').length") == 0
    narrow = "document.getElementById('narrow')"
    browser.run(f"({narrow}.value='time_it', compare.dispatchEvent(new Event('input')))")
    browser.until("document.querySelectorAll('#compared tbody tr').length === 2")


def test_series_of_a_finding_are_overlaid_with_one_click(browser: Browser, site: Path) -> None:
    browser.view()
    browser.open((site / "overlay.html").as_uri())
    offered = "document.querySelectorAll('#ready a')"
    assert browser.run(f"{offered}.length") >= 2
    browser.run(f"{offered}[0].click()")
    browser.until("document.querySelectorAll('#drawn svg path[class^=o]').length >= 1")
    assert browser.run("document.getElementById('ready').hidden")
    browser.run("document.querySelectorAll('#chosen button').forEach(e => e.click())")
    browser.until("!document.getElementById('ready').hidden")


def test_commits_of_the_whole_history_are_compared_and_shared_by_address(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    """Where the values of few commits are kept one by one, those of older ones are the charts'."""
    older = tmp_path / "older"
    shutil.copytree(site, older)
    page = (older / "compare.html").read_text()
    hashes = re.findall(r'<option value="(\w{12})"', page)[:30]
    for name in hashes[4:]:
        page = re.sub(rf'<option value="{name}".*?</option>', "", page)
        (older / f"data/v{name}.js").unlink()
    (older / "compare.html").write_text(page.replace('data-kept="30"', 'data-kept="4"'))
    browser.view()
    for base, head in ((hashes[-1], hashes[0]), (hashes[-1], hashes[6])):
        tables = []
        for one in (site, older):
            browser.open("about:blank")
            browser.open(f"{(one / 'compare.html').as_uri()}#{base}..{head}")
            browser.until("document.querySelectorAll('#compared tbody tr').length === 5")
            tables.append(browser.run("document.getElementById('compared').textContent"))
        assert tables[0] == tables[1]
    assert browser.run("document.querySelectorAll('#base option').length") == 30
    assert browser.seen.console == []


def test_what_one_commit_alone_has_is_counted_and_not_listed(
    browser: Browser, tmp_path: Path
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2], "spilled_bytes": [0, 0]})
    tree.write_result(0, {"compiled.Attention.track_spilled_bytes": [0.0]})
    browser.view()
    browser.open((trees.build_site(tree, tmp_path / "html") / "compare.html").as_uri())
    browser.until("document.querySelector('#compared .lead') !== null")
    said = browser.run("document.querySelector('#compared .lead').textContent")
    assert said == "1 unchanged, 1 measured at one of the two alone"
    assert browser.run("document.querySelectorAll('#compared tbody tr').length") == 0
    browser.run(
        "(narrow.value='launches', narrow.dispatchEvent(new Event('input', {bubbles: true})))"
    )
    browser.until("document.querySelectorAll('#compared tbody tr').length === 1")


def test_evidence_that_changed_is_not_said_to_be_unchanged(
    browser: Browser, tmp_path: Path
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1], "registers": [32, 14]})
    tree.benchmarks["compiled.Attention.track_registers"] |= {"better": "", "role": "evidence"}
    tree.write_benchmarks()
    browser.view()
    browser.open((trees.build_site(tree, tmp_path / "html") / "compare.html").as_uri())
    browser.until("document.querySelector('#compared .lead') !== null")
    assert browser.run("document.querySelector('#compared .lead').textContent") == "1 unchanged"
    browser.run("(narrow.value='flash', narrow.dispatchEvent(new Event('input', {bubbles: true})))")
    browser.until("document.querySelectorAll('#compared tbody tr').length === 2")
    labels = browser.run("[...document.querySelectorAll('#compared b')].map(e => e.textContent)")
    assert sorted(labels) == ["· evidence: changed", "● unchanged"]


def test_cold_and_warm_cycles_and_time_stand_side_by_side_and_share_a_cursor(
    browser: Browser, published: Path
) -> None:
    title = "<title>attention-bf16-B2-S4096-H32-D128"
    page = next(p for p in (published / "w").iterdir() if title in p.read_text())
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


def test_series_lie_over_each_other_and_the_address_holds_them(
    browser: Browser, site: Path
) -> None:
    browser.view()
    browser.open((site / "overlay.html").as_uri())
    browser.until("!document.getElementById('overlay').hidden")
    for words in ("time_it (1)", "bound_us matmul sm_90"):
        browser.run(f"(add.value={words!r}, add.dispatchEvent(new Event('input')))")
        browser.until("document.querySelector('#offered button') !== null")
        browser.run("document.querySelector('#offered button').click()")
        browser.until("document.querySelector('#offered button') === null")
    browser.until("document.querySelectorAll('#chosen li').length === 2")
    middle = browser.run("index.options[12].value")
    browser.run(f"(index.value={middle!r}, index.dispatchEvent(new Event('input')))")
    browser.until("document.querySelectorAll('#drawn path[class^=o]').length === 2")
    browser.run("document.querySelector('#drawn svg').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    browser.until("document.querySelectorAll('#readout li').length === 2")
    browser.until(f"/^#s=[0-9a-f.s]+,[0-9a-f.s]+&i={middle}&c=[0-9a-f]{{12}}$/.test(location.hash)")
    said = browser.run("document.getElementById('readout').textContent")
    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.until(f"document.getElementById('readout').textContent === {said!r}")
    assert browser.seen.console == []
    # An address that names what is not there, or is none, draws nothing and says nothing.
    browser.open("about:blank")
    browser.open(address.partition("#")[0] + "#s=%E0%A4%A,0000&i=<b>")
    browser.until("!document.getElementById('overlay').hidden")
    assert browser.run("document.querySelectorAll('#drawn svg').length") == 0
    assert browser.seen.console == []
