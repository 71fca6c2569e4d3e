"""Roofs of a card that has no datasheet: the ceilings that were measured on it, from evidence.

They are what a library's product and a stream reached. The instrument tells them where shares of
peak are of these and not of a datasheet; a card that looks like a known one by name is not one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch.judge.results.strict_json import Fields, RejectedError, is_text, text

_MOST_DTYPES = 20


@dataclass(frozen=True)
class Ceilings:
    """``card`` is the driver's name; TFLOP/s by dtype, and GB/s where a stream could be timed."""

    card: str
    peaks_tflops: Mapping[str, float]
    bandwidth_gbps: float | None

    @property
    def said(self) -> str:
        rates = [f"{dtype} {peak:.0f} TFLOP/s" for dtype, peak in self.peaks_tflops.items()]
        if self.bandwidth_gbps is not None:
            rates.append(f"{self.bandwidth_gbps:.0f} GB/s")
        return ", ".join(rates) or "nothing"


def ceilings_of(path: Path, data: dict[str, Any]) -> Ceilings | None:
    """The ceilings in what was read of ``path``; ``None`` where there are none, ``RejectedError``
    where they are not what they should be."""
    found = data.get("ceilings")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise RejectedError(path, [f"ceilings: expected an object, got {text(found)}"])
    problems: list[str] = []
    fields = Fields(found, problems, "ceilings.")
    fields.need("source", "card", "peaks")
    fields.take("source", lambda value: value == "measured", "measured", "")
    card = fields.string("card")
    peaks = fields.take("peaks", _are_peaks, "an object of dtypes, each with tflops above 0", {})
    bandwidth = fields.take("bandwidth_gbps", _is_rate, "a number above 0", None)
    if problems:
        raise RejectedError(path, problems)
    shown = "".join(c if c.isprintable() else " " for c in card[:80])
    return Ceilings(shown, {dtype: float(one["tflops"]) for dtype, one in peaks.items()}, bandwidth)


def _are_peaks(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= _MOST_DTYPES
        and all(
            is_text(dtype)
            and dtype.isalnum()
            and isinstance(one, dict)
            and _is_rate(one.get("tflops"))
            for dtype, one in value.items()
        )
    )


def _is_rate(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < 1e30 and math.isfinite(value)
