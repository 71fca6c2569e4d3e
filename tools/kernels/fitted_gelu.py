"""Fits the polynomial of ``short_gelu`` and measures it.

    python -m tools.kernels.fitted_gelu

Prints the coefficients and the errors stated in ``kernels/matmul/common/activation.py``.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import log_ndtr, ndtr

DEGREE = 9
# From here on Phi(-t) rounds to zero in fp32: below half of the smallest number, 2^-150.
END = 14.5
# fp16 rounds gelu(-t) to zero from here on: only bf16 remains, whose rounding is 8 times coarser.
FP16_END = 5.8
# gelu(-t) stops being a normal number of fp32, and of bf16.
NORMAL_END = 12.9


def exact(x: np.ndarray) -> np.ndarray:
    """gelu in fp64: relative error below 1e-13 also where it is small (scipy's ndtr)."""
    product: np.ndarray = x * ndtr(x)
    return product


def fit(points: int = 3000) -> np.ndarray:
    """Coefficients, lowest first: the largest error of log2 Phi(-t), weighted by what the output's
    rounding allows, is least; a linear program over Chebyshev's points."""
    from scipy.optimize import linprog  # a second that evaluating needs not

    t = END / 2 * (1 - np.cos(np.pi * (np.arange(points) + 0.5) / points))
    truth = log_ndtr(-t) / np.log(2)
    # Beyond, it need only stay far below the smallest number.
    allowed = np.select([t < FP16_END, t < 13.3], [1.0, 8.0], 1e6)
    basis = np.polynomial.chebyshev.chebvander(2 * t / END - 1, DEGREE) / allowed[:, None]
    truth = truth / allowed
    minus_error = -np.ones((points, 1))
    found = linprog(
        np.r_[np.zeros(DEGREE + 1), 1.0],
        A_ub=np.block([[basis, minus_error], [-basis, minus_error]]),
        b_ub=np.r_[truth, -truth],
        bounds=[(None, None)] * (DEGREE + 1) + [(0, None)],
    )
    assert found.success, found.message
    series = np.polynomial.Chebyshev(found.x[:-1], domain=[0, END])
    coefficients: np.ndarray = series.convert(kind=np.polynomial.Polynomial).coef
    return coefficients


def evaluated(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """``short_gelu`` of fp32 values, with every multiply-add rounded once, as GPUs do."""
    t = np.minimum(np.abs(x), np.float32(END))
    log2_phi = np.full_like(t, coefficients[-1])
    for coefficient in coefficients[-2::-1].astype(np.float32):
        exactly = log2_phi.astype(np.float64) * t + np.float64(coefficient)
        log2_phi = exactly.astype(np.float32)
    phi = np.exp2(log2_phi.astype(np.float64)).astype(np.float32)
    result: np.ndarray = (np.maximum(x, 0.0) - t.astype(np.float64) * phi).astype(np.float32)
    return result


def relative_errors(found: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """The largest where fp16 has numbers, and where only bf16 has them."""
    truth = exact(x.astype(np.float64))
    error = np.abs(found - truth) / np.abs(truth)
    in_fp16 = np.abs(x) < FP16_END
    return float(error[in_fp16].max()), float(error[~in_fp16].max())


def grid(points: int) -> np.ndarray:
    """fp32 values between the ends of bf16's normal results, small ones among them; no zero."""
    wide = np.linspace(-NORMAL_END, NORMAL_END, points)
    small = np.geomspace(1e-30, 1.0, points // 10)
    values: np.ndarray = np.concatenate([wide[wide != 0.0], small, -small]).astype(np.float32)
    return values


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m tools.kernels.fitted_gelu",
        description="fit the polynomial of short_gelu and print its errors",
    ).parse_args()
    coefficients = fit()
    for power, coefficient in reversed(list(enumerate(coefficients))):
        print(f"t^{power}: {np.float32(coefficient):.9g}")
    x = grid(2_000_000)
    largest = relative_errors(evaluated(x, coefficients), x)
    print(f"relative error: {largest[0]:.2g} for |x| < {FP16_END}, {largest[1]:.2g} beyond")


if __name__ == "__main__":
    main()
