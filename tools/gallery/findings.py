"""Joins the findings of a library's report with their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.gallery.labels import EVERY, Label
from tools.gallery.libraries import Library
from tools.histories.places import read
from warpwatch.judge.model import search_space
from warpwatch.judge.model.commits import tags_of

_MOST_METRICS = 3  # of a workload that a page shows
_PULL = re.compile(r"\(#(\d+)\)\s*$")


def document(site: Path, library: Library, source: Path) -> dict[str, Any]:
    """Read from a report what a page of the gallery shows.

    Args:
        site: The folder of the report.
        library: The library.
        source: Its clone, which knows the tags and the numbers of pull requests.

    Returns:
        Plain data for JSON: names of workloads, our figures, hashes and numbers.
    """
    report = json.loads((site / "regressions.json").read_text(encoding="utf-8"))
    tagged = tags_of(source, library.tags) if library.tags else {}
    tags = {commit: name for name, commit in tagged.items()}
    package = library.package
    newest_first = read(source, "rev-list", library.head).split()
    order = {commit: number for number, commit in enumerate(newest_first)}
    return {
        "head": library.head,
        "commits": report["commits_measured"],
        "workloads": len(package.calls),
        "targets": list(package.targets),
        "series": report["coverage"]["series"],
        "judged": report["coverage"]["judged"],
        "findings": sorted(
            (_finding(one, source, tags) for one in report["findings"]),
            key=lambda one: (order[one["seen"]], one["id"]),
        ),
    }


def _finding(found: Mapping[str, Any], source: Path, tags: Mapping[str, str]) -> dict[str, Any]:
    seen = found["changes"][0]["first_commit"]
    by_workload: dict[str, dict[str, list[str]]] = {}
    for change in found["changes"]:
        by_metric = by_workload.setdefault(change["workload"], {})
        by_metric.setdefault(change["metric"], []).append(_said(change))
    workloads = {
        name: [
            f"{metric} {', '.join(said)}" for metric, said in list(metrics.items())[:_MOST_METRICS]
        ]
        for name, metrics in by_workload.items()
    }
    subject = read(source, "log", "-1", "--format=%s", found["likeliest"]).strip()
    pull = _PULL.search(subject)
    return {
        "id": found["id"],
        "verdict": found["verdict"],
        "kind": found["kind"],
        "status": found["status"],
        "cause": found["cause"],
        "seen": seen,
        "tag": tags.get(seen, ""),
        "commits": [commit[:10] for commit in found["commits"]],
        "likeliest": found["likeliest"],
        "pull": int(pull[1]) if pull else 0,
        "workloads": workloads,
    }


def _said(change: Mapping[str, Any]) -> str:
    """Such as "5 -> 11 on sm_90"."""
    if change["metric"] == search_space.METRIC:  # its values are names, not numbers
        return f"is another on {change['target']}"
    before, after = (
        "none" if level is None else f"{level:,.4g}" if abs(level) < 1e4 else f"{level:,.0f}"
        for level in (change["before"], change["after"])
    )
    return f"{before} -> {after} on {change['target']}"


def rows_of(finding: Mapping[str, Any], rows: Sequence[Label]) -> list[Label] | None:
    """Find the labels of a finding.

    Args:
        finding: A finding of :func:`document`.
        rows: The labels of the library.

    Returns:
        Its rows; ``None`` where they leave out one of its workloads.
    """
    own = [one for one in rows if one.finding == finding["id"]]
    return own if own and not left_out(finding, own) else None


def left_out(finding: Mapping[str, Any], own: Sequence[Label]) -> list[str]:
    """The workloads of a finding that none of its rows speaks of."""
    covered = {name for row in own for name in row.names(finding["workloads"], own)}
    return [name for name in finding["workloads"] if name not in covered]


def unlabelled(found: Mapping[str, Any], rows: Sequence[Label]) -> list[str]:
    """List the findings that lack a label.

    Args:
        found: What :func:`document` read.
        rows: The labels of the library.

    Returns:
        A line for each such finding, with the workloads that no row speaks of.
    """
    lines = []
    for finding in found["findings"]:
        left = left_out(finding, [one for one in rows if one.finding == finding["id"]])
        if left:
            lines.append(f"{finding['id']} at {finding['seen'][:10]}: {' '.join(left)}")
    return lines


def astray(found: Mapping[str, Any], rows: Sequence[Label]) -> list[str]:
    """List the labels that speak of no finding of the report.

    Args:
        found: What :func:`document` read.
        rows: The labels of the library.

    Returns:
        A line for each label whose finding, workload or commit is not there.
    """
    findings = {one["id"]: one for one in found["findings"]}
    lines = []
    for row in rows:
        finding = findings.get(row.finding)
        if finding is None:
            lines.append(f"{row.finding}: the report has no such finding")
            continue
        for name in sorted(set(row.workloads) - set(finding["workloads"]) - {EVERY}):
            lines.append(f"{row.finding}: its changes are of no workload {name!r}")
        if row.cause and not any(one.startswith(row.commit[:8]) for one in finding["commits"]):
            lines.append(f"{row.finding}: its range holds no commit {row.commit}")
    return lines
