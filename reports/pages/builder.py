"""Builds the site: judges and draws what is new, takes over what is not."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reports import triage
from reports.assembly import assemble
from reports.commits import head
from reports.directions import Directions
from reports.evidence import Evidence
from reports.findings import group
from reports.history import History, Table
from reports.judging import Judgement
from reports.model import Change, SeriesKey, Step
from reports.pages.rendering import series_path
from reports.pages.series_pages import Batch, Detail, Judged, detail_for, draw_batch
from reports.pages.site import write_site
from reports.pages.write import FreshSite, stamp_of
from reports.reading import list_folders, read_folders
from reports.store import Store
from reports.work import Workers

_BATCH_SERIES = 128
_WORTH_SERIES = 300
_FOLDERS = ("s", "w", "c", "f", "m", "r", "data")


@dataclass(frozen=True)
class Sources:
    """Where results and commits come from."""

    folders: tuple[Path, ...]
    repo: Path | None
    branch: str = "HEAD"
    directions: Directions = Directions()  # noqa: RUF009  # frozen


@dataclass(frozen=True)
class Outcome:
    """What a build did; ``judgement`` is absent when nothing had changed."""

    measured: bool
    written: int = 0
    kept: int = 0
    judgement: Judgement | None = None


def load(sources: Sources, store: Store | None = None) -> History:
    """The history of the sources."""
    with Workers() as workers:
        results = read_folders(sources.folders, list_folders(sources.folders), workers, store)
    return assemble(results, sources.repo, sources.directions, sources.branch)


def build(sources: Sources, out: Path, project: str = "", *, workers: Workers) -> Outcome:
    """Writes the site to ``out`` unless it is there already."""
    store = Store(out.parent / f".{out.name}.cache")
    listing = list_folders(sources.folders)
    tip = head(sources.repo, sources.branch) if sources.repo else ""
    accepted = [one for one in triage.load() if one.holds(datetime.date.today())]
    evidence = Evidence(sources.folders)
    identity = repr((store.code, listing, evidence.listing(), tip, sources, project, accepted))
    stamp = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
    if stamp_of(out).startswith(stamp):
        return Outcome(measured=stamp_of(out).endswith("measured"))
    results = read_folders(sources.folders, listing, workers, store)
    history = assemble(results, sources.repo, sources.directions, sources.branch)
    del results
    # The workers are left first: what they still wrote would stay behind.
    with FreshSite(out) as fresh, workers:
        fresh.folders(*_FOLDERS)
        series = _draw_series(history, project, store, fresh, workers)
        changes = {key: judged.changes for key, judged in series.items()}
        findings = group((c for found in changes.values() for c in found), history, evidence)
        judgement = Judgement(history, changes, tuple(findings), evidence).explained()
        write_site(judgement, {key: j.cell for key, j in series.items()}, fresh, project)
        measured = bool(history.measured)
        fresh.publish(f"{stamp} {'measured' if measured else 'nothing'}")
        return Outcome(measured, fresh.written, fresh.kept, judgement)


def _draw_series(
    history: History, project: str, store: Store, fresh: FreshSite, workers: Workers
) -> dict[SeriesKey, Judged]:
    """Every series judged; its page is drawn, or taken over where nothing about it changed."""
    remembered = store.load_json("judged.json") or {}
    detail = detail_for(history.tables)
    column_of = {commit.hash: index for index, commit in enumerate(history.measured)}
    done: dict[SeriesKey, Judged] = {}
    kept: dict[str, Any] = {}
    batches: list[Batch] = []
    digests: list[list[str]] = []
    for table in history.tables:
        columns = tuple(column_of[commit.hash] for commit in table.commits)
        look = hashlib.blake2b(repr((columns, detail, project)).encode(), digest_size=8).hexdigest()
        new: list[tuple[int, str, tuple[Change, ...] | None]] = []
        for row, info in enumerate(table.series):
            digest = table.digest(row)
            known = remembered.get(digest)
            changes = None if known is None else _changes(info.key, known["changes"])
            same = known is not None and known["look"] == look
            if (
                known is not None
                and changes is not None
                and same
                and fresh.keep(series_path(info.key))
            ):
                done[info.key] = Judged(changes, known["cell"])
                kept[digest] = known
            else:
                new.append((row, f"{digest} {look}", changes))
        for start in range(0, len(new), _BATCH_SERIES):
            part = new[start : start + _BATCH_SERIES]
            batches.append(_batch(table, columns, part, fresh.folder, detail, project))
            digests.append([digest for _, digest, _ in part])
    worth = sum(len(batch.known) for batch in batches) > _WORTH_SERIES
    found = workers.map(draw_batch, batches, worth=worth)
    for batch, names, judged in zip(batches, digests, found, strict=True):
        for info, name, one in zip(batch.table.series, names, judged, strict=True):
            done[info.key] = one
            digest, look = name.split()
            kept[digest] = {"look": look, "cell": one.cell, "changes": _plain(one.changes)}
            fresh.written += 1
    store.save_json("judged.json", kept)
    # In the order of the tables, however the work was shared out.
    return {info.key: done[info.key] for table in history.tables for info in table.series}


def _batch(
    table: Table,
    columns: tuple[int, ...],
    part: Sequence[tuple[int, str, tuple[Change, ...] | None]],
    folder: Path,
    detail: Detail,
    project: str,
) -> Batch:
    rows = [row for row, _, _ in part]
    known = tuple(changes for _, _, changes in part)
    # The paths stay here: no page of a series needs them.
    return Batch(replace(table.take(rows), files={}), columns, known, folder, detail, project)


def _plain(changes: tuple[Change, ...]) -> list[Any]:
    return [
        [
            c.verdict,
            [c.step.index, c.step.before, c.step.after, c.step.interval, c.step.confidence],
            c.last_good,
            c.first_commit,
            c.ratio,
        ]
        for c in changes
    ]


def _changes(key: SeriesKey, plain: list[Any]) -> tuple[Change, ...]:
    return tuple(
        Change(key, verdict, Step(i, before, after, tuple(interval), sure), last, first, ratio)
        for verdict, (i, before, after, interval, sure), last, first, ratio in plain
    )
