"""Charts drawn as SVG while the site is built: they need no script, and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from warpwatch.judge.results.result_file import Floats

# How high lines are, and how far below the edge: in the chart of a page, and in a row of text.
CHART, SPARK = (220, 14), (22, 2)
# Where the script draws a chart, as large, and where it draws the line of a series.
EMPTY = Markup('<svg class="history" viewBox="0 0 880 260" role="img" aria-label="History"></svg>')
EMPTY_SPARK = Markup('<svg class="spark"></svg>')


@dataclass(frozen=True)
class Mark:
    """A step on a chart: the point it begins at, its verdict and the levels around it."""

    index: int
    verdict: str
    title: str


def spark(
    values: Floats,
    marks: Sequence[Mark] = (),
    drawn_points: int = 70,
    stairs: bool = False,
    strokes: Sequence[int] | None = None,
) -> Markup:
    """A line as high as a row of text; a dot on every step. Empty without two measured values.
    ``strokes`` are its ``strokes_of``, where they are known."""
    width, height = 140, 26
    limits = bounds(values)
    if limits is None:
        return Markup("")
    low, high = _with_room(*limits)
    step, start = _spacing(len(values), width - 4, stairs)
    across = (step, start + 2)
    path = _line(values, drawn_points, across, (low, high, *SPARK), stairs, strokes)
    dots = "".join(
        f'<circle class="{_class(mark.verdict)}" r="2.5" '
        f'cx="{2 + start + mark.index * step:.0f}" '
        f'cy="{_at(values, mark.index, low, high, SPARK[0]) + SPARK[1]:.0f}"/>'
        for mark in marks
    )
    return Markup(
        f'<svg class="{"spark stairs" if stairs else "spark"}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" '
        f'aria-hidden="true"><path d="{path}"/>{dots}</svg>'
    )


def history(
    values: Floats,
    labels: Sequence[str],
    unit_text: Sequence[str],
    description: str,
    marks: Sequence[Mark] = (),
    borders: Sequence[int] = (),
    most_drawn: int = 400,
    stairs: bool = False,
    limits: tuple[float, float] | None = None,
    strokes: Sequence[int] | None = None,
) -> Markup:
    """The chart of a series page: level axis, first and last commit, steps and borders.
    ``limits`` are the values' ``bounds``, and ``strokes`` their ``strokes_of``, where they are
    known."""
    width, height, left, (inner, top) = 880, 260, 8, CHART
    limits = limits or bounds(values)
    if limits is None:
        return Markup('<p class="quiet">Fewer than two values were measured: nothing to draw.</p>')
    low, high = _with_room(*limits)
    right = width - left
    step, start = _spacing(len(values), width - 2 * left, stairs)
    start += left
    path = _line(values, most_drawn, (step, start), (low, high, inner, top), stairs, strokes)
    parts = [
        f'<svg class="history" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(description)}">',
        f'<path class="axis" d="M{left} {top}H{right}M{left} {top + inner}H{right}"/>',
        f'<text x="{left}" y="{top - 3}">{escape(unit_text[1])}</text>',
        f'<text x="{left}" y="{top + inner - 3}">{escape(unit_text[0])}</text>',
        f'<text x="{left}" y="{height - 8}">{escape(labels[0])}</text>',
        f'<text x="{right}" y="{height - 8}" text-anchor="end">{escape(labels[1])}</text>',
    ]
    for border in borders:
        x = start + (border - 0.5) * step
        parts.append(f'<path class="border" d="M{x:.0f} {top}V{top + inner}"/>')
    parts.append(f'<path class="line" d="{path}"/>')
    if len(values) <= 60:
        for index in np.flatnonzero(np.isfinite(values)).tolist():
            y = _at(values, index, low, high, inner) + top
            parts.append(
                f'<circle class="dot" cx="{start + index * step:.0f}" cy="{y:.0f}" r="3"/>'
            )
    for mark in marks:
        x, y = start + mark.index * step, _at(values, mark.index, low, high, inner) + top
        parts.append(
            f'<g class="{_class(mark.verdict)}">'
            f'<path class="step" d="M{x:.0f} {top}V{top + inner}"/>'
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5"/><title>{escape(mark.title)}</title></g>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def bounds(values: Floats) -> tuple[float, float] | None:
    """Lowest and highest measured value, ``None`` without two of them."""
    if len(values) >= 2:
        low, high = float(values.min()), float(values.max())
        if math.isfinite(low) and math.isfinite(high):  # neither is where any value is not
            return low, high
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) >= 2 else None


def scale_of(values: Floats) -> tuple[float, float] | None:
    """Where a chart of these values begins and ends, ``None`` without two of them."""
    limits = bounds(values)
    return None if limits is None else _with_room(*limits)


def _with_room(low: float, high: float) -> tuple[float, float]:
    # A change of less than 1 % must not fill the chart: noise would look like a cliff.
    room = max(0.01 * max(abs(low), abs(high)) - (high - low), 0.0) / 2
    room = room or (high - low) * 0.04 or 0.5
    return low - room, high + room


def _ys(values: Floats, low: float, high: float, height: float) -> Floats:
    result: Floats = (1 - (values / 2 - low / 2) / (high / 2 - low / 2)) * height
    return result


def _at(values: Floats, index: int, low: float, high: float, height: float) -> float:
    value = float(values[index])
    return height if not math.isfinite(value) else float(_ys(values[[index]], low, high, height)[0])


def _line(
    values: Floats,
    limit: int,
    across: tuple[float, float],
    up: tuple[float, float, float, float],
    stairs: bool,
    strokes: Sequence[int] | None = None,
) -> str:
    """The path of all values, or of lowest and highest of each of ``limit / 2`` buckets.

    ``across`` are the distance of two points and the place of the first, ``up`` the lowest and
    highest value of the scale, its height and its top.
    """
    (step, start), (low, high, height, top) = across, up
    count = len(values)
    if strokes is not None:
        return _stroked(_lefts(count, limit // 2, step, start), strokes)
    if count <= limit:
        xs = np.arange(count, dtype=np.float64) * step + start
        shown = np.where(np.isfinite(values), values, np.nan)
        return _path(xs, _ys(shown, low, high, height) + top, step / 2 if stairs else 0.0)
    edges = _edges(count, limit // 2)
    pairs = np.empty(2 * len(edges))
    # These two skip NaN, and give it where there is nothing else.
    np.fmin.reduceat(values, edges, out=pairs[::2])
    np.fmax.reduceat(values, edges, out=pairs[1::2])
    if not np.isfinite(pairs).all():
        shown = np.where(np.isfinite(values), values, np.nan)
        np.fmin.reduceat(shown, edges, out=pairs[::2])
        np.fmax.reduceat(shown, edges, out=pairs[1::2])
    ys = _ys(pairs, low, high, height) + top
    if stairs or not np.isfinite(ys).all():
        xs = np.repeat(edges.astype(np.float64), 2) * step + start
        return _path(xs, ys, step / 2 if stairs else 0.0)
    lefts = _lefts(count, limit // 2, step, start)
    return _stroked(lefts, ys.round().astype(int).tolist())


def strokes_of(rows: Floats, limit: int, line: tuple[int, int]) -> NDArray[np.int16]:
    """The lines of rows without gaps, of more than ``limit`` values each: for each bucket the
    places of its lowest and highest value, as each row's line has them. ``line`` is ``CHART`` or
    ``SPARK``."""
    edges, (height, top) = _edges(rows.shape[1], limit // 2), line
    pairs = np.empty((len(rows), 2 * len(edges)))
    np.minimum.reduceat(rows, edges, axis=1, out=pairs[:, ::2])
    np.maximum.reduceat(rows, edges, axis=1, out=pairs[:, 1::2])
    ends = [_with_room(float(row.min()), float(row.max())) for row in pairs]
    low, high = np.array(ends).reshape(-1, 2).T[:, :, None]
    places: Floats = (1 - (pairs / 2 - low / 2) / (high / 2 - low / 2)) * height + top
    return places.round().astype(np.int16)


def _stroked(lefts: Sequence[int], strokes: Sequence[int]) -> str:
    """Most lines: each bucket is a stroke up."""
    each = zip(lefts, strokes[::2], strokes[1::2], strict=True)
    return "M" + "L".join([f"{left} {low}V{high}" for left, low, high in each])


@cache
def _edges(count: int, buckets: int) -> NDArray[np.intp]:
    return np.linspace(0, count, buckets + 1).astype(np.intp)[:-1]


@lru_cache(maxsize=64)
def _lefts(count: int, buckets: int, step: float, start: float) -> list[int]:
    places = _edges(count, buckets).astype(np.float64) * step + start
    whole: list[int] = places.round().astype(int).tolist()
    return whole


def _spacing(count: int, width: float, stairs: bool) -> tuple[float, float]:
    """Distance of the points and place of the first; stairs give each point a tread."""
    if stairs:
        return width / max(count, 1), width / max(count, 1) / 2
    return width / max(count - 1, 1), 0.0


def _path(xs: Floats, ys: Floats, tread: float = 0.0) -> str:
    """An SVG path in whole pixels that leaves gaps where there is no value.

    With a ``tread``, half the distance of two points, each point is a level of its own: an exact
    metric takes no value in between.
    """
    parts: list[str] = []
    pen = False
    finite: NDArray[np.bool_] = np.isfinite(ys)
    whole = np.where(finite, ys, 0).round().astype(int).tolist()
    lefts = (xs - tread).round().astype(int).tolist()
    rights = (xs + tread).round().astype(int).tolist()
    last = None
    for left, right, y, good in zip(lefts, rights, whole, finite.tolist(), strict=True):
        if good:
            # The range of a bucket is a stroke straight up.
            link = f"V{y}" if pen and left == last else f"{'L' if pen else 'M'}{left} {y}"
            parts.append(f"{link}H{right}" if tread else link)
            last = right if tread else left
        pen = good
    return "".join(parts)


def _class(verdict: str) -> str:
    return "v-" + verdict.replace(" ", "-")
