"""A roofline drawn as SVG: rate over intensity, both logarithmic, under the device's roofs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup, escape

from warpwatch.judge.model.core import SeriesKey

from .roofs import Dot, Roofline

MOST_NUMBERED = 40  # dots; more would hide each other
Place = tuple[float, float]
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 880, 494, 84, 34, 48, 72


def roofline_chart(roofline: Roofline, address: Callable[[SeriesKey], str]) -> Markup:
    """Every workload as a linked dot, the memory roof, and one roof for each peak."""
    dots = roofline.dots
    peaks = sorted({dot.peak_tflops for dot in dots})
    low_x, high_x = _limits([dot.intensity for dot in dots] + [_ridge(roofline, peaks[-1])])
    low_y, high_y = _limits([dot.tflops for dot in dots] + [peaks[-1]])

    def x(intensity: float) -> float:
        share = (math.log10(intensity) - low_x) / (high_x - low_x)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(tflops: float) -> float:
        share = (math.log10(tflops) - low_y) / (high_y - low_y)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg class="roofline" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" '
        f'aria-label="Roofline of {escape(roofline.name)}">'
    ]
    for value in _ticks(low_x, high_x):
        place = x(value)
        parts.append(
            f'<path class="axis" d="M{place:.0f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
            f'<text x="{place:.0f}" y="{_HEIGHT - _BOTTOM + 24}" text-anchor="middle">'
            f"{value:,.4g}</text>"
        )
    for value in _ticks(low_y, high_y):
        place = y(value)
        parts.append(
            f'<path class="axis" d="M{_LEFT} {place:.0f}H{_WIDTH - _RIGHT}"/>'
            f'<text x="{_LEFT - 6}" y="{place + 4:.0f}" text-anchor="end">{value:,.4g}</text>'
        )
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">'
        "operations a byte</text>"
        f'<text x="6" y="20">TFLOP/s</text>'
    )
    for peak in peaks:
        ridge = _ridge(roofline, peak)
        parts.append(
            f'<path class="roof" d="M{x(ridge):.0f} {y(peak):.0f}H{_WIDTH - _RIGHT}"/>'
            f'<text x="{_WIDTH - _RIGHT}" y="{y(peak) - 5:.0f}" text-anchor="end">'
            f"{peak:,.0f} TFLOP/s</text>"
        )
    # The memory roof, from the left edge or the floor up to the highest peak.
    start = max(10.0**low_x, 10.0**low_y * 1000 / roofline.bandwidth_gbps)
    end = _ridge(roofline, peaks[-1])
    rate = roofline.bandwidth_gbps / 1000
    places = [(x(dot.intensity), y(dot.tflops)) for dot in roofline.ranked]
    left, top = _beside_roof((x(start), y(start * rate)), (x(end), y(peaks[-1])), places)
    parts.append(
        f'<path class="roof" d="M{x(start):.0f} {y(start * rate):.0f}'
        f'L{x(end):.0f} {y(peaks[-1]):.0f}"/>'
        f'<text x="{left:.0f}" y="{top:.0f}">{roofline.bandwidth_gbps:,.0f} GB/s</text>'
    )
    for dot in roofline.ranked:
        at = (x(dot.intensity), y(dot.tflops))
        parts.append(_dot(dot, roofline.roof_of(dot), at, address(dot.key)))
    if len(dots) <= MOST_NUMBERED:
        parts += numbers(places)
    parts.append("</svg>")
    return Markup("".join(parts))


def _dot(dot: Dot, roof: str, at: tuple[float, float], address: str) -> str:
    """Squares under the compute roof, circles under memory's: they differ without colour."""
    x, y = at
    shape = (
        f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
        if roof == "compute"
        else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    )
    label = f"{dot.workload}: {dot.tflops:,.4g} TFLOP/s, {dot.share:.0f} % of peak"
    return (
        f'<a href="../{address}" aria-label="{escape(label)}">{shape}'
        f"<title>{escape(label)}</title></a>"
    )


def numbers(dots: Sequence[Place]) -> Iterator[str]:
    """A number beside each dot, where it hides neither a dot nor another number if that can be."""
    taken = list(dots)
    for number, (x, y) in enumerate(dots, 1):
        far = 12 if number < 10 else 16  # from the middle of a number to that of a dot
        wide = far if number < 10 else far + 4  # or of another number
        around = [(x + far, y), (x - far, y), (x, y - 14), (x, y + 14)]
        best = max(around, key=lambda at: min(_apart(at, one, wide) for one in taken))
        free = (at for at in around if all(_apart(at, one, far) >= 1 for one in dots))
        free = (at for at in free if all(_apart(at, one, wide) >= 1 for one in taken[len(dots) :]))
        left, top = next(free, best)
        taken.append((left, top))
        yield (
            f'<text class="numbered" x="{left:.0f}" y="{top + 4:.0f}" text-anchor="middle">'
            f"{number}</text>"
        )


def _beside_roof(start: Place, end: Place, dots: Sequence[Place]) -> Place:
    """Where the memory roof's words begin: below it, near its middle, clear of dots if possible."""

    def clear(place: Place) -> float:
        # The middle of the words, and half of what they and a dot with its number take.
        middle = (place[0] + 45, place[1] - 5)
        apart = (max(abs(middle[0] - x) / 70, abs(middle[1] - y) / 24) for x, y in dots)
        return min(1.0, min(apart, default=1.0))

    shares = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)
    along = [
        tuple(a + share * (b - a) for a, b in zip(start, end, strict=True)) for share in shares
    ]
    return max(((x + 10, y + 16) for x, y in along), key=clear)


def _apart(one: Place, other: Place, wide: float) -> float:
    """At least 1 where a number and a dot, or two numbers, do not touch."""
    return max(abs(one[0] - other[0]) / wide, abs(one[1] - other[1]) / 11)


def _ridge(roofline: Roofline, peak_tflops: float) -> float:
    """The intensity at which memory no longer holds a workload back."""
    return peak_tflops * 1000 / roofline.bandwidth_gbps


def _limits(values: list[float]) -> tuple[float, float]:
    """Powers of ten between which the values lie, with room on both sides."""
    return math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.2


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten between the limits; where there are few, twos and fives too."""
    parts = (1, 2, 5) if high - low < 2.5 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    values = [part * 10.0**power for power in powers for part in parts]
    return [value for value in values if low <= math.log10(value) <= high]
