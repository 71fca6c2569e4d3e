"""Draws every page of a site, shared out over the processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

from markupsafe import Markup

from warpwatch.judge.model.core import Finding
from warpwatch.judge.results.history import Table
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.series.addresses import finding_path
from warpwatch.report.pages.finding import finding_page, other_metrics, range_part, samples_part
from warpwatch.report.pages.series import series_page
from warpwatch.report.pages.site import ALONE, MOST_FINDING_PAGES, Site
from warpwatch.report.pages.workload_grid import grid_of, side_by_side

from . import without_alarm
from .pages.change_groups import parts_of
from .rendering import commit_path, render, workload_path
from .reuse import Part
from .site_data import histories, newest_words, page_histories

# Pages a task; those of findings read files, those of commits are mostly empty.
_SERIES, _FINDINGS, _WORKLOADS, _COMMITS, _HISTORIES = 16, 8, 12, 60, 16
_WORTH_PAGES = 150
_ON_COMMIT, _MOST_CHANGES = 20, 400  # findings, and changes of one kind
_FEW_VALUES = 12  # that raise no alarm, before the rest is folded
_WITH_SOURCES = 40  # findings, the worst first: git is asked once for each

Task = tuple[str, int, int]


@dataclass(frozen=True)
class Done:
    """What one task did; ``identities`` are those of its pages."""

    written: int
    kept: int
    identities: Mapping[str, Any]


def write_site(site: Site, workers: Workers) -> dict[str, Any]:
    """Writes or takes over every page, in as many processes as there are. The identities of the
    pages, by path."""
    tasks = _tasks(site)
    done = list(workers.map_with(site, _write, tasks, worth=_worth(tasks)))
    site.fresh.written, site.fresh.kept = sum(d.written for d in done), sum(d.kept for d in done)
    return {path: name for one in done for path, name in one.identities.items()}


def _worth(tasks: Sequence[Task]) -> bool:
    return sum(end - start for _, start, end in tasks) > _WORTH_PAGES


def _tasks(site: Site) -> list[Task]:
    """The work in parts, the longest first."""
    judgement = site.view.judgement
    findings = min(len(site.findings), MOST_FINDING_PAGES)
    # Which files of the evidence were refused is known as they are read, in the order of findings.
    together = max(findings, 1) if judgement.evidence.listing() else _FINDINGS
    return [
        (kind, start, min(start + size, count))
        for kind, count, size in (
            ("alone", len(ALONE), 1),
            ("findings", findings, together),
            ("workloads", len(judgement.workloads), _WORKLOADS),
            ("series", len(judgement.addresses.pages), _SERIES),
            ("histories", len(site.histories), _HISTORIES),
            ("commits", len(judgement.history.measured), _COMMITS),
        )
        for start in range(0, count, size)
    ]


def _write(site: Site, task: Task) -> Done:
    kind, start, end = task
    fresh, pages, judgement = site.fresh, site.pages, site.view.judgement
    pages.identities = {}
    written, kept = fresh.written, fresh.kept
    if kind == "alone":
        for write in ALONE[start:end]:
            write(site)
    elif kind == "findings":
        for number, finding in enumerate(site.findings[start:end], start):
            _finding(site, finding, number < _WITH_SOURCES)
    elif kind == "workloads":
        for name in islice(judgement.workloads, start, end):
            _workload(site, name)
    elif kind == "series":
        for one in judgement.addresses.pages[start:end]:
            draw = partial(series_page, site.view, one, site.common)
            pages.draw(one.path, pages.series(one), draw)
    elif kind == "histories":
        some = site.histories[start:end]
        newest = cache(partial(newest_words, site.view, [one for _, of in some for one in of]))
        for name, of in some:
            parts = [
                (pages.histories(one), partial(page_histories, site.view, one, newest))
                for one in of
            ]
            pages.draw_parts(f"data/{name}.js", parts, partial(histories, name))
    else:
        for number in range(start, end):
            _commit(site, number)
    return Done(fresh.written - written, fresh.kept - kept, pages.identities)


def _finding(site: Site, finding: Finding, sourced: bool) -> None:
    evidence = other_metrics(site.view, finding)
    inputs = site.pages.finding(finding, evidence)
    path, url = finding_path(finding.identity), site.common["url"]
    draw_samples = partial(samples_part, site.view, finding)
    draw_range = partial(range_part, site.view, finding, url, sourced)
    page = partial(finding_page, site.view, finding, evidence, site.common)
    if inputs is None:
        site.pages.draw(path, None, lambda: page([draw_samples(), draw_range()]))
        return
    # Samples lie in result files and sources in git, which take longer to open than the rest takes
    # to draw: a new point of a series that changed long ago leaves them as they were.
    parts: list[Part] = [
        (site.pages.samples(finding), draw_samples),
        ((site.pages.commits_of(finding), sourced), draw_range),
        (inputs, lambda: ""),
    ]
    site.pages.draw_parts(path, parts, page)


def _workload(site: Site, name: str) -> None:
    view, pages = site.view, site.pages
    members = view.judgement.workloads[name]
    homes: dict[tuple[str, str], list[tuple[Table, int]]] = {}
    for table, row in members:
        homes.setdefault((table.machine, table.environment), []).append((table, row))

    def page(grids: Sequence[Markup]) -> str:
        return render(
            "workload.html",
            **site.common,
            root="../",
            title=name,
            count=len(members),
            grids=grids,
            together=[one for found in homes.values() for one in side_by_side(view, found)],
        )

    parts = [_grid(site, home, found) for home, found in homes.items()]
    pages.draw_parts(workload_path(name), parts, page)


def _grid(site: Site, home: tuple[str, str], members: list[tuple[Table, int]]) -> Part:
    """The part of a workload's page that shows one machine and environment."""
    view = site.view
    if view.detail.scripted:
        # The script adds what each new point moves: all that is left is written here, and is few.
        shown = grid_of(view, home, members)
        return (shown, side_by_side(view, members)), lambda: render("grid.html", **shown)
    return site.pages.workload(members), lambda: render("grid.html", **grid_of(view, home, members))


def _commit(site: Site, number: int) -> None:
    view, pages = site.view, site.pages
    measured = view.judgement.history.measured
    commit = measured[number]
    before = measured[number - 1] if number else None
    after = measured[number + 1] if number + 1 < len(measured) else None

    groups, quiet = view.groups(commit), without_alarm.values(view, commit)
    times = without_alarm.times(view, view.longer_times.get(commit.hash, ()))

    def page() -> str:
        return render(
            "commit.html",
            **site.common,
            root="../",
            title=f"{commit.hash[:10]} {commit.subject}",
            commit=commit,
            before=before,
            after=after,
            findings=view.finding_of.get(commit.hash, [])[:_ON_COMMIT],
            within=view.may_begin_at.get(commit.hash, [])[:_ON_COMMIT],
            groups=groups,
            parts={name: parts_of(view, found[:_MOST_CHANGES]) for name, found in groups.items()},
            most=_MOST_CHANGES,
            quiet=quiet,
            times=times,
            few=_FEW_VALUES,
        )

    inputs = pages.commit(commit, (before, after), _MOST_CHANGES, _ON_COMMIT)
    unalarming = (view.has_values(commit), len(quiet), quiet[:_MOST_CHANGES], times)
    pages.draw(commit_path(commit.hash), (inputs, unalarming), page)
