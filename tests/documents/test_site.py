"""The site: its navigation follows the folders, its links hold, and it loads nothing from afar."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.root import ROOT
from tools import locks
from tools.docs.site import hooks

MKDOCS = ROOT / ".docs-tools" / "bin" / "python"


@dataclass
class File:
    src_uri: str


@dataclass
class Page:
    file: File
    markdown: str | None = None
    meta: dict[str, object] = field(default_factory=dict)


@dataclass
class Config:
    docs_dir: str
    site_dir: str = ""
    nav: object = None


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    pages = (
        *("index.md", "faq.md", "old.md", "guides/b.md", "guides/a.md", "tutorials/zebra.md"),
        *("tutorials/first-report.md", "kernels/hopper/forward.md", "kernels/index.md"),
        *("log/diary.md", "results/data/rows.json"),
    )
    for name in pages:
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# T\n")
    (tmp_path / "Makefile").write_text("")
    return tmp_path / "docs"


def test_the_navigation_follows_the_folders(docs: Path) -> None:
    config = Config(str(docs))
    hooks.on_config(config)
    assert config.nav == [
        {"Start here": "index.md"},
        {"Tutorials": ["tutorials/first-report.md", "tutorials/zebra.md"]},
        {"How-to guides": ["guides/a.md", "guides/b.md"]},
        {"Kernels": ["kernels/index.md", {"Hopper": ["kernels/hopper/forward.md"]}]},
        {"FAQ": "faq.md"},
    ]


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("guides/a.md", "[b](b.md#x) [u](https://u)", "[b](b.md#x) [u](https://u)"),
        ("guides/a.md", "[rules](../../Makefile)", "rules (`Makefile`)"),
        ("guides/a.md", "[gone](gone.md)", "[gone](gone.md)"),
        ("log/diary.md", "[gone](gone.md) [b](../guides/b.md)", "gone [b](../guides/b.md)"),
        ("guides/a.md", "```\n[rules](../../Makefile)\n```", "```\n[rules](../../Makefile)\n```"),
    ],
)
def test_links_that_leave_the_documents(
    docs: Path, page: str, text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    read = Page(File(page))
    assert hooks.on_page_markdown(text, read, Config(str(docs)), None) == expected
    assert ("search" in read.meta) == page.startswith("log/"), "the diary is not searched"


def test_in_a_workflow_they_lead_to_the_repository(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://host")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    text = hooks.on_page_markdown("[m](../Makefile)", Page(File("faq.md")), Config(str(docs)), None)
    assert text == "[m](https://host/o/r/blob/HEAD/Makefile)"


def test_a_page_that_reads_otherwise_than_on_github_is_a_warning(
    docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = Page(File("a.md"), "Words:\n- one\n- two\n")
    hooks.on_page_content("<p>Words: - one - two</p>", page, Config(str(docs)), None)
    assert "0 <li> on the site and 2 on GitHub" in caplog.text
    caplog.clear()
    hooks.on_page_content("<ul><li>one</li><li>two</li></ul>", page, Config(str(docs)), None)
    assert caplog.text == ""


def test_a_page_that_loads_from_elsewhere_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = tmp_path / "a.html"
    page.write_text('<a href="https://u">u</a><script src="a.js"></script>')
    hooks.on_post_build(Config("", str(tmp_path)))
    assert caplog.text == ""
    for bad in (
        '<script src="https://cdn/x.js">',
        '<link rel="stylesheet" href="//fonts/x.css">',
        '<img alt="" src="http://h/x.png">',
        "@import 'https://fonts/x.css';",
    ):
        page.write_text(bad)
        caplog.clear()
        hooks.on_post_build(Config("", str(tmp_path)))
        assert "loads from elsewhere" in caplog.text, bad


def test_packages_of_the_site_are_locked() -> None:
    folder = ROOT / "tools" / "docs" / "site"
    entries = [
        one
        for one in locks.split((folder / "requirements.txt").read_text(encoding="utf-8"))
        if not one.startswith("#")
    ]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", one) for one in entries)
    pins = {one.split()[0] for one in entries}
    wanted = (folder / "requirements.in").read_text(encoding="utf-8").splitlines()
    named = {re.sub(r"\[.*\]", "", line) for line in wanted if not line.startswith("#")}
    assert "mkdocs-material" in {one.partition("==")[0] for one in named} and named <= pins


@pytest.mark.tools
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if not MKDOCS.is_file():
        pytest.skip(f"{MKDOCS} is not there: make setup-tools")
    done = subprocess.run(
        [str(MKDOCS), "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())
    assert any("flash_attention" in one["text"] for one in index["docs"])
