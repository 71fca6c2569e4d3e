"""Holds what the report found against what was planted, commit by commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .story import Commit, Planted


@dataclass(frozen=True)
class Row:
    """One commit: what was planted, what was found, and what is wrong about it (empty: nothing)."""

    commit: str
    subject: str
    planted: str
    found: str
    targets: tuple[str, ...]
    cause: str
    mistakes: tuple[str, ...]


def judge(commits: Mapping[str, Commit], regressions: Mapping[str, Any]) -> list[Row]:
    """One row a commit, oldest first. A finding at a commit that is not in the history is a
    mistake of a row of its own."""
    by_commit: dict[str, list[Mapping[str, Any]]] = {name: [] for name in commits}
    for finding in regressions["findings"]:
        first = finding["changes"][0]["first_commit"]
        by_commit.setdefault(first, []).append(finding)
    return [_row(name, commits.get(name), findings) for name, findings in by_commit.items()]


def _row(name: str, commit: Commit | None, findings: list[Mapping[str, Any]]) -> Row:
    planted = commit.planted if commit else None
    mistakes: list[str] = []
    if planted is None:
        mistakes += [
            f"false alarm: {one['verdict']}, {_cause(one)}: {_changes(one)}" for one in findings
        ]
    else:
        fitting = [one for one in findings if one["verdict"] == planted.verdict]
        others = [
            one
            for one in findings
            if one["verdict"] != planted.verdict and not _follows(one, planted)
        ]
        mistakes += [f"also {one['verdict']}: {_changes(one)}" for one in others]
        if not fitting:
            mistakes.append(f"not found: {planted.verdict} {planted.workload} {planted.metric}")
        for one in fitting:
            mistakes += _mistakes(one, commit)
    targets = sorted({_text(c["target"]) for one in findings for c in one["changes"]})
    return Row(
        commit=name,
        subject=commit.subject if commit else "",
        planted=f"{planted.verdict} {planted.workload} {planted.metric}" if planted else "",
        found=" ".join(one["verdict"] for one in findings),
        targets=tuple(targets),
        cause="; ".join(filter(None, map(_cause, findings))),
        mistakes=tuple(mistakes),
    )


def _mistakes(finding: Mapping[str, Any], commit: Commit | None) -> list[str]:
    planted = commit.planted if commit else None
    assert planted is not None
    mistakes = []
    strangers = {_text(c["workload"]) for c in finding["changes"]} - {planted.workload}
    if strangers:
        mistakes.append(f"also blames {', '.join(sorted(strangers))}: {_changes(finding)}")
    found = {(c["metric"], c["target"]) for c in finding["changes"] if not _ended(c, planted)}
    mistakes += [f"not found: {metric} {on}" for metric, on in sorted(planted.places - found)]
    mistakes += [f"not planted: {metric} {on}" for metric, on in sorted(found - planted.places)]
    if planted.cause not in _cause(finding):
        mistakes.append(f"cause: expected {planted.cause!r}, found {_cause(finding)!r}")
    named = {target for reason in finding["reasons"] for target in _targets(_text(reason))}
    if named != {target for _, target in planted.places}:
        mistakes.append(f"its reasons name {' '.join(sorted(named)) or 'no target'}")
    if list(finding["commits"])[-1:] != [finding["changes"][0]["first_commit"]]:
        mistakes.append(f"commits: {finding['commits']}")
    if len(finding["commits"]) != 1:
        mistakes.append(f"blames {len(finding['commits'])} commits instead of one")
    return mistakes


def _ended(change: Mapping[str, Any], planted: Planted) -> bool:
    """Whether this only says that what no longer compiles has no other values either."""
    failed = planted.changed.get("compile_failures", ())
    return change["kind"] == "lost" and change["target"] in failed


def _follows(finding: Mapping[str, Any], planted: Planted) -> bool:
    """Whether a finding of its own says just that, of nothing else."""
    return all(c["workload"] == planted.workload and _ended(c, planted) for c in finding["changes"])


def _targets(reason: str) -> list[str]:
    """The targets a reason names: "..., attention on gfx942; also attention on sm_80, sm_90"."""
    places = (part.rpartition(" on ")[2] for part in reason.split("; also "))
    return [target for place in places for target in place.split(", ")]


def _cause(finding: Mapping[str, Any]) -> str:
    """The likeliest reason the report gives: it lists them from cause to effect."""
    return _text(finding["reasons"][0]) if finding["reasons"] else ""


def _changes(finding: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{c['workload']} {c['target']} {c['metric']} {c['before']} -> {c['after']}"
        for c in finding["changes"]
    )


def _text(value: object) -> str:
    return str(value)
