"""What pages say of the published results is what lies there."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


def said_in(page: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / page).read_text())


def test_the_published_commits_are_as_many_as_the_pages_say() -> None:
    commits = {path.name[:8] for path in (PUBLISHED / "h200").glob("*-kernels-*.json")}
    # Those of the history before this one came without evidence.
    ours = {path.name[4:12] for path in (PUBLISHED / "evidence").glob("gpu-*.json.gz")}
    assert ours < commits
    count, before = in_words(len(ours)), in_words(len(commits - ours))
    table = f"| {count} of this repository, and {before} of a history before it"
    assert table in said_in("reports/published/README.md")


def test_every_finding_for_the_worse_is_acted_on_or_accepted_by_somebody(published: Path) -> None:
    findings = json.loads((published / "regressions.json").read_text())["findings"]
    accepted = {one.finding: one for one in triage.load(ROOT / "reports/triage.toml")}
    still = {one["id"] for one in findings if one["status"] == "open"}
    assert still <= set(accepted)
    # An acceptance of what is no longer open only hides a later one.
    assert set(accepted) <= still
    assert all(one.reason and "maintainer" in one.owner for one in accepted.values())
