"""What a site has once: index, findings, machines, rooflines, comparison, and data for scripts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from warpwatch.judge.evidence.measured import AIMED_AT_PERCENT, Counted
from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.model.core import Commit, Finding
from warpwatch.judge.results.history import UNASKED, Table
from warpwatch.judge.results.result_file import ABSENT, FAILED, Floats
from warpwatch.judge.series.addresses import SeriesPage, history_file
from warpwatch.report import without_alarm, words
from warpwatch.report.atomic_site import FreshSite
from warpwatch.report.charts.roofline import MOST_NUMBERED, roofline_chart
from warpwatch.report.charts.roofs import ceilings_on, newest_measured, rooflines
from warpwatch.report.json_feed import atom, regressions
from warpwatch.report.rendering import HERE, machine_path, render, roofline_path
from warpwatch.report.reuse import Pages
from warpwatch.report.site_data import commits, script, search, values_at
from warpwatch.report.view import View, many

from . import sampling, standing, utilization
from .change_groups import folded
from .heat_map import heat_map

MOST_FINDING_PAGES = 400
_SHOWN_FINDINGS = 12
_READY_OVERLAYS, _MOST_OVERLAID = 8, 8


@dataclass(frozen=True, eq=False)
class Site:
    """All there is to draw."""

    view: View
    fresh: FreshSite
    project: str
    pages: Pages
    # Files of the evidence that were not taken, as far as it was read before pages are drawn.
    refused: tuple[str, ...] = ()

    @cached_property
    def common(self) -> dict[str, Any]:
        """What every template is told."""
        url = self.view.judgement.history.url
        return {"view": self.view, "project": self.project, "url": url, "scripts": True}

    @cached_property
    def findings(self) -> list[Finding]:
        view = self.view
        worse = (*view.attention, *view.failing, *view.older, *view.spaces)
        return [*worse, *view.accepted, *view.recovered, *view.other]

    @cached_property
    def histories(self) -> list[tuple[str, list[SeriesPage]]]:
        """Names of scripts, and the pages whose histories are in each."""
        found: dict[str, list[SeriesPage]] = {}
        for page in self.view.judgement.addresses.pages:
            found.setdefault(history_file(page.path), []).append(page)
        return sorted(found.items())


def _index(site: Site) -> None:
    view, judgement = site.view, site.view.judgement
    history = judgement.history
    listed = []
    for commit in reversed(history.measured):
        groups = view.groups(commit)
        moved = [
            (name, words.each_word(found), len(found)) for name, found in groups.items() if found
        ]
        times = len(view.longer_times.get(commit.hash, ()))
        listed.append((commit, moved, view.has_values(commit), times))
    page = render(
        "index.html",
        **site.common,
        root="",
        title=f"{site.project or 'Warpwatch'}: performance report",
        newest=history.measured[-1] if history.measured else None,
        measured=len(history.measured),
        series=len(judgement.places),
        attention=view.attention,
        rows=folded(view, view.attention),
        failing=view.failing,
        spaces=view.spaces,
        older=view.older,
        times=without_alarm.times(view, view.standing_times),
        other=view.other,
        accepted=view.accepted,
        recovered=view.recovered,
        shown=_SHOWN_FINDINGS,
        heat=heat_map(view),
        stand=standing.overview(view),
        bounds=utilization.compiled(view),
        machines=[
            _state(table, judgement) | {"sure": next(iter(sampling.counts(view, table)), None)}
            for table in history.tables
        ],
        measured_machines=any(table.machine for table in history.tables),
        aimed_at=AIMED_AT_PERCENT,
        workloads=sorted((name, len(found)) for name, found in judgement.workloads.items()),
        commits=listed,
        rooflines=[
            (roofline_path(r.name, r.home), r) for r in rooflines(history, judgement.evidence)
        ],
        notices=(*history.notices, *site.refused),
        unmeasured=view.unmeasured,
    )
    site.fresh.write("index.html", page)


def _findings(site: Site) -> None:
    view, left = site.view, MOST_FINDING_PAGES
    groups = []
    for name, heading, found in (
        ("open", "Needs attention", view.attention),
        ("failing", "Fails, or is gone", view.failing),
        ("spaces", "Other search spaces", view.spaces),
        ("older", "Older, and open still", view.older),
        ("accepted", "Accepted", view.accepted),
        ("recovered", "Recovered", view.recovered),
        ("improved", "Improved", view.other),
    ):
        if found[:left]:
            groups.append((name, heading, found[:left]))
            left -= len(groups[-1][2])
    page = render(
        "findings.html",
        **site.common,
        root="",
        title=many(len(site.findings), "finding"),
        groups=groups,
        rows=folded(view, view.attention[:MOST_FINDING_PAGES]),
        left=max(len(site.findings) - MOST_FINDING_PAGES, 0),
    )
    site.fresh.write("findings.html", page)


def _machines(site: Site) -> None:
    view = site.view
    for table in view.judgement.history.tables:
        state = _state(table, view.judgement)
        changed = np.flatnonzero(np.diff(table.platforms)) + 1
        starts = [0, *changed.tolist()]
        standings = standing.of(view, table)
        page = render(
            "machine.html",
            **site.common,
            root="../",
            title=f"{table.machine or 'Compiled, no machine'} / {table.environment}",
            table=table,
            behind=state["behind"],
            standings=standings,
            kernels=standing.by_kernel(standings),
            folded=len(standings) > standing.MOST_LISTED,
            timed=any(one.timed for one in standings),
            utilization=utilization.machine(view, table),
            fields=_fields(table),
            platforms=[
                (table.commits[c], table.platform_names[table.platforms[c]]) for c in starts
            ],
            counted=_counted(table, view.judgement),
            ceilings=ceilings_on(table, view.judgement.evidence),
            sure=sampling.counts(view, table),
            aimed_at=AIMED_AT_PERCENT,
            missing=[table.series[row] for row in state["rows"]],
            unasked=int((table.methods[:, -1] == UNASKED).sum()),
            workloads=sorted(Counter(info.workload for info in table.series).items())[:500],
        )
        site.fresh.write(machine_path(table.machine, table.environment), page)


# Of memory: 4 GB in bytes, and more than a machine has in KiB.
_BYTES_FROM = 4e9


def _fields(table: Table) -> list[tuple[str, str]]:
    """What asv says of a machine. It writes the version of the file's form among it, and memory in
    bytes, which older releases of it wrote in KiB."""
    fields = {name: said for name, said in table.machine_fields.items() if name != "version"}
    memory = fields.get("ram", "")
    if memory.isdecimal():
        unit = 1.0 if float(memory) >= _BYTES_FROM else 1024.0
        fields["ram"] = words.quantity(unit * float(memory), "bytes")
    return sorted(fields.items())


def _counted(table: Table, judgement: Judgement) -> tuple[Commit, Counted] | None:
    """What gave the counters of the newest commit that a GPU of this machine measured."""
    commit = newest_measured(table)
    counted = judgement.evidence.asked(commit.hash).counted if commit is not None else None
    return None if commit is None or counted is None else (commit, counted)


def _rooflines(site: Site) -> None:
    view = site.view
    for roofline in rooflines(view.judgement.history, view.judgement.evidence):
        page = render(
            "roofline.html",
            **site.common,
            root="../",
            title=f"Roofline of {roofline.name}",
            roofline=roofline,
            chart=roofline_chart(roofline, view.address),
            numbered=len(roofline.dots) <= MOST_NUMBERED,
        )
        site.fresh.write(roofline_path(roofline.name, roofline.home), page)


def _comparison(site: Site) -> None:
    """A page that compares any two commits. The values of the newest are loaded one by one, those
    of older ones from the histories of series."""
    view = site.view
    history = view.judgement.history
    newest = history.measured[-view.detail.compared :]
    for commit in newest:
        columns = [(table, table.column_of(commit.hash)) for table in history.tables]
        # All that was measured there, series after series.
        measured = [None if c is None else t.values[:, c].tobytes() for t, c in columns]
        name = f"v{commit.hash[:12]}"
        inputs = [(len(t.series), part) for (t, _), part in zip(columns, measured, strict=True)]
        site.pages.draw(f"data/{name}.js", inputs, partial(values_at, name, columns))
    page = render(
        "compare.html",
        **site.common,
        root="",
        title="Compare two commits",
        commits=newest[::-1],
        older=len(history.measured) - len(newest),
    )
    site.fresh.write("compare.html", page)


def _overlay(site: Site) -> None:
    """A page that lays series over each other."""
    view = site.view
    ready = [
        (view.headline(one), [view.address(c.series) for c in one.changes[:_MOST_OVERLAID]])
        for one in site.findings[:_READY_OVERLAYS]
    ]
    page = render("overlay.html", **site.common, root="", title="Overlay series", ready=ready)
    site.fresh.write("overlay.html", page)


def _state(table: Table, judgement: Judgement) -> dict[str, Any]:
    """A table's newest commit, and which series that had a value before lack one there, or where
    they were last asked for."""
    newest = _newest_two(table)
    recent = np.isfinite(newest).any(axis=1) & ~np.isfinite(newest[:, -1])
    # What fails stays missing until it works again, however long that takes.
    broken = (newest[:, -1] == FAILED) & np.isfinite(table.values).any(axis=1)
    rows = np.flatnonzero(recent | broken).tolist()
    commit = table.commits[-1]
    return {
        "table": table,
        "commit": commit,
        "behind": _behind(table, commit, judgement),
        "measured_s": int(table.started_ms.max()) // 1000 or commit.time_s,
        "missing": len(rows),
        "rows": rows,
    }


def _newest_two(table: Table) -> Floats:
    """Of every series its newest two columns, those left out in which nobody asked for it."""
    newest = table.values[:, -2:].copy()
    asked = table.methods != UNASKED
    for row in np.flatnonzero(~asked[:, -2:].all(axis=1)).tolist():
        last = np.flatnonzero(asked[row])[-newest.shape[1] :]
        newest[row] = ABSENT
        newest[row, newest.shape[1] - len(last) :] = table.values[row, last]
    return newest


def _behind(table: Table, commit: Commit, judgement: Judgement) -> int:
    """How many later commits could change what is measured here."""
    later = judgement.history.commits[commit.position + 1 :]
    folders = {info.meaning.sources for info in table.series}
    if "" in folders or not folders <= judgement.history.touching.keys():
        return len(later)
    touching = [judgement.history.touching[folder] for folder in folders]
    return sum(any(one.hash in found for found in touching) for one in later)


def _data(site: Site) -> None:
    """The style, the script and what it looks up."""
    for name in ("report.css", "report.js", "overlay.js"):
        site.fresh.write(name, (HERE / "static" / name).read_bytes())
    site.fresh.write("data/commits.js", script("commits", commits(site.view.judgement)))
    site.fresh.write("data/series.js", script("series", search(site.view.judgement, site.view)))


def _for_machines(site: Site) -> None:
    judgement = site.view.judgement
    times = [one for found in site.view.longer_times.values() for one in found]
    site.fresh.write("regressions.json", regressions(judgement, times))
    site.fresh.write("feed.atom", atom(judgement, site.project, site.view.headline, times))


# What is there once, or a few times.
ALONE = (_comparison, _overlay, _data, _index, _for_machines, _findings, _machines, _rooflines)
