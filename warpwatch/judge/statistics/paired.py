"""What runs of two versions say about their ratio: a robust test, an estimate and its reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Runs = Sequence[float] | Floats
Test = Literal["groups", "pairs", "distribution"]

_TRIM = 0.13  # of each side, rounded so that one outlier among six is gone
FINEST = 1e-4  # no measurement is trusted beyond this share of its value
_FLIPS = 4096
# Runs that lie apart as far, or as close, only so often, were the prior right, refute it: one that
# is too large hides a change, one that is too small makes one up.
_TOO_FAR, _TOO_CLOSE = 0.05, 0.01
_SEED = 20


def _special() -> Any:
    """Imported by whoever compares: it takes longer than a small report takes to build."""
    from scipy import special

    return special


@dataclass(frozen=True)
class Prior:
    """How far runs of one version lie apart, as earlier ones did: a relative standard deviation,
    which is worth ``weight`` degrees of freedom."""

    sigma: float
    weight: float


@dataclass(frozen=True)
class Comparison:
    """Head against base, on the scale of logarithms of ratios, or of plain differences where a
    value is not positive (``scale``).

    ``shift`` is the difference of trimmed means; ``error`` its standard error, with
    ``freedom`` degrees of it; ``p_value`` is two-sided. ``by_prior`` where a prior joined it.
    """

    pairs: int
    scale: Literal["ratio", "difference"]
    shift: float
    error: float
    freedom: float
    p_value: float
    base_level: float
    by_prior: bool = False

    @property
    def ratio(self) -> float:
        """Head over base."""
        if self.scale == "ratio":
            return float(np.exp(self.shift))
        if self.base_level == 0.0:
            return 1.0 if self.shift == 0.0 else float("inf")
        return 1.0 + self.shift / self.base_level

    def p_value_at(self, noise: float) -> float:
        """The p-value of ``shift`` were its error ``noise`` times as large."""
        if self.error == 0.0 or self.freedom == 0.0:
            return self.p_value
        return float(2.0 * _special().stdtr(self.freedom, -abs(self.shift) / (noise * self.error)))

    def interval(self, coverage: float) -> tuple[float, float]:
        """Of ``shift``."""
        reach = self.error * float(_special().stdtrit(max(self.freedom, 1.0), 0.5 + coverage / 2.0))
        return self.shift - reach, self.shift + reach


def compare(base: Runs, head: Runs, test: Test, prior: Prior | None = None) -> Comparison:
    """Compare two groups of runs; runs that are not finite are left out (with their partner).

    ``groups`` ignores which runs were neighbours, ``pairs`` takes the slow wandering of the
    machine out, ``distribution`` takes its p-value from the distance of the two distributions,
    which modes and ties do not drown. A ``prior`` joins the variance that the runs show, unless
    they lie apart far more or far less than it says.
    """
    a, b = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    if test == "groups":
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    else:
        if len(a) != len(b):
            raise ValueError(f"expected as many base as head runs, got {len(a)} and {len(b)}")
        whole = np.isfinite(a) & np.isfinite(b)
        a, b = a[whole], b[whole]
    n = min(len(a), len(b))
    known = prior is not None and (a > 0.0).all() and (b > 0.0).all()
    if n < (1 if known else 2):
        nan = float("nan")
        return Comparison(n, "ratio", nan, float("inf"), 0.0, 1.0, nan)
    # The largest magnitudes would overflow in squares; no measurement has them.
    a, b = np.clip(a, -1e70, 1e70), np.clip(b, -1e70, 1e70)
    base_level = float(np.median(a))
    scale: Literal["ratio", "difference"] = "difference"
    if (a > 0.0).all() and (b > 0.0).all():
        scale, a, b = "ratio", np.log(a), np.log(b)
    if test == "pairs":
        shift, variance, kept = _trimmed(b - a)
        freedom = float(kept - 1)
    else:
        base_mean, base_variance, base_kept = _trimmed(a)
        head_mean, head_variance, head_kept = _trimmed(b)
        shift, variance = head_mean - base_mean, base_variance + head_variance
        parts = base_variance * base_variance / (base_kept - 1) + head_variance * head_variance / (
            head_kept - 1
        )
        freedom = variance * variance / parts if parts > 0.0 else float(base_kept + head_kept - 2)
    by_prior = False
    if prior is not None and scale == "ratio":
        freedom = freedom if n > 1 else 0.0
        expected = 2.0 * prior.sigma**2 / n
        by_prior = _agree(variance / expected, freedom, prior.weight)
        if by_prior:
            variance, freedom = _joined(variance, freedom, expected, prior.weight)
    # Runs that agree to the last digit prove no more than this about the next one.
    floor = FINEST * (1.0 if scale == "ratio" else abs(base_level)) / np.sqrt(n)
    error = max(float(np.sqrt(variance)), float(floor))
    if test == "distribution":
        p_value = _flip_test(a, b)
    elif error == 0.0:
        # All of base is exactly zero: what n runs a side prove is the ways to order them.
        p_value = 1.0 if shift == 0.0 else float(2.0 / _special().comb(2 * n, n))
    else:
        p_value = float(2.0 * _special().stdtr(freedom, -abs(shift) / error))
    return Comparison(n, scale, shift, error, freedom, p_value, base_level, by_prior)


def _joined(variance: float, freedom: float, expected: float, weight: float) -> tuple[float, float]:
    """The variance of a difference of means and its degrees of freedom, from the runs' own and the
    prior's: a scaled inverse chi-squared prior, which is conjugate to normal runs (Gelman and
    others, Bayesian Data Analysis, section 2.6)."""
    whole = freedom + weight
    return (freedom * variance + weight * expected) / whole, whole


def _agree(ratio: float, freedom: float, weight: float) -> bool:
    """Whether the variance that runs show, over that of a prior, could come of one spread. One run
    a side shows none."""
    if freedom <= 0.0:
        return True
    above = _special().fdtrc(freedom, weight, ratio)
    return bool(_TOO_FAR <= above <= 1.0 - _TOO_CLOSE)


def paired_correlation(base: Runs, head: Runs) -> float:
    """Rank correlation of the members of pairs: above zero where the machine wanders."""
    a, b = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    whole = np.isfinite(a) & np.isfinite(b)
    a, b = a[whole].argsort().argsort(), b[whole].argsort().argsort()
    n = len(a)
    if n < 3:
        return 0.0
    # Of ranks without ties, which argsort gives, Spearman's formula is exact.
    return 1.0 - 6.0 * float(((a - b) ** 2).sum()) / (n * (n * n - 1))


def _trimmed(values: Floats) -> tuple[float, float, int]:
    """Trimmed mean, its squared standard error (from the winsorised variance), points kept."""
    n = len(values)
    if n == 1:
        return float(values[0]), 0.0, 2
    cut = int(_TRIM * n + 0.25)
    order = np.sort(values)
    kept = n - 2 * cut
    winsorised = np.clip(order, order[cut], order[n - cut - 1])
    variance = float(winsorised.var()) * n / (kept * max(kept - 1, 1))
    return float(order[cut : n - cut].mean()), variance, max(kept, 2)


def _flip_test(a: Floats, b: Floats) -> float:
    """Two-sided p-value of the Anderson-Darling distance of the two sides, under all ways (or
    4096 of them) of swapping the members of pairs: their order was random."""
    n = len(a)
    together = np.sort(np.concatenate((a, b)))
    thresholds = together[:-1][np.diff(together) > 0.0]
    if len(thresholds) == 0:
        return 1.0
    below = np.searchsorted(together, thresholds, side="right") / (2.0 * n)
    weight = 1.0 / (below * (1.0 - below))
    moved = (b[:, None] <= thresholds).astype(np.float64) - (a[:, None] <= thresholds)
    if n <= 12:
        codes = np.arange(2**n)
        signs = 1.0 - 2.0 * ((codes[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(_SEED).choice((-1.0, 1.0), size=(_FLIPS, n))
        signs[0] = 1.0
    distance = (signs @ moved) ** 2 @ weight
    return float(np.mean(distance >= distance[0] * (1.0 - 1e-12)))
