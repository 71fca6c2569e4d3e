"""Noise that a real GPU made: one commit, measured again and again in fresh processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model import short_calls

Floats = NDArray[np.float64]

FOLDER = Path(__file__).resolve().parent.parent / "recorded"
SCHEMA_VERSION = 1
_BLOCK = 6  # runs that stay together when a recording is resampled, so that memory survives


@dataclass(frozen=True)
class Recording:
    """The runs of one workload, in the order they were made; ``source`` says where and how.

    ``values`` are of the series by which the call is judged, ``latency_us`` those of its time.
    """

    workload: str
    source: str
    latency_us: Floats
    metric: str = short_calls.TIME
    cycles: Floats | None = None

    @property
    def us(self) -> float:
        """The middle of its times."""
        return float(np.median(self.latency_us))

    @property
    def values(self) -> Floats:
        """Of each run, in what the call is judged by."""
        return self.latency_us if self.cycles is None else self.cycles

    @property
    def by_time(self) -> Recording:
        """The same runs where nobody counts."""
        return replace(self, metric=short_calls.TIME, cycles=None)

    @property
    def runs(self) -> int:
        return len(self.values)

    @property
    def spread(self) -> float:
        """Robust deviation over the median."""
        middle = float(np.median(self.values))
        return 1.4826 * float(np.median(np.abs(self.values - middle))) / middle

    def resampled(self, points: int, random: np.random.Generator) -> Floats:
        """A series of this noise: blocks of neighbouring runs, in random order."""
        count = len(self.values)
        starts = random.integers(0, count, points // _BLOCK + 1)
        places = (starts[:, None] + np.arange(_BLOCK)).ravel()[:points] % count
        out: Floats = self.values[places]
        return out


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """All recordings of ``folder``; ``ValueError`` names the file that is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if data["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"expected schema_version {SCHEMA_VERSION}")
            source = f"{data['device']}; {data['software']}; commit {data['commit']}"
            for workload, runs in data["latency_us"].items():
                one = Recording(workload, source, _values(workload, runs))
                counted = data.get(short_calls.CYCLES, {}).get(workload)
                if short_calls.is_short(one.us, counted is not None):
                    cycles = _values(workload, counted)
                    one = replace(one, metric=short_calls.CYCLES, cycles=cycles)
                found.append(one)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: is no recording of runs: {error!r}") from error
    return found


def _values(workload: str, runs: list[float | None]) -> Floats:
    values = np.array([run for run in runs if run is not None], dtype=np.float64)
    if len(values) < 2 * _BLOCK or not (values > 0.0).all():
        raise ValueError(f"{workload}: expected {2 * _BLOCK} or more positive runs")
    return values
