"""Documents name what is there: links, headings, files, modules, and the released version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import warpwatch
from warpwatch.commands import COMMANDS, STEPS

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "docs" / "log"  # says what was, in the words of its day
PAGES = [
    *ROOT.glob("*.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if not page.is_relative_to(LOG)),
    ROOT / "reports" / "published" / "README.md",
]
# A changelog and a page about a move name what is gone.
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]
FOLDERS = "benchmarks|docker|docs|examples|kernels|reports|tests|tools|warpwatch"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]+[\w-]")
MODULE = re.compile(r"python -m ((?:benchmarks|examples|reports|tests|tools|warpwatch)[\w.]*)")
COMMAND = re.compile(
    r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S+/)?warpwatch ([a-z]+)(?: ([a-z]+)\b)?", re.M
)
NO_COMMANDS = {"cpu", "cuda"}  # checks on GitHub are called `warpwatch cpu`
MADE = ("reports/html",)  # by a command, ignored by git
LONGEST_RELEASE = 60


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one).strip().lower() for one in found]
    return {re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in plain}


def code_of(page: Path) -> Iterator[str]:
    """What stands between backticks, and in indented or fenced blocks."""
    text = text_of(page)
    yield from re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    yield from re.findall(r"^ {4}\S.*$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        at_heading = bool(anchor) and target.suffix == ".md"
        if not target.exists() or (at_heading and anchor not in headings(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", OF_TODAY, ids=title)
def test_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    wrong = []
    for code in code_of(page):
        wrong += [
            name
            for name in PATH.findall(code)
            if not (ROOT / name).exists() and not name.startswith(MADE)
        ]
        for name in MODULE.findall(code):
            path = ROOT / name.replace(".", "/")
            if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
                wrong.append(f"python -m {name}")
    assert wrong == []


@pytest.mark.parametrize("page", OF_TODAY, ids=title)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    named = {found for code in code_of(page) for found in COMMAND.findall(code)}
    assert {name for name, _ in named} <= {*COMMANDS, *NO_COMMANDS}
    assert {step for name, step in named if name == "ci" and step} <= set(STEPS)


def test_the_changelog_begins_with_this_version_and_keeps_releases_short() -> None:
    first, *releases = re.split(r"^## ", text_of(ROOT / "CHANGELOG.md"), flags=re.MULTILINE)
    assert first.startswith("# Changelog")
    released = [one for one in releases if not one.startswith("[Unreleased]")]
    assert released[0].startswith(f"[{warpwatch.__version__}] - ")
    lengths = {one.splitlines()[0]: len(one.splitlines()) for one in releases}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_RELEASE} == {}
