"""Which findings of the history made two commits differ, and who accepted them."""

from __future__ import annotations

from dataclasses import replace

from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import judge
from warpwatch.judge.model.core import SeriesKey
from warpwatch.judge.results.history import History

from .commits import WORSE, Compared, subject
from .run_verdict import PREDICTED


def with_findings(history: History, base: str, newer: str, compared: Compared) -> Compared:
    """The same comparisons; what got worse names the finding of the history that holds it, and who
    accepted that."""
    if compared.exit_code != 1:
        return compared
    holding = _findings_of(history, base, newer)
    acceptances = triage.holding()
    of_call: dict[str, list[str]] = {}
    for one in compared.comparisons:
        if one.series.meaning.instrument == "compiled":
            of_call.setdefault(subject(one.series), []).extend(holding.get(one.series.key, []))
    comparisons = []
    for one in compared.comparisons:
        names = holding.get(one.series.key, []) if one.verdict in WORSE else []
        if one.series.meaning.metric == PREDICTED and one.verdict in WORSE:
            names = list(dict.fromkeys(of_call[subject(one.series)]))
        # A series with another finding in the range, that nobody accepted, stays a regression.
        accepted = all(name in acceptances for name in names)
        word = triage.word(acceptances[names[0]]) if names and accepted else ""
        comparisons.append(replace(one, findings=tuple(names), accepted=word))
    return replace(compared, comparisons=tuple(comparisons))


def _findings_of(history: History, base: str, newer: str) -> dict[SeriesKey, list[str]]:
    """By series, the findings between the two commits that made it worse."""
    judgement = judge(history)
    positions = history.positions
    found: dict[SeriesKey, list[str]] = {}
    for finding in judgement.findings:
        if judgement.status(finding) == "improved":
            continue
        for change in finding.changes:
            if positions[base] < positions[change.first_commit] <= positions[newer]:
                found.setdefault(change.series, []).append(finding.identity)
    return found
