"""Draws every page of a site, shared out over the processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from reports.history import Table
from reports.pages.finding_pages import finding_page
from reports.pages.grid import side_by_side, workload_grid
from reports.pages.rendering import commit_path, finding_path, render, workload_path
from reports.pages.series_pages import series_page
from reports.pages.site import ALONE, MOST_FINDING_PAGES, Site
from reports.work import Workers

_SHOWN_CHANGES = 60
# Pages a task; those of findings read files, those of commits are mostly empty.
_SERIES, _FINDINGS, _WORKLOADS, _COMMITS = 16, 8, 12, 60
_WORTH_PAGES = 150

Task = tuple[str, int, int]


def write_site(site: Site, workers: Workers) -> None:
    """Writes every page, in as many processes as there are."""
    site.fresh.written = sum(
        workers.map_with(site, _write, tasks := _tasks(site), worth=_worth(tasks))
    )


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
            ("series", len(site.series), _SERIES),
            ("commits", len(judgement.history.measured), _COMMITS),
        )
        for start in range(0, count, size)
    ]


def _write(site: Site, task: Task) -> int:
    """Does one task; how many files that were."""
    kind, start, end = task
    before = site.fresh.written
    if kind == "alone":
        for write in ALONE[start:end]:
            write(site)
    elif kind == "findings":
        for finding in site.findings[start:end]:
            page = finding_page(site.view, finding, site.common)
            site.fresh.write(finding_path(finding.identity), page)
    elif kind == "workloads":
        for name in islice(site.view.judgement.workloads, start, end):
            site.fresh.write(workload_path(name), _workload(site, name))
    elif kind == "series":
        for one in site.series[start:end]:
            site.fresh.write(one.path, series_page(site.view, one, site.common))
    else:
        for number in range(start, end):
            _commit(site, number)
    return site.fresh.written - before


def _workload(site: Site, name: str) -> str:
    members = site.view.judgement.workloads[name]
    homes: dict[tuple[str, str], list[tuple[Table, int]]] = {}
    for table, row in members:
        homes.setdefault((table.machine, table.environment), []).append((table, row))
    return render(
        "workload.html",
        **site.common,
        root="../",
        title=name,
        count=len(members),
        homes=[workload_grid(site.view, home, found) for home, found in homes.items()],
        together=[one for found in homes.values() for one in side_by_side(site.view, found)],
    )


def _commit(site: Site, number: int) -> None:
    view = site.view
    measured = view.judgement.history.measured
    commit = measured[number]
    page = render(
        "commit.html",
        **site.common,
        root="../",
        title=f"{commit.hash[:10]} {commit.subject}",
        commit=commit,
        before=measured[number - 1] if number else None,
        after=measured[number + 1] if number + 1 < len(measured) else None,
        findings=view.finding_of.get(commit.hash, [])[:20],
        groups=view.groups(commit),
        shown=_SHOWN_CHANGES,
    )
    site.fresh.write(commit_path(commit.hash), page)
