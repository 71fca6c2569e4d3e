"""What pages say of the published results is what lies there."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model.short_calls import CYCLES, TIME

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


def test_no_short_call_steps_where_its_kernel_did_not() -> None:
    """Times of these calls wander by up to 27 % at one clock."""
    judgement = judge_folders([PUBLISHED], ROOT)
    (table,) = judgement.history.tables
    roles = {
        (one.workload, one.meaning.metric): one.meaning.role
        for one in table.series
        if not one.target
    }
    short = {name for (name, metric), role in roles.items() if (metric, role) == (TIME, "evidence")}
    assert len(short) == 5  # of the set that is measured at every commit
    assert {roles[name, CYCLES] for name in short} == {"verdict"}
    for finding in judgement.findings:
        ours = [c for c in finding.changes if judgement.info(c.series).workload in short]
        moved: dict[str, set[str]] = {}
        for change in ours:
            info = judgement.info(change.series)
            moved.setdefault(info.workload, set()).add(info.meaning.metric)
        assert not any({TIME, "sm_cycles"} & metrics for metrics in moved.values())
        stepped = [name for name, metrics in moved.items() if CYCLES in metrics]
        # Its machine code changed between the two commits, one of which touches the kernels.
        for change in ours:
            info = judgement.info(change.series)
            if info.meaning.metric == CYCLES:
                sides = (change.last_good, change.first_commit)
                assert judgement.evidence.same_code(*sides, info.workload) is False, info.workload
        assert not stepped or set(finding.commits) <= judgement.history.touching["kernels"]
        assert not (stepped and judgement.status(finding) == "open")


def test_pages_of_short_calls_say_by_what_they_are_judged(published: Path) -> None:
    said = [page.read_text(encoding="utf-8") for page in (published / "s").glob("*.html")]
    short = [text for text in said if "calls below 20 us are judged by kernel_cycles" in text]
    titles = [re.findall(r"<h1>(\w+) of ", text)[0] for text in short]
    assert sorted(titles) == 5 * [TIME] + 5 * ["sm_cycles"]


def test_counters_are_of_the_method_that_the_evidence_names() -> None:
    """A commit that today's method did not measure has its times, and no counters in a series."""
    for path in sorted(PUBLISHED.glob("h200/*-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        kept = PUBLISHED / "evidence" / f"gpu-{result['commit_hash'][:12]}.json.gz"
        with gzip.open(kept, "rt", encoding="utf-8") as file:
            evidence = json.load(file)
        versions = {
            dict(zip(result["result_columns"], row, strict=False))["version"]
            for name, row in result["results"].items()
            if name.endswith("track_sm_cycles")
        }
        assert versions <= {evidence["methods"].get("cupti") or evidence["methods"]["ncu"]}
