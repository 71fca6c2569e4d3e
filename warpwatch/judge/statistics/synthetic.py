"""Series with a known truth: noise as GPU histories have it, with and without a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["plain", "lognormal", "bimodal", "autocorrelated", "drifting", "gpu-like"]
KINDS: tuple[Kind, ...] = ("lognormal", "bimodal", "autocorrelated", "drifting", "gpu-like")

SLOW_SHARE = 0.02
SECOND_MODE_SHARE = 0.3
SECOND_MODE_SIGMA = 4.0
LAG_ONE = 0.4
DRIFT_SIGMA = 2.0


@dataclass(frozen=True)
class Truth:
    """A made series and where its level really changes (``None``: nowhere)."""

    values: Floats
    step: int | None


def noise(kind: Kind, points: int, sigma: float, random: np.random.Generator) -> Floats:
    """Log-noise of ``points`` results. Every kind but ``plain`` has 2 % slow outliers of 5 to 30 %.

    ``bimodal``: 30 % of the points sit in a second mode 4 sigma up. ``autocorrelated``: a lag-1
    correlation of 0.4. ``drifting``: lognormal, sliding 2 sigma over the whole series.
    ``gpu-like``: what histories of public GPU projects show at once: lag-1 correlation near 0.4
    from a slowly wandering level, heavy tails (about 8 % beyond 5 robust sigma), sticky outliers.
    """
    white = random.normal(0.0, sigma, points)
    if kind == "plain":
        return white
    slow = np.where(random.random(points) < SLOW_SHARE, random.uniform(0.05, 0.3, points), 0.0)
    if kind == "bimodal":
        upper = random.random(points) < SECOND_MODE_SHARE
        white += np.where(upper, SECOND_MODE_SIGMA * sigma, 0.0)
    elif kind == "autocorrelated":
        white = _ar1(white * np.sqrt(1 - LAG_ONE**2), LAG_ONE, sigma, random)
    elif kind == "drifting":
        white += DRIFT_SIGMA * sigma * np.linspace(0.0, 1.0, points)
    elif kind == "gpu-like":
        wander = _ar1(random.normal(0.0, sigma, points) * np.sqrt(1 - 0.8**2), 0.8, sigma, random)
        bursts = _sticky(points, share=0.08, stay=0.5, random=random)
        size = random.lognormal(np.log(6.0 * sigma), 0.8, points)
        white = 0.75 * wander + 0.75 * white
        slow = np.where(bursts, size, 0.0)
    white += slow
    return white


def series(
    kind: Kind,
    points: int,
    sigma: float,
    random: np.random.Generator,
    *,
    step: float = 0.0,
    margin: int = 20,
) -> Truth:
    """A series around 100 us; a ``step`` (0.02: 2 % up) starts at a random point at least
    ``margin`` from both ends."""
    log_values = noise(kind, points, sigma, random)
    where: int | None = None
    if step:
        where = int(random.integers(margin, points - margin + 1))
        log_values[where:] += np.log1p(step)
    return Truth(values=100.0 * np.exp(log_values), step=where)


def places(points: int, steps: int, gap: int, random: np.random.Generator) -> list[int]:
    """Where ``steps`` changes of a series lie, at random.

    Args:
        points: of the series.
        steps: how many changes.
        gap: points that each level has at least.
        random: the source of chance.

    Returns:
        Indexes of the first points of the new levels, ascending.
    """
    free = np.sort(random.integers(0, points - gap * (steps + 1) + 1, steps))
    found: list[int] = (free + gap * np.arange(1, steps + 1)).tolist()
    return found


def _ar1(shocks: Floats, lag_one: float, sigma: float, random: np.random.Generator) -> Floats:
    out = np.empty_like(shocks)
    last = random.normal(0.0, sigma)
    for i, shock in enumerate(shocks):
        last = lag_one * last + shock
        out[i] = last
    return out


def _sticky(
    points: int, *, share: float, stay: float, random: np.random.Generator
) -> NDArray[np.bool_]:
    """A two-state chain that is on for ``share`` of the time and stays on with ``stay``."""
    enter = share * (1.0 - stay) / (1.0 - share)
    draws = random.random(points)
    out = np.zeros(points, dtype=bool)
    on = bool(random.random() < share)
    for i, draw in enumerate(draws):
        on = bool(draw < (stay if on else enter))
        out[i] = on
    return out
