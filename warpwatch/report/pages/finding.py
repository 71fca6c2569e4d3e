"""The page of a finding: what changed, since when, why, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from warpwatch.judge.model import names
from warpwatch.judge.model.core import Finding
from warpwatch.judge.results.history import Table
from warpwatch.judge.results.result_file import ABSENT
from warpwatch.judge.series.changes import ends
from warpwatch.report import sentences, words
from warpwatch.report.charts.data import inline
from warpwatch.report.charts.series import chart_of, title_of
from warpwatch.report.charts.svg import EMPTY
from warpwatch.report.rendering import render
from warpwatch.report.source_changes import source_changes
from warpwatch.report.view import View

from . import change_groups, evidence_blocks, machine_code
from .series import data_of

_SHOWN_COMMITS = 100
_READ_COMMITS = 10  # whose whole source is read where nobody says which folder is measured
_NOTABLE = 0.03


def samples_part(view: View, finding: Finding) -> str:
    """What a finding's page shows of samples before and after; empty where there are none."""
    found = evidence_blocks.samples(view.judgement, finding)
    return render("samples.html", samples=found) if found else ""


def range_part(view: View, finding: Finding, url: str, sourced: bool) -> str:
    """The commits that may hold the cause; with what they changed, where it is ``sourced``."""
    ordered = finding.suspects or finding.commits[::-1]
    commits = [view.commit(name) for name in ordered]
    shown = commits[:_SHOWN_COMMITS]
    sources = view.info(finding.changes[0].series).meaning.sources
    read = ordered[: _SHOWN_COMMITS if sources else _READ_COMMITS]
    patches = source_changes(view.repo if sourced else None, read, sources)
    return render(
        "range.html",
        root="../",
        url=url,
        finding=finding,
        commits=shown,
        more_commits=len(commits) - len(shown),
        patches={one.commit: one for one in patches},
        sources=sources,
        measured=view.measured,
    )


def finding_page(
    view: View,
    finding: Finding,
    evidence: Sequence[dict[str, Any]],
    common: dict[str, Any],
    parts: Sequence[str],
) -> str:
    """``evidence`` are its ``other_metrics``, ``parts`` its ``samples_part`` and ``range_part``."""
    judgement = view.judgement
    first = finding.changes[0]
    table, row = judgement.places[first.series]
    changes = judgement.by_series[first.series]
    alike, single = change_groups.differences(evidence)
    return render(
        "finding.html",
        **common,
        root="../",
        title=view.headline(finding),
        finding=finding,
        moved=sentences.moved(view, finding),
        certainty=sentences.certainty(finding),
        stake=sentences.stake(view, finding),
        chart=EMPTY if view.detail.scripted else chart_of(table, row, changes, view.detail.drawn),
        data=inline(data_of(view, table, row)),
        samples=Markup(parts[0]),
        range=Markup(parts[1]),
        status=judgement.status(finding),
        accepted=view.acceptances.get(finding.identity),
        listed=len(evidence),
        parts=change_groups.parts_of(view, finding.changes),
        ends=ends(table, row, first),
        alike=alike,
        single=single,
        code=machine_code.code_changes(judgement, finding),
        notes=evidence_blocks.notes(judgement, finding),
        on_card=evidence_blocks.measured_on_a_card(judgement, finding),
        cards=evidence_blocks.cards(judgement, finding),
        environments=evidence_blocks.environments(judgement, finding),
        toolchain=evidence_blocks.toolchain(judgement, finding),
        refused=judgement.evidence.rejected,
        reproduce=_reproduce(view, finding),
        commands=_commands(view, finding),
    )


