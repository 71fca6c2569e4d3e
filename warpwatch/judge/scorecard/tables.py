"""How the scorecard writes figures: pairs, shares with their intervals, tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from scipy import special

from . import error_rates
from .error_rates import Detector

SEED = 2026


def share(count: int, total: int) -> str:
    """A share with its Clopper-Pearson interval."""
    low = float(special.betaincinv(count, total - count + 1, 0.025)) if count else 0.0
    high = float(special.betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return f"{count / total:.2%} ({low:.2%} to {high:.2%})"


def pair(detector: Detector | str, measure: Callable[[Detector], error_rates.Found]) -> str:
    """Precision and recall in percent; a detector that is a text is a reason why there is none."""
    if isinstance(detector, str):
        return detector
    found = measure(detector)
    return f"{100 * found.precision:.0f} / {100 * found.recall:.0f}"


def number(detector: Detector | str, measure: Callable[[Detector], float], digits: int = 2) -> str:
    """One figure, or the reason why there is none."""
    if isinstance(detector, str):
        return detector
    value = measure(detector)
    return "none" if math.isnan(value) else f"{value:.{digits}f}"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n"


def tell(text: str) -> None:
    """How far the scorecard has come, for who waits."""
    print(text, file=sys.stderr, flush=True)
