"""What pages say of the published results is what lies there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from warpwatch.judge.findings import triage

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "reports/published"
ONES = (
    *("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    return "-".join(filter(None, (TENS[number // 10 - 2], ONES[number % 10])))


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def said_in(page: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / page).read_text())


def test_the_published_commits_are_as_many_as_the_pages_say() -> None:
    commits = {path.name[:8] for path in (PUBLISHED / "h200").glob("*-kernels-*.json")}
    kept = {path.name[4:12] for path in (PUBLISHED / "evidence").glob("gpu-*.json.gz")}
    assert kept == commits
    table = f"| {in_words(len(commits))}, each in this repository |"
    assert table in said_in("reports/published/README.md")


def test_no_page_refers_to_a_commit_that_is_not_in_the_clone(published: Path) -> None:
    """Where only a part of the history was fetched, nothing is known of the rest."""
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone: fetch the whole history to check it")
    known = {name[:12] for name in git("rev-list", "--all", "HEAD").split()}
    pages = {path.stem for path in (published / "c").glob("*.html")}
    findings = json.loads((published / "regressions.json").read_text())["findings"]
    named = {name[:12] for one in findings for name in one["commits"]}
    assert pages and named and pages | named <= known
    assert "Notices" not in (published / "index.html").read_text()


def test_every_finding_for_the_worse_is_acted_on_or_accepted_by_somebody(published: Path) -> None:
    findings = json.loads((published / "regressions.json").read_text())["findings"]
    accepted = {one.finding: one for one in triage.load(ROOT / "reports/triage.toml")}
    still = {one["id"] for one in findings if one["status"] == "open"}
    assert still <= set(accepted)
    # An acceptance of what is no longer open only hides a later one.
    assert set(accepted) <= still
    assert all(one.reason and "maintainer" in one.owner for one in accepted.values())