def other_metrics(view: View, finding: Finding) -> list[dict[str, Any]]:
    """Every other metric of the finding's workloads that differs between the two commits."""
    judgement = view.judgement
    shown, seen = [], {change.series for change in finding.changes}
    for change in finding.changes[:20]:
        info = judgement.info(change.series)
        sides = ends(*judgement.places[change.series], change)
        for table, row in judgement.workloads[info.workload]:
            other = table.series[row]
            # A measured series has no target: every one its workload is compiled for explains it.
            if other.key in seen or (info.target and other.target != info.target):
                continue
            seen.add(other.key)
            pair = [_value_at(table, row, commit) for commit in sides]
            if pair[0] is None or pair[1] is None or pair[0] == pair[1]:
                continue
            if not other.meaning.exact and not _differs(pair[0], pair[1]):
                continue
            metric = other.meaning.metric
            before, after = (words.quantity(value, other.meaning.unit) for value in pair)
            shown.append(
                {
                    "key": other.key,
                    "metric": metric or title_of(other),
                    "place": " @ ".join(filter(None, (metric and other.workload, other.target))),
                    "home": names.home(other.key),
                    "before": before,
                    "after": after,
                }
            )
            if len(shown) == view.detail.listed:
                return shown
    return shown


def _differs(before: float, after: float) -> bool:
    """Whether noisy values lie further apart than noise mostly carries them."""
    return abs(after - before) > _NOTABLE * max(abs(before), abs(after))


def _value_at(table: Table, row: int, commit: str) -> float | None:
    column = table.column_of(commit)
    value = ABSENT if column is None else float(table.values[row, column])
    return value if np.isfinite(value) else None


def _reproduce(view: View, finding: Finding) -> list[tuple[str, str]]:
    """One line that makes the change again, and one that shows it without a GPU."""
    base, newer = _pair(view, finding)
    info = view.info(finding.changes[0].series)
    recorded = f"warpwatch compare --recorded {base} {newer}"
    if not info.meaning.instrument:
        pattern = info.key.benchmark.replace(".", r"\.")
        return [
            (
                "measure both commits",
                _asv(view, "continuous", f"--bench '^{pattern}' {base} {newer}"),
            ),
            ("measure nothing: judge the stored results again", recorded),
        ]
    name = shlex.quote(info.workload)
    if finding.kind == "other space":
        return [
            ("list what differs", f"warpwatch inspect --diff {base} {newer} {name}"),
            ("time both on a GPU", f"warpwatch compare {base} {newer} --workload {name}"),
        ]
    return [
        (
            "measure both commits interleaved, on a GPU where it was measured on one",
            f"warpwatch compare {base} {newer} --workload {name}",
        ),
        (
            "without a GPU: compile both, and show how the machine code differs",
            f"warpwatch inspect {name} --diff {base} {newer} --code",
        ),
        ("without a GPU, without compiling: judge the stored results again", recorded),
    ]


def _pair(view: View, finding: Finding) -> tuple[str, str]:
    """The commits before and after the largest change, as one types them."""
    first = finding.changes[0]
    base, newer = ends(*view.judgement.places[first.series], first)
    return base[:10], newer[:10]


def _commands(view: View, finding: Finding) -> list[tuple[str, str]]:
    """What to type next; our own tools where the series are of our instruments."""
    first = finding.changes[0]
    base, newer = _pair(view, finding)
    pattern = first.series.benchmark.replace(".", r"\.")
    search = _asv(view, "find", f"{base}..{newer} '^{pattern}'")
    if view.info(first.series).meaning.instrument:
        search = f"warpwatch bisect {finding.identity}"
    # Another search space is no step that could be searched for.
    found = [] if finding.kind == "other space" else [("find the commit", search)]
    found.append(
        (
            "measure every commit of the range, for the history",
            _asv(view, "run", f"--skip-existing --bench '^{pattern}' {base}..{newer}"),
        )
    )
    found.append(
        (
            "accept it: an owner, a reason and an expiry, in git",
            f'warpwatch accept {finding.identity} --owner NAME --reason "..."',
        )
    )
    return found


def _asv(view: View, command: str, rest: str) -> str:
    """A command of asv, told where its configuration is where it would not find it."""
    return " ".join(("asv", command, *map(shlex.quote, view.asv_options), rest))
