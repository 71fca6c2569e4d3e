"""The shape of a series' noise, learned from its own residuals, and the likelihood of a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The density lives on a grid of residuals: cells a sigma, and how far it reaches to each side.
CELLS_A_SIGMA = 5
REACH_SIGMA = 24
SIDE = CELLS_A_SIGMA * REACH_SIGMA
CELLS = 2 * SIDE + 1
_GRID: Floats = np.arange(-SIDE, SIDE + 1) / float(CELLS_A_SIGMA)

TINY = 1e-200  # no measurement differs by less
_FLOOR_SHARE = 0.02  # of all points may lie anywhere: what one spike can say is bounded by this
_SPARSE = 0.1  # cells below this share of the peak are smoothed widely: spikes are no modes
_ONE_MODE_WIDTH, _MODAL_WIDTH, _SPARSE_WIDTH, _MODE_WIDTH = 0.35, 0.22, 3.0, 0.20
_LEAST_MODE = 0.15  # a mode is at least this high, beside the highest
_VALLEY = 0.8  # and the valley before it at most this deep, beside the lower of the two
_MIXTURE_SHARE = 0.7
_MIXTURE_ROUNDS = 10
_HELD = 128


def robust_sigma(residuals: Floats) -> float:
    """1.4826 times the median absolute residual: the deviation of a normal core.

    Where more than half of the points sit exactly on the level (counts, quantised clocks) the
    90th percentile stands in, then the smallest difference there is: never zero unless every
    residual is.
    """
    size = np.abs(residuals)
    sigma = 1.4826 * median(size)
    if sigma > TINY:
        return sigma
    sigma = float(np.quantile(size, 0.9)) / 1.645
    if sigma > TINY:
        return sigma
    some = size[size > TINY]
    return float(some.min()) if len(some) else 0.0


def median(values: Floats) -> float:
    """The median of at least one finite value: as ``numpy.median``, in a fifth of its time."""
    middle, order = len(values) // 2, values.copy()
    order.sort()
    if len(values) % 2:
        return float(order[middle])
    return (float(order[middle - 1]) + float(order[middle])) / 2.0


@dataclass(frozen=True)
class NoiseShape:
    """A smooth density of the noise around a level, heavy-tailed by construction.

    No single point can say more than the log of the floor, so spikes carry bounded evidence;
    modes are part of the shape, so a point in the second mode is no evidence at all.
    """

    sigma: float
    log_density: Floats
    modes: int

    def log_likelihood(self, residuals: Floats) -> Floats:
        return self.log_density.take(cells_of(residuals, self.sigma))


def learn(residuals: Floats, sigma: float) -> NoiseShape:
    """The density of ``residuals``: a kernel estimate, narrow where there are modes and wide
    where points are sparse; with modes, blended with a mixture of normals."""
    ends = np.array([0, len(residuals)])
    return learn_all(residuals, ends, np.array([sigma]))[0][0]


def learn_all(
    residuals: Floats, ends: NDArray[np.int64], sigmas: Floats
) -> tuple[list[NoiseShape], NDArray[np.int64]]:
    """``learn`` of many series, end to end.

    Args:
        residuals: of all series.
        ends: where each series begins, and where the last one ends.
        sigmas: of each series.

    Returns:
        Their shapes, and the cell of each residual.
    """
    lengths = np.diff(ends)
    count, owner = len(lengths), np.repeat(np.arange(len(lengths)), lengths)
    cells = cells_of(residuals, sigmas[owner])
    counts = np.bincount(cells + owner * CELLS, minlength=count * CELLS).astype(np.float64)
    counts = counts.reshape(count, CELLS)
    counts[:, [0, -1]] = 0.0
    widen = [_widen(n) for n in lengths.tolist()]
    centres = _modes_of_rows(_smoothed_rows(counts, [_MODE_WIDTH * one for one in widen]))
    widths = [
        (_ONE_MODE_WIDTH if len(found) == 1 else _MODAL_WIDTH) * one
        for found, one in zip(centres, widen, strict=True)
    ]
    pilot = _smoothed_rows(counts, widths)
    dense = pilot >= _SPARSE * pilot.max(axis=1)[:, None]
    smooth = _smoothed_rows(np.where(dense, counts, 0.0), widths)
    smooth += _smoothed_rows(np.where(dense, 0.0, counts), [_SPARSE_WIDTH] * count)
    smooth *= (CELLS_A_SIGMA / lengths)[:, None]
    floor_share = np.maximum(_FLOOR_SHARE, 2.0 / lengths)[:, None]
    floor = floor_share / (2.0 * REACH_SIGMA)
    for number in (2, 3):
        rows = [row for row, found in enumerate(centres) if len(found) == number]
        if rows:
            middles = _GRID[[centres[row] for row in rows]]
            mixture = _mixture(counts[rows], middles, floor_share[rows], floor[rows])
            smooth[rows] = (1.0 - _MIXTURE_SHARE) * smooth[rows] + _MIXTURE_SHARE * mixture
    density = np.log((1.0 - floor_share) * smooth + floor)
    shapes = [
        NoiseShape(sigma=sigma, log_density=row, modes=len(found))
        for sigma, row, found in zip(sigmas.tolist(), density, centres, strict=True)
    ]
    return shapes, cells


def count_modes(residuals: Floats, sigma: float) -> int:
    """How many separate peaks the density of ``residuals`` has, as ``learn`` sees it."""
    counts = _counted(residuals, sigma)
    return len(_modes(_smoothed(counts, _MODE_WIDTH * _widen(len(residuals)))))


def count_modes_of_rows(residuals: Floats, sigmas: Floats) -> list[int]:
    """``count_modes`` of each row."""
    count = len(residuals)
    # A row's cells lie behind those of the rows before.
    cells = cells_of(residuals, sigmas[:, None])
    cells += np.arange(0, count * CELLS, CELLS)[:, None]
    counts = np.bincount(cells.ravel(), minlength=count * CELLS).astype(np.float64)
    counts = counts.reshape(count, CELLS)
    counts[:, [0, -1]] = 0.0
    width = _MODE_WIDTH * _widen(residuals.shape[1])
    return list(map(len, _modes_of_rows(_smoothed_rows(counts, [width] * count))))


def _modes_of_rows(density: Floats) -> list[list[int]]:
    """``_modes`` of each row."""
    inner = density[:, 1:-1]
    peaks = (inner > density[:, :-2]) & (inner >= density[:, 2:])
    peaks &= inner > _LEAST_MODE * density.max(axis=1)[:, None]
    places = (np.nonzero(peaks)[1] + 1).tolist()
    ends = [0, *np.cumsum(np.count_nonzero(peaks, axis=1)).tolist()]
    return [
        _parted(row, places[first:end])
        for row, (first, end) in zip(density, pairwise(ends), strict=True)
    ]


def _counted(residuals: Floats, sigma: float) -> Floats:
    counts = np.bincount(cells_of(residuals, sigma), minlength=CELLS).astype(np.float64)
    counts[0] = counts[-1] = 0.0
    return counts


def _widen(points: int) -> float:
    """Few points are smoothed widely."""
    return float((200.0 / points) ** 0.2)


def cells_of(residuals: Floats, sigma: float | Floats) -> NDArray[np.int64]:
    reach = REACH_SIGMA * sigma
    place = np.maximum(residuals, -reach)
    np.minimum(place, reach, out=place)
    place *= CELLS_A_SIGMA / sigma
    place += SIDE + 0.5  # cut off instead of rounded: the same, and faster
    return place.astype(np.int64)


def _modes(density: Floats) -> list[int]:
    """Cells of the separate peaks of a smooth density."""
    return _modes_of_rows(density[None])[0]


def _parted(density: Floats, peaks: Sequence[int]) -> list[int]:
    """Of the ``peaks`` of a density those with a valley in between."""
    kept: list[int] = []
    for peak in peaks:
        if kept:
            lower = min(density[kept[-1]], density[peak])
            if density[kept[-1] : peak].min() > _VALLEY * lower:
                if density[peak] > density[kept[-1]]:
                    kept[-1] = peak
                continue
        kept.append(peak)
    return kept or [int(density.argmax())]


def _mixture(counts: Floats, middles: Floats, floor_share: Floats, floor: Floats) -> Floats:
    """Normals at ``middles``, fitted to the cell counts of each row by expectation and
    maximisation; their widths are drawn half-way to the common one, which few points estimate
    better."""
    held = np.count_nonzero(counts, axis=1)
    found = np.empty_like(counts)
    # Most cells are empty, and tell nothing. As many take part in a row whatever lies next to it.
    few = held <= _HELD
    for rows, cells in ((np.flatnonzero(few), _HELD), (np.flatnonzero(~few), CELLS)):
        if len(rows):
            places = np.argsort(counts[rows] == 0.0, axis=1, kind="stable")[:, :cells]
            some = np.take_along_axis(counts[rows], places, axis=1)
            given = _GRID[places], some, floor_share[rows], floor[rows]
            found[rows] = _mixed(middles[rows], *given)
    return found


def _mixed(
    middle: Floats, grid: Floats, some: Floats, floor_share: Floats, floor: Floats
) -> Floats:
    width = np.full(middle.shape, 0.5)
    weight = np.full(middle.shape, 1.0 / middle.shape[1])
    total = np.maximum(some.sum(axis=1, keepdims=True), 1.0)
    powers = np.stack((np.ones_like(grid), grid, grid * grid), axis=2)

    def parts(at: Floats) -> Floats:
        each = at[:, None, :] - middle[:, :, None]
        each /= width[:, :, None]
        each *= each
        each *= -0.5
        np.exp(each, out=each)
        each *= (weight / width / 2.5066)[:, :, None]
        return each

    for _ in range(_MIXTURE_ROUNDS):
        share = parts(grid)
        share *= (some / (share.sum(axis=1) + floor))[:, None, :]
        moments = share @ powers
        mass = moments[:, :, 0] + 1e-9
        middle = moments[:, :, 1] / mass
        around = moments[:, :, 2] - 2.0 * middle * moments[:, :, 1]
        variance = (around + middle * middle * moments[:, :, 0]) / mass
        common = (variance * mass).sum(axis=1, keepdims=True) / mass.sum(axis=1, keepdims=True)
        width = np.sqrt(np.maximum(0.5 * (variance + common), 0.04))
        weight = mass / total * (1.0 - floor_share)
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
    out: Floats = parts(_GRID[None]).sum(axis=1)
    return out


@cache
def _kernel(hundredths: int) -> Floats:
    width = hundredths / 100.0 * CELLS_A_SIGMA
    reach = int(3.5 * width) + 1
    grid = np.arange(-reach, reach + 1) / width
    weights = np.exp(-0.5 * grid * grid)
    out: Floats = weights / weights.sum()
    return out


def _smoothed(counts: Floats, width_sigma: float) -> Floats:
    """``counts`` under a normal kernel, at most a quarter of the grid wide."""
    kernel = _kernel(round(min(width_sigma, REACH_SIGMA / 4.0) * 100))
    # Kernels are symmetric: what is correlated is convolved.
    return np.correlate(counts, kernel, mode="same").astype(np.float64, copy=False)


def _smoothed_rows(counts: Floats, widths_sigma: Sequence[float]) -> Floats:
    return np.array([_smoothed(*one) for one in zip(counts, widths_sigma, strict=True)])
