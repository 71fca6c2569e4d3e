"""Tensor-core utilization at a glance: every kernel against its bound and its peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from warpwatch.judge.model.core import SeriesKey
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.report.view import View

BOUND = "bound_utilization"
# Of several instruments the first that a machine has: the hardware's counter is the best word.
MEASURED = ("tensor_pipe", "tensor_pipe_sampled", "peak_share")
_MOST_BARS = 60


@dataclass(frozen=True)
class Cell:
    """One value of utilization, in percent."""

    key: SeriesKey | None  # none of a bound that only evidence keeps
    percent: float
    name: str = ""

    @property
    def text(self) -> str:
        return f"{self.percent:.0f} %"

    @property
    def share(self) -> str:
        """For a bar: at most full."""
        return f"{min(max(self.percent, 0.0), 100.0):.0f}"


@dataclass(frozen=True)
class Row:
    """A workload on one machine: what it reaches, what peers reach, what its code allows."""

    workload: str
    own: Cell
    peers: tuple[Cell, ...]
    bound: Cell | None
    bar: Markup


@dataclass(frozen=True)
class Machine:
    """The workloads of one machine, by what an instrument says."""

    metric: str
    target: str
    rows: tuple[Row, ...]
    left: int

    @property
    def raced(self) -> bool:
        """Whether any workload has a peer: an empty column says nothing."""
        return any(row.peers for row in self.rows)

    @property
    def bounded(self) -> bool:
        """Whether the code of any workload was compiled, which gives its bound."""
        return any(row.bound for row in self.rows)


@dataclass(frozen=True)
class Bounds:
    """What compiled code allows, workloads by targets."""

    targets: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def machine(view: View, table: Table) -> Machine | None:
    """One measured machine, the workloads furthest from what they could be first; ``None`` where
    nothing says what its tensor cores did."""
    metric = next((m for m in MEASURED if table.machine and _has(table, m)), "")
    if not metric:
        return None
    bounds = _by_place(view, BOUND) or _kept_cells(view, table)
    target = target_of(view, table) if bounds else ""
    own: dict[str, Cell] = {}
    peers: dict[str, list[Cell]] = {}
    for row, info in enumerate(table.series):
        value = table.latest(row) if info.meaning.metric == metric else None
        if value is None:
            continue
        if info.target:
            peers.setdefault(info.workload, []).append(Cell(info.key, value, info.target))
        else:
            own[info.workload] = Cell(info.key, value)
    rows = [
        _row(name, cell, peers.get(name, []), bounds.get((name, target)))
        for name, cell in own.items()
    ]
    rows.sort(key=lambda row: (-_gap(row), row.workload))
    shown = tuple(rows[:_MOST_BARS])
    return Machine(metric, target, shown, len(rows) - len(shown)) if rows else None


def compiled(view: View) -> Bounds | None:
    """The bounds of the compiled instrument, ``None`` where nothing was compiled."""
    cells = _by_place(view, BOUND)
    targets = tuple(sorted({target for _, target in cells}))
    names = sorted({name for name, _ in cells})
    if not names:
        return None
    return Bounds(
        targets,
        tuple((n, tuple(cells.get((n, target)) for target in targets)) for n in names),
    )


def _by_place(view: View, metric: str) -> dict[tuple[str, str], Cell]:
    """The newest value of a compiled metric by workload and target; the last table's counts."""
    found = {}
    for table in view.judgement.history.tables:
        for row, info in enumerate(table.series):
            if info.meaning.metric == metric and not table.machine:
                value = table.latest(row)
                if value is not None:
                    found[info.workload, info.target] = Cell(info.key, value, info.target)
    return found


def _has(table: Table, metric: str) -> bool:
    return any(
        info.meaning.metric == metric and not info.target and table.latest(row) is not None
        for row, info in enumerate(table.series)
    )


def target_of(view: View, table: Table) -> str:
    """The target whose device the machine says it has, as compiled series or evidence name the
    device; "" where none fits."""
    for other in view.judgement.history.tables:
        for info in other.series:
            if target := _fitting(table, dict(_titles(info))):
                return target
    evidence, titles = view.judgement.evidence, dict[str, str]()
    for commit in table.commits:
        for triton in evidence.tritons(commit.hash):
            titles |= evidence.devices(commit.hash, triton)
    return _fitting(table, titles)


def kept(view: View, table: Table, metric: str) -> dict[tuple[str, str], dict[str, float]]:
    """A compiled metric as evidence keeps it where asv's results lack it.

    Args:
        view: Whose evidence is looked at.
        table: The machine with whose results the evidence lies.
        metric: Such as ``bound_us``.

    Returns:
        By workload and target, values by commit, the oldest first.
    """
    evidence = view.judgement.evidence
    found: dict[tuple[str, str], dict[str, float]] = {}
    for commit in table.commits:
        for triton in evidence.tritons(commit.hash):
            for place, values in evidence.values(commit.hash, triton).items():
                value = values.get(metric)
                if value is not None and value > 0:
                    found.setdefault(place, {})[commit.hash] = value
    return found


def _kept_cells(view: View, table: Table) -> dict[tuple[str, str], Cell]:
    newest = {place: [*found.values()][-1] for place, found in kept(view, table, BOUND).items()}
    return {place: Cell(None, value, place[1]) for place, value in newest.items()}


def _fitting(table: Table, titles: Mapping[str, str]) -> str:
    said = [v.lower() for v in table.machine_fields.values() if len(v) > 3]
    for target, title in titles.items():
        if any(value in title.lower() or title.lower() in value for value in said):
            return target
    return ""


def _titles(info: SeriesInfo) -> list[tuple[str, str]]:
    if info.key.machine or info.work is None or info.meaning.metric != "bound_us":
        return []
    return list(info.work.titles.items())


def _gap(row: Row) -> float:
    """How far a workload is from the best that is known to be possible."""
    best = [cell.percent for cell in (*row.peers, *([row.bound] if row.bound else []))]
    return max([100.0 if not best else max(best), row.own.percent]) - row.own.percent


def _row(name: str, own: Cell, peers: list[Cell], bound: Cell | None) -> Row:
    peers = sorted(peers, key=lambda cell: -cell.percent)
    said = [f"this package {own.text}", *(f"{cell.name} {cell.text}" for cell in peers)]
    said += [f"bound {bound.text}"] if bound else []
    marks = "".join(
        f'<path class="peer" d="M{float(cell.share) * 2:.0f} 0l5 9h-10z"/>' for cell in peers
    )
    if bound:
        x = float(bound.share) * 2
        marks += f'<path class="bound" d="M{min(x, 199):.0f} 1V17"/>'
    words = escape(", ".join(said))
    bar = (
        f'<svg class="bullet" viewBox="-4 0 208 18" role="img" aria-label="{words}">'
        '<rect class="all" y="5" width="200" height="8"/>'
        f'<rect y="5" width="{float(own.share) * 2:.0f}" height="8"/>{marks}</svg>'
    )
    return Row(name, own, tuple(peers), bound, Markup(bar))
