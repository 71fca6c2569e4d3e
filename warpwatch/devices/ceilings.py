"""Roofs of a card that has no datasheet: the highest rates that were measured on it.

They are what a library's product and a copy reached, not what the hardware can do: a share of them
may pass 100 %, and no time is ever refused for being faster than they allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .datasheet import DTYPES, Device, canonical_dtype


@dataclass(frozen=True)
class Ceiling:
    """TFLOP/s of the fastest product of one dtype and the SM clock it ran at, where that is
    known."""

    tflops: float
    clock_ghz: float | None = None


@dataclass(frozen=True)
class Ceilings:
    """What was measured on ``card`` (the driver's name of it): ``peaks`` by dtype, none where the
    card or the library has no product of it, and the GB/s of a stream (none if nothing fitted)."""

    card: str
    peaks: Mapping[str, Ceiling] = field(default_factory=dict)
    bandwidth_gbps: float | None = None

    def has(self, dtype: str) -> bool:
        return canonical_dtype(dtype) in self.peaks

    def peak(self, dtype: str, *, clock_ghz: float | None = None) -> float:
        """TFLOP/s in ``dtype``, scaled to ``clock_ghz`` where the clock of the ceiling is known.
        ``ValueError`` where no product of that dtype could be measured."""
        if not self.has(dtype):
            known = " ".join(self.peaks) or "none"
            raise ValueError(f"no ceiling of {dtype} on {self.card!r}: measured were {known}")
        found = self.peaks[canonical_dtype(dtype)]
        if clock_ghz is None or found.clock_ghz is None:
            return found.tflops
        return found.tflops * clock_ghz / found.clock_ghz

    @property
    def said(self) -> str:
        """One line for who reads the shares: what they are of."""
        rates = [f"{dtype} {peak.tflops:.0f}" for dtype, peak in self.peaks.items()]
        parts = [f"TFLOP/s of large products: {', '.join(rates)}"] if rates else []
        if self.bandwidth_gbps is not None:
            parts.append(f"{self.bandwidth_gbps:.0f} GB/s of a stream")
        what = f"ceilings measured on it ({'; '.join(parts)})" if parts else "nothing"
        return f"no datasheet of {self.card!r}: shares are of {what}, times have no floor"

    def to_json(self) -> dict[str, Any]:
        return {"source": "measured", **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Ceilings:
        """Strict: anything else than :meth:`to_json` wrote raises ``ValueError``."""
        try:
            if data["source"] != "measured" or not isinstance(data["card"], str):
                raise ValueError("source or card")
            peaks = {
                str(dtype): Ceiling(_amount(one["tflops"]), _amount_or_none(one["clock_ghz"]))
                for dtype, one in data["peaks"].items()
                if dtype in DTYPES
            }
            return cls(data["card"], peaks, _amount_or_none(data["bandwidth_gbps"]))
        except (KeyError, TypeError, AttributeError, ValueError) as wrong:
            raise ValueError(
                f"expected ceilings as they were measured, with source, card, peaks and "
                f"bandwidth_gbps, got {str(data)[:200]!r} ({wrong})"
            ) from None


Roof = Device | Ceilings


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    if not (0 < value < 1e30 and math.isfinite(value)):
        raise ValueError(f"{value} is out of range")
    return float(value)


def _amount_or_none(value: Any) -> float | None:
    return None if value is None else _amount(value)
