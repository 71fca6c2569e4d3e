"""The shape of a series' noise, learned from its own residuals, and the likelihood of a level."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The density lives on a grid of residuals: cells a sigma, and how far it reaches to each side.
CELLS_A_SIGMA = 5
REACH_SIGMA = 24
SIDE = CELLS_A_SIGMA * REACH_SIGMA
_CELLS = 2 * SIDE + 1
_GRID: Floats = np.arange(-SIDE, SIDE + 1) / float(CELLS_A_SIGMA)

TINY = 1e-200  # no measurement differs by less
_FLOOR_SHARE = 0.02  # of all points may lie anywhere: what one spike can say is bounded by this
_SPARSE = 0.1  # cells below this share of the peak are smoothed widely: spikes are no modes
_ONE_MODE_WIDTH, _MODAL_WIDTH, _SPARSE_WIDTH, _MODE_WIDTH = 0.35, 0.22, 3.0, 0.20
_LEAST_MODE = 0.15  # a mode is at least this high, beside the highest
_VALLEY = 0.8  # and the valley before it at most this deep, beside the lower of the two
_MIXTURE_SHARE = 0.7
_MIXTURE_ROUNDS = 10


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
    middle, order = len(values) // 2, np.sort(values)
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
    _highest: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)

    def log_likelihood(self, residuals: Floats) -> Floats:
        return self.log_density.take(_cells(residuals, self.sigma))

    def highest(self, reach: int) -> Floats:
        """Of each cell and those at most ``reach`` cells away, the highest log-density."""
        reach = min(reach, _CELLS)
        found = self._highest.get(reach)
        if found is None:
            found = self._highest[reach] = _highest_near(self.log_density, reach)
        return found


def learn(residuals: Floats, sigma: float) -> NoiseShape:
    """The density of ``residuals``: a kernel estimate, narrow where there are modes and wide
    where points are sparse; with modes, blended with a mixture of normals."""
    n, widen = len(residuals), _widen(residuals)
    counts = _counted(residuals, sigma)
    centres = _modes(_smoothed(counts, _MODE_WIDTH * widen))
    width = (_ONE_MODE_WIDTH if len(centres) == 1 else _MODAL_WIDTH) * widen
    pilot = _smoothed(counts, width)
    dense = pilot >= _SPARSE * pilot.max()
    smooth = _smoothed(np.where(dense, counts, 0.0), width)
    smooth += _smoothed(np.where(dense, 0.0, counts), _SPARSE_WIDTH)
    smooth *= CELLS_A_SIGMA / n
    floor_share = max(_FLOOR_SHARE, 2.0 / n)
    floor = floor_share / (2.0 * REACH_SIGMA)
    if 2 <= len(centres) <= 3:
        mixture = _mixture(counts, centres, floor_share, floor)
        smooth = (1.0 - _MIXTURE_SHARE) * smooth + _MIXTURE_SHARE * mixture
    density = (1.0 - floor_share) * smooth + floor
    return NoiseShape(sigma=sigma, log_density=np.log(density), modes=len(centres))


def count_modes(residuals: Floats, sigma: float) -> int:
    """How many separate peaks the density of ``residuals`` has, as ``learn`` sees it."""
    counts = _counted(residuals, sigma)
    return len(_modes(_smoothed(counts, _MODE_WIDTH * _widen(residuals))))


def count_modes_of_rows(residuals: Floats, sigmas: Floats) -> list[int]:
    """``count_modes`` of each row."""
    count = len(residuals)
    # A row's cells lie behind those of the rows before.
    cells = _cells(residuals, sigmas[:, None])
    cells += np.arange(0, count * _CELLS, _CELLS)[:, None]
    counts = np.bincount(cells.ravel(), minlength=count * _CELLS).astype(np.float64)
    counts = counts.reshape(count, _CELLS)
    counts[:, [0, -1]] = 0.0
    width = _MODE_WIDTH * _widen(residuals[0])
    density = np.array([_smoothed(row, width) for row in counts])
    # Where a single cell is higher than its neighbours there is nothing to weigh.
    inner = density[:, 1:-1]
    peaks = (inner > density[:, :-2]) & (inner >= density[:, 2:])
    peaks &= inner > _LEAST_MODE * density.max(axis=1)[:, None]
    alone = np.count_nonzero(peaks, axis=1) <= 1
    return [1 if one else len(_modes(row)) for one, row in zip(alone, density, strict=True)]


def _counted(residuals: Floats, sigma: float) -> Floats:
    counts = np.bincount(_cells(residuals, sigma), minlength=_CELLS).astype(np.float64)
    counts[0] = counts[-1] = 0.0
    return counts


def _widen(residuals: Floats) -> float:
    """Few points are smoothed widely."""
    return float((200.0 / len(residuals)) ** 0.2)


def _highest_near(values: Floats, reach: int) -> Floats:
    edge = np.full(reach, -np.inf)
    found = np.concatenate((edge, values, edge))
    width, wanted = 1, 2 * reach + 1
    while 2 * width <= wanted:
        found = np.maximum(found[:-width], found[width:])
        width *= 2
    highest: Floats = np.maximum(found[: len(values)], found[wanted - width :])
    return highest


def _cells(residuals: Floats, sigma: float | Floats) -> NDArray[np.int64]:
    reach = REACH_SIGMA * sigma
    place = np.maximum(residuals, -reach)
    np.minimum(place, reach, out=place)
    place *= CELLS_A_SIGMA / sigma
    place += SIDE + 0.5  # cut off instead of rounded: the same, and faster
    return place.astype(np.int64)


def _modes(density: Floats) -> list[int]:
    """Cells of the separate peaks of a smooth density."""
    inner = density[1:-1]
    least = _LEAST_MODE * density.max()
    peaks = np.flatnonzero((inner > density[:-2]) & (inner >= density[2:]) & (inner > least)) + 1
    kept: list[int] = []
    for peak in peaks.tolist():
        if kept:
            lower = min(density[kept[-1]], density[peak])
            if density[kept[-1] : peak].min() > _VALLEY * lower:
                if density[peak] > density[kept[-1]]:
                    kept[-1] = peak
                continue
        kept.append(peak)
    return kept or [int(density.argmax())]


def _mixture(counts: Floats, centres: list[int], floor_share: float, floor: float) -> Floats:
    """Normals at ``centres``, fitted to the cell counts by expectation and maximisation; their
    widths are drawn half-way to the common one, which few points estimate better."""
    middle = _GRID[centres]
    width = np.full(len(centres), 0.5)
    weight = np.full(len(centres), 1.0 / len(centres))
    total = max(float(counts.sum()), 1.0)
    held = np.flatnonzero(counts)  # most cells are empty, and tell nothing
    grid, some = _GRID[held], counts[held]

    def parts(at: Floats) -> Floats:
        distance = (at - middle[:, None]) / width[:, None]
        each: Floats = (weight / width / 2.5066)[:, None] * np.exp(-0.5 * distance * distance)
        return each

    for _ in range(_MIXTURE_ROUNDS):
        each = parts(grid)
        share = each / (each.sum(axis=0) + floor) * some
        mass = share.sum(axis=1) + 1e-9
        middle = (share @ grid) / mass
        variance = (share * (grid - middle[:, None]) ** 2).sum(axis=1) / mass
        common = float(variance @ mass) / float(mass.sum())
        width = np.sqrt(np.maximum(0.5 * (variance + common), 0.04))
        weight = mass / total * (1.0 - floor_share)
        weight /= max(float(weight.sum()), 1e-9)
    out: Floats = parts(_GRID).sum(axis=0)
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
