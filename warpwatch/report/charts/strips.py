"""Groups of samples on one scale, drawn as SVG: strokes, or the interval where none were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from warpwatch.report.words import quantity

from .svg import scale_of

_WIDTH, _EDGE, _ROW, _MOST_STROKES = 440, 6, 42, 500
_LABELS = 160  # of the width: what two values take


@dataclass(frozen=True)
class Strip:
    """One row: its samples, or the ``interval`` of their median."""

    name: str
    median: float
    samples: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None


def of_samples(name: str, samples: Sequence[float]) -> Strip:
    return Strip(name, float(np.median(np.array(samples))), tuple(samples))


def draw(strips: Sequence[Strip], unit: str) -> Markup:
    """Rows on one scale, the median as a longer stroke, with its value."""
    every = np.array([v for s in strips for v in (*s.samples, *(s.interval or ()), s.median)])
    scale = scale_of(every)
    if scale is None:
        return Markup("")
    low, high = scale
    height = _ROW * len(strips) + 18

    def x(value: float) -> float:
        return _EDGE + (value - low) / (high - low) * (_WIDTH - 2 * _EDGE)

    said = "; ".join(f"{one.name}: {quantity(one.median, unit)}" for one in strips)
    parts = [
        f'<svg class="strips" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(said)}">'
    ]
    for index, one in enumerate(strips):
        top = index * _ROW + 16
        parts.append(
            f'<text x="0" y="{top - 3}">{escape(one.name)}</text>'
            f'<text x="{_WIDTH}" y="{top - 3}" text-anchor="end">'
            f"{escape(quantity(one.median, unit))}</text>"
            f'<path class="axis" d="M0 {top + 10}H{_WIDTH}"/>'
        )
        if one.interval is not None:
            start, end = map(x, one.interval)
            parts.append(
                f'<rect x="{start:.1f}" y="{top + 4}" width="{max(end - start, 1):.1f}" '
                f'height="12"/>'
            )
        strokes = "".join(f"M{x(value):.1f} {top + 3}v14" for value in one.samples[:_MOST_STROKES])
        parts.append(
            f'<path d="{strokes}"/><path class="median" d="M{x(one.median):.1f} {top}v20"/>'
        )
    least, most = float(every.min()), float(every.max())
    # Where they lie near each other, their words lie on either side.
    apart = x(most) - x(least) > _LABELS
    for value in (least, most):
        anchor = "start" if (value == least) == apart else "end"
        parts.append(
            f'<text x="{x(value):.0f}" y="{height - 3}" text-anchor="{anchor}">'
            f"{escape(quantity(value, unit))}</text>"
        )
    return Markup("".join((*parts, "</svg>")))
