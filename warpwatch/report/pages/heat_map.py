"""The heat map of the index: the newest commits by the workloads that changed most in them."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from warpwatch.judge.model.core import Change
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.report.rendering import commit_path, workload_path
from warpwatch.report.view import View
from warpwatch.report.words import word

_MOST_COLUMNS, _MOST_ROWS = 60, 30
_LONGEST, _LETTER = 44, 7.5  # letters of a name, the width of one
_RANK: tuple[Kind, ...] = ("lost", "hurt", "gained", "helped", "other space")


@dataclass(frozen=True)
class HeatMap:
    rows: int
    names: Markup
    svg: Markup


def heat_map(view: View) -> HeatMap:
    """The newest commits by the workloads that changed most in them, shapes for verdicts.

    Names and cells are two pictures: on a narrow screen the cells scroll beside the names.
    """
    commits = view.judgement.history.measured[-_MOST_COLUMNS:]
    cells: dict[str, dict[str, Change]] = {}
    dotted = set()  # names of benchmarks, whose ends tell them apart
    for commit in commits:
        for change in view.judgement.by_commit.get(commit.hash, ()):
            info = view.info(change.series)
            row = cells.setdefault(info.workload, {})
            if not info.meaning.metric:
                dotted.add(info.workload)
            known = row.get(commit.hash)
            if known is None or _RANK.index(kind(change)) < _RANK.index(kind(known)):
                row[commit.hash] = change
    names = sorted(cells, key=lambda name: (-_weight(cells[name]), name))[:_MOST_ROWS]
    width, height = 16, 18
    shorts = [_short(name, name in dotted) for name in names]
    labels = [_opened(_LETTER * max(map(len, shorts), default=0), height * len(names), "Workloads")]
    parts = [_opened(width * len(commits), height * len(names), "Commits by workloads")]
    for index, name in enumerate(names):
        y = index * height
        labels.append(
            f'<a href="{workload_path(name)}"><text x="0" y="{y + 13}">{escape(shorts[index])}'
            f"<title>{escape(name)}</title></text></a>"
        )
        for column, commit in enumerate(commits):
            x = column * width
            moved = cells[name].get(commit.hash)
            if moved is None:
                parts.append(f'<circle class="none" cx="{x + 8}" cy="{y + 9}" r="1.2"/>')
                continue
            shown = kind(moved)
            title = escape(f"{word(moved)} {commit.hash[:10]} {commit.subject}")
            parts.append(
                f'<a href="{commit_path(commit.hash)}"><title>{title}</title>'
                f'<path class="v-{shown.replace(" ", "-")}" d="{_shape(shown, x + 8, y + 9)}"/></a>'
            )
    return HeatMap(
        len(names), Markup("".join([*labels, "</svg>"])), Markup("".join([*parts, "</svg>"]))
    )


def _short(name: str, by_its_end: bool) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"…{name[1 - _LONGEST :]}" if by_its_end else f"{name[: _LONGEST - 1]}…"


def _opened(width: float, height: int, label: str) -> str:
    size = f'viewBox="0 0 {width:.0f} {height + 4}" width="{width:.0f}" height="{height + 4}"'
    return f'<svg class="heat" {size} role="group" aria-label="{label}">'


def _weight(row: dict[str, Change]) -> int:
    weights = {"lost": 4, "hurt": 4, "gained": 1, "helped": 1, "other space": 1}
    return sum(weights[kind(change)] for change in row.values())


def _shape(found: Kind, x: int, y: int) -> str:
    """Down for worse, up for better, a cross for lost, a plus for gained, a diamond for another
    search space."""
    if found == "hurt":
        return f"M{x - 6} {y - 5}h12l-6 10z"
    if found == "helped":
        return f"M{x - 6} {y + 5}h12l-6 -10z"
    if found == "lost":
        return f"M{x - 5} {y - 5}l10 10m0 -10l-10 10"
    if found == "other space":
        return f"M{x} {y - 6}l6 6l-6 6l-6 -6z"
    return f"M{x - 6} {y}h12m-6 -6v12"
