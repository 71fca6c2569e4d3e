"""Draws boxes as a small SVG picture: a row for every partition and engine."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tools.gluon.timelines.labels import Box

LEFT, TOP, ROW, GAP, STEP = 170, 34, 24, 5, 8
FILLS = {
    "word": "#9bb7d4",
    "wait": "url(#waits)",
    "product": "#e8a33d",
    "copy in": "#5aa469",
    "copy out": "#8f6bb3",
}
LEGEND = {
    "copy in": "copy in",
    "product": "product",
    "word": "work of the warps",
    "wait": "waits",
    "copy out": "copy out",
}
FIRST = ("copy engine", "producer warp")


def picture(title: str, boxes: Sequence[Box], steps: int) -> str:
    """Draw the first steps of a program.

    Args:
        title: What the picture shows.
        boxes: What the program did.
        steps: How many steps are drawn; what begins later is left out.

    Returns:
        The text of an SVG file.
    """
    seen = [one for one in boxes if one.begin < steps]
    last = min(max(one.end for one in seen), steps)
    names = sorted({one.row for one in seen}, key=_place)
    rows = {name: TOP + i * (ROW + GAP) for i, name in enumerate(names)}
    width, height = LEFT + last * STEP + 10, TOP + len(rows) * (ROW + GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10" role="img">',
        f"<title>{escape(title)}</title>",
        "<desc>A row for every partition and engine. Lengths are steps of the simulator, no time."
        "</desc>",
        '<defs><pattern id="waits" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="5" height="5" fill="#e4e4e4"/>'
        '<path d="M0 0V5" stroke="#999" stroke-width="2"/></pattern></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="6" y="20" font-size="13">{escape(title)}</text>',
    ]
    for name, y in rows.items():
        parts.append(f'<text x="6" y="{y + 15}">{escape(name)}</text>')
        parts.append(f'<path d="M{LEFT} {y + ROW}H{width - 6}" stroke="#ddd"/>')
    parts += [_drawn(one, rows[one.row], last) for one in seen]
    x, y = LEFT, height - 16
    for kind, words in LEGEND.items():
        parts.append(_rectangle(x, y, 12, 10, kind))
        parts.append(f'<text x="{x + 16}" y="{y + 9}">{words}</text>')
        x += 34 + 6 * len(words)
    return "\n".join([*parts, "</svg>", ""])


def _place(row: str) -> tuple[int, str, bool]:
    """Engines first, then each warpgroup with its products below it."""
    first = FIRST.index(row) if row in FIRST else len(FIRST)
    return first, row.partition(":")[0], row.endswith(": products")


def _rectangle(x: int, y: int, width: int, height: int, kind: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{FILLS[kind]}" '
        'stroke="#555" stroke-width=".5"'
    ) + "/>"


def _drawn(box: Box, y: int, last: int) -> str:
    x, end = LEFT + box.begin * STEP, LEFT + min(box.end, last) * STEP
    drawn = _rectangle(x, y, max(end - x, 1), ROW - 2, box.kind)
    if box.hint:
        drawn = f"{drawn[:-2]}><title>{escape(box.hint)}</title></rect>"
    if box.text and 5 * len(box.text) <= end - x:
        drawn += f'<text x="{(x + end) // 2}" y="{y + 15}" text-anchor="middle">{box.text}</text>'
    return drawn
