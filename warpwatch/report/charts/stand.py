"""The small chart of a workload: our time, the best peer's and the least that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup

from warpwatch.judge.results.result_file import Floats

_WIDTH, _HEIGHT, _EDGE = 300, 84, 5
_MOST = 150


@dataclass(frozen=True)
class Line:
    """One line of it: who, how it is drawn, and a value for each commit."""

    name: str
    look: Literal["own", "peer", "limit"]
    values: Floats


def stand_chart(lines: Sequence[Line], marks: Sequence[tuple[int, str]], label: str) -> Markup:
    """Draw lines over the same commits, from zero up: heights compare as times do.

    Args:
        lines: The first is ours; gaps are bridged, as a peer is timed now and then.
        marks: Columns at which ours changed, with the verdict.
        label: The chart in words, escaped.

    Returns:
        An SVG without text, which nothing has to scale.
    """
    own = lines[0].values
    finite = [line.values[np.isfinite(line.values)] for line in lines]
    most = max((float(one.max()) for one in finite if len(one)), default=1.0) or 1.0
    step = (_WIDTH - 2 * _EDGE) / max(len(own) - 1, 1)
    down = (_HEIGHT - 2 * _EDGE) / most

    def place(column: int, value: float) -> str:
        return f"{_EDGE + column * step:.0f} {_HEIGHT - _EDGE - value * down:.0f}"

    drawn = [f'<path class="axis" d="M0 {_HEIGHT - 1}H{_WIDTH}"/>']
    for line in reversed(lines):
        columns = np.flatnonzero(np.isfinite(line.values))
        if len(columns) > _MOST:
            columns = columns[np.linspace(0, len(columns) - 1, _MOST).astype(int)]
        places = [place(c, float(line.values[c])) for c in columns.tolist()]
        if len(places) == 1:
            x, y = places[0].split()
            drawn.append(f'<circle class="{line.look}" cx="{x}" cy="{y}" r="3"/>')
        elif places:
            drawn.append(f'<path class="{line.look}" d="M{"L".join(places)}"/>')
    for column, verdict in marks:
        if np.isfinite(own[column]):
            x, y = place(column, float(own[column])).split()
            look = verdict.replace(" ", "-")
            drawn.append(f'<circle class="v-{look}" cx="{x}" cy="{y}" r="3"/>')
    return Markup(
        f'<svg class="stand" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(drawn)}</svg>"
    )
