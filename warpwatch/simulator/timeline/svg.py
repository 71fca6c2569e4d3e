"""A timeline as an SVG picture: a row for every partition and engine, waits hatched."""

from __future__ import annotations

from html import escape

from warpwatch.simulator.timeline.log import Log, Span

LEFT, TOP, ROW, GAP, STEP = 210, 46, 26, 8, 12
FILLS = {
    "word": "#9bb7d4",
    "wait": "url(#waits)",
    "stuck": "url(#stuck)",
    "product": "#e8a33d",
    "copy in": "#5aa469",
    "copy out": "#8f6bb3",
}
LEGEND = {
    "word": "a word of the kernel",
    "wait": "waits",
    "stuck": "waits for ever",
    "product": "product",
    "copy in": "copy in",
    "copy out": "copy out",
}


def picture(log: Log, most: int = 400) -> str:
    """Draw what a program did.

    Args:
        log: The program's.
        most: Steps behind these are left out.

    Returns:
        The text of an SVG file.
    """
    spans = [one for one in log.spans if one.begin < most]
    last = min(max((one.end for one in spans), default=1), most)
    tracks = log.tracks
    width = LEFT + last * STEP + 20
    height = TOP + len(tracks) * (ROW + GAP) + 40
    rows = {track: TOP + i * (ROW + GAP) for i, track in enumerate(tracks)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>What {escape(log.launch)} does</title>",
        "<desc>A row for every partition and engine. Lengths are steps, no time.</desc>",
        "<defs>",
        _hatched("waits", "#c8c8c8", "#777777"),
        _hatched("stuck", "#f3c4c0", "#b3261e"),
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="14">{escape(log.launch)}: one program, in steps</text>',
    ]
    for track, y in rows.items():
        parts.append(f'<text x="10" y="{y + 17}">{escape(track)}</text>')
        parts.append(
            f'<line x1="{LEFT}" y1="{y + ROW}" x2="{width - 10}" y2="{y + ROW}" stroke="#dddddd"/>'
        )
    parts += [_drawn(one, rows[one.track], last) for one in spans]
    x = LEFT
    for kind, words in LEGEND.items():
        y = height - 22
        parts.append(
            f'<rect x="{x}" y="{y}" width="14" height="12" fill="{FILLS[kind]}" stroke="#555555"/>'
        )
        parts.append(f'<text x="{x + 19}" y="{y + 10}">{words}</text>')
        x += 30 + 7 * len(words)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(span: Span, y: int, last: int) -> str:
    begin, end = LEFT + span.begin * STEP, LEFT + min(span.end, last) * STEP
    told = escape(f"{span.what} ({span.site}), steps {span.begin} to {span.end}")
    return (
        f'<rect x="{begin}" y="{y}" width="{max(end - begin, 1)}" height="{ROW - 2}" '
        f'fill="{FILLS[span.kind]}" stroke="#555555" stroke-width="0.5" '
        f'data-kind="{span.kind}"><title>{told}</title></rect>'
    )


def _hatched(name: str, back: str, line: str) -> str:
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{back}"/>'
        f'<line x1="0" y1="0" x2="0" y2="6" stroke="{line}" stroke-width="2"/></pattern>'
    )
