"""The judgement for machines: ``regressions.json`` and the Atom feed."""

from __future__ import annotations

import json
import math
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.findings.longer_times import LongerTime
from warpwatch.judge.model.core import Change, Finding
from warpwatch.judge.series.addresses import finding_path
from warpwatch.judge.series.changes import kind
from warpwatch.report.rendering import commit_path

SCHEMA_VERSION = 1
_FEED_ENTRIES = 50


def regressions(judgement: Judgement, times: Sequence[LongerTime]) -> str:
    """The document ``docs/reference/regressions-json.md`` describes; ``times`` are the predicted
    times that got longer and that no finding holds."""
    accepted = triage.holding()

    def written(finding: Finding) -> _Written:
        # Of one finding after another: changes as objects take far more memory than as text.
        word = triage.word(accepted.get(finding.identity))
        one = finding_document(judgement, finding, word)
        return _on_lines(one | {"changes": _listed(map(_compact, one["changes"]))})

    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "commits_measured": len(judgement.history.measured),
        "newest_commit": judgement.history.measured[-1].hash
        if judgement.history.measured
        else None,
        "findings": _listed(map(written, judgement.findings)),
        "longer_times": [_longer(one) for one in times],
        "coverage": {
            "series": judgement.coverage.series,
            "judged": judgement.coverage.judged,
            "not_judged": dict(judgement.coverage.reasons),
            "enough": judgement.coverage.enough,
        },
        "notices": list(judgement.history.notices),
    }
    return _on_lines(document)


class _Written(str):
    """JSON that is written already."""


def _on_lines(fields: Mapping[str, Any]) -> _Written:
    """An object with a field on each line, which is found by its line. Indented in full it would be
    a fifth larger, and take ten times as long."""
    lines = (f"{_compact(name)}: {_compact(value)}" for name, value in fields.items())
    return _Written("{\n" + ",\n".join(lines) + "\n}")


def _listed(written: Iterable[_Written]) -> _Written:
    return _Written("[\n" + ",\n".join(written) + "\n]")


def _compact(value: Any) -> _Written:
    if isinstance(value, _Written):
        return value
    return _Written(json.dumps(value, separators=(",", ":"), allow_nan=False))


def finding_document(judgement: Judgement, finding: Finding, accepted: str) -> dict[str, Any]:
    return {
        "id": finding.identity,
        "verdict": finding.verdict,
        "kind": finding.kind,
        "status": judgement.status(finding),
        "accepted": accepted,
        "commits": list(finding.commits),
        "likeliest": finding.likeliest,
        "range_confidence": finding.sure,
        "cost": finding.cost,
        "cause": finding.cause,
        "why": finding.why,
        "reasons": list(finding.reasons),
        "predicted": finding.predicted,
        "page": finding_path(finding.identity),
        "changes": [_change(judgement, change) for change in finding.changes],
    }


def _change(judgement: Judgement, change: Change) -> dict[str, Any]:
    info = judgement.info(change.series)
    return {
        "machine": info.key.machine,
        "environment": info.key.environment,
        "benchmark": info.key.benchmark,
        "params": list(info.key.params),
        "metric": info.meaning.metric,
        "workload": info.workload,
        "target": info.target,
        "unit": info.meaning.unit,
        "better": info.meaning.better,
        "verdict": change.verdict,
        "kind": kind(change),
        "before": _number(change.step.before),
        "after": _number(change.step.after),
        "last_good": change.last_good,
        "first_commit": change.first_commit,
        "confidence": _number(change.step.confidence),
        "page": judgement.addresses.of(change.series),
    }


def _longer(one: LongerTime) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "target": one.target,
        "base": one.base,
        "head": one.head,
        "before_us": _number(one.time.before),
        "after_us": _number(one.time.after),
        "least_ratio": _number(one.time.low),
        "most_ratio": _number(one.time.high),
        "stands": one.stands,
        "page": commit_path(one.head),
    }


def atom(
    judgement: Judgement,
    project: str,
    headline: Callable[[Finding], str],
    times: Sequence[LongerTime],
) -> bytes:
    """The newest findings, and predicted times that no finding holds, as an Atom feed; addresses
    are relative to the site."""
    name = _clean(project or "Warpwatch")
    feed = ElementTree.Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _text(feed, "title", f"{name}: performance findings")
    _text(feed, "id", f"tag:warpwatch,2025:{name}")
    measured = judgement.history.measured
    _text(feed, "updated", _moment(measured[-1].time_s if measured else 0))
    ElementTree.SubElement(feed, "link", href="index.html")
    author = ElementTree.SubElement(feed, "author")
    _text(author, "name", "Warpwatch")
    entries = [
        (
            one.since,
            f"{one.verdict}: {headline(one)}",
            f"finding:{one.identity}",
            finding_path(one.identity),
        )
        for one in judgement.findings
    ]
    for one in times:
        title = f"regressed: predicted time of {one.workload} on {one.target}"
        name = f"predicted:{one.head[:12]}:{one.workload}@{one.target}"
        entries.append((one.head, title, name, commit_path(one.head)))
    entries.sort(key=lambda entry: -judgement.history.positions[entry[0]])
    for since, title, name, page in entries[:_FEED_ENTRIES]:
        commit = judgement.commit(since)
        entry = ElementTree.SubElement(feed, "entry")
        _text(entry, "title", _clean(title))
        _text(entry, "id", f"tag:warpwatch,2025:{_clean(name)}")
        _text(entry, "updated", _moment(commit.time_s))
        ElementTree.SubElement(entry, "link", href=page)
        _text(entry, "summary", _clean(f"{commit.hash[:10]} {commit.subject} ({commit.author})"))
    document: bytes = ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)
    return document


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = text


def _moment(time_s: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))
    except (OverflowError, OSError, ValueError):
        return "1970-01-01T00:00:00Z"


def _clean(text: str) -> str:
    """Without the characters that no XML document may hold."""
    return "".join(c if c.isprintable() else " " for c in text)


def _number(value: float) -> float | None:
    """A value to eight digits, which is more than one is known to; whole numbers in full."""
    if not math.isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.8g}")
