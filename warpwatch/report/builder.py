"""Builds the site: judges and draws what is new, takes over what is not."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path

from warpwatch.judge.evidence.gaps import leave_gaps
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings import triage
from warpwatch.judge.findings.grouping import group
from warpwatch.judge.findings.judgement import Judgement, judged_changes
from warpwatch.judge.model.commits import head, tags_of
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import list_folders, read_folders
from warpwatch.judge.results.history import History
from warpwatch.judge.results.machines import Identity
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.results.store import Store
from warpwatch.judge.series.incremental import judge_tables, plain
from warpwatch.report.pages.site import Site

from .atomic_site import FreshSite, stamp_of
from .draw_all import write_site
from .pages import sampling
from .reuse import Pages
from .view import View

_FOLDERS = ("s", "w", "c", "f", "m", "r", "data")


@dataclass(frozen=True)
class Sources:
    """Where results and commits come from."""

    folders: tuple[Path, ...]
    repo: Path | None
    branch: str = "HEAD"
    directions: Directions = Directions()  # noqa: RUF009  # frozen
    machines: Identity = "name"
    asv: tuple[str, ...] = ()  # options that asv needs to find its configuration


@dataclass(frozen=True)
class Outcome:
    """What a build did; ``judgement`` is absent when nothing had changed. ``enough`` was measured
    and could be judged for a verdict."""

    enough: bool
    written: int = 0
    kept: int = 0
    judgement: Judgement | None = None


def load(sources: Sources, store: Store | None = None) -> History:
    """The history of the sources."""
    with Workers() as workers:
        results = read_folders(sources.folders, list_folders(sources.folders), workers, store)
    history = assemble(results, sources.repo, sources.directions, sources.branch, sources.machines)
    return leave_gaps(history, Evidence(sources.folders))


def build(sources: Sources, out: Path, project: str = "", *, workers: Workers) -> Outcome:
    """Writes the site to ``out`` unless it is there already."""
    store = Store(out.parent / f".{out.name}.cache")
    listing = list_folders(sources.folders)
    tip = head(sources.repo, sources.branch) if sources.repo else ""
    tags = tags_of(sources.repo) if sources.repo else {}
    accepted = [one for one in triage.load() if one.holds(datetime.date.today())]
    evidence = Evidence(sources.folders)
    identity = repr(
        (store.code, listing, evidence.listing(), tip, tags, sources, project, accepted)
    )
    stamp = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
    if stamp_of(out).startswith(stamp):
        return Outcome(stamp_of(out).endswith("enough"))
    results = read_folders(sources.folders, listing, workers, store)
    history = assemble(results, sources.repo, sources.directions, sources.branch, sources.machines)
    history = leave_gaps(history, evidence)
    del results
    # The workers are left first: what they still wrote would stay behind.
    with FreshSite(out) as fresh, workers:
        fresh.folders(*_FOLDERS)
        remembered = store.load_json("judged.json") or {}
        judged = judge_tables(history.tables, remembered.get("series", {}), workers)
        changes = judged_changes(history, {key: one.changes for key, one in judged.items()})
        findings = group((c for found in changes.values() for c in found), history, evidence)
        judgement = Judgement(history, changes, tuple(findings), evidence).explained()
        view = View(judgement, sources.repo, sources.asv)
        sampling.read_ahead(view)
        _ = view.longer_times  # from evidence, too: each process would read it again
        pages = Pages(
            view,
            fresh,
            look=repr((view.detail, project, history.url, view.asv_options)),
            remembered=remembered.get("pages", {}),
            digests={key: one.digest for key, one in judged.items()},
            stamps={path: (size, time_ns) for _, path, size, time_ns in listing.results},
        )
        site = Site(view, fresh, project, pages, tuple(evidence.rejected))
        identities = write_site(site, workers)
        kept = {one.digest: plain(one.changes) for one in judged.values()}
        store.save_json("judged.json", {"series": kept, "pages": identities})
        enough = bool(history.measured) and judgement.coverage.enough
        fresh.publish(f"{stamp} {'enough' if enough else 'too little'}")
        return Outcome(enough, fresh.written, fresh.kept, judgement)
