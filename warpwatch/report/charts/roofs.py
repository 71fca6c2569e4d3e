"""Every workload under the roof of its device: intensity, achieved or bound rate, and the peak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.evidence.roofs import Ceilings
from warpwatch.judge.model.core import Commit, SeriesKey
from warpwatch.judge.model.work_done import Work
from warpwatch.judge.results.history import History, SeriesInfo, Table

SECONDS = {"us": 1e-6, "seconds": 1.0, "s": 1.0, "ms": 1e-3, "ns": 1e-9}


@dataclass(frozen=True)
class Dot:
    """One workload: operations a byte, TFLOP/s, and the peak of its data type."""

    key: SeriesKey
    workload: str
    intensity: float
    tflops: float
    peak_tflops: float

    @property
    def gbps(self) -> float:
        """The bytes the work itself takes (each operand and result once), a second."""
        return 1000 * self.tflops / self.intensity

    @property
    def share(self) -> float:
        """Of the peak, in percent."""
        return 100 * self.tflops / self.peak_tflops


@dataclass(frozen=True)
class Roofline:
    """A device as one table's measurements show it; ``is_bound`` if they are compiled bounds.
    ``ceilings`` are what its roofs are where they were measured, for want of a datasheet."""

    name: str
    home: str
    bandwidth_gbps: float
    dots: tuple[Dot, ...]
    is_bound: bool
    ceilings: Ceilings | None = None

    @cached_property
    def ranked(self) -> tuple[Dot, ...]:
        """The dots, the furthest from its roof first."""
        return tuple(sorted(self.dots, key=self.roof_share))

    def roof_of(self, dot: Dot) -> str:
        """Memory or compute, whichever allows a workload less."""
        slope = dot.intensity * self.bandwidth_gbps / 1000
        return "memory" if slope < dot.peak_tflops else "compute"

    def roof_share(self, dot: Dot) -> float:
        """Of what the roof above a workload allows, be it memory or compute, in percent."""
        roof = min(dot.peak_tflops, dot.intensity * self.bandwidth_gbps / 1000)
        return 100 * dot.tflops / roof


def newest_measured(table: Table) -> Commit | None:
    """The newest commit that a GPU of this machine measured."""
    timed = [row for row, info in enumerate(table.series) if info.meaning.instrument == "latency"]
    columns = np.flatnonzero(np.isfinite(table.values[timed]).any(axis=0))
    return table.commits[columns[-1]] if table.machine and len(columns) else None


def ceilings_on(table: Table, evidence: Evidence) -> Ceilings | None:
    """What roofs on this machine are, if no datasheet knows its card."""
    commit = newest_measured(table)
    return None if commit is None else evidence.asked(commit.hash).ceilings


def rooflines(history: History, evidence: Evidence) -> list[Roofline]:
    """One roofline for every device that has a time and a work for some workload."""
    found = []
    for table in history.tables:
        if (measured := ceilings_on(table, evidence)) is not None:
            # A datasheet whose name this card's resembles is not its own.
            found += _under_ceilings(table, measured)
            continue
        dots: dict[str, list[Dot]] = {}
        sheets: dict[str, Work] = {}
        for row, info in enumerate(table.series):
            work = info.work
            device = device_of(table, info, work) if work is not None else None
            if work is None or device is None:
                continue
            if (dot := _dot(table, row, work, work.peaks_tflops[device])) is not None:
                sheets[device] = work
                dots.setdefault(device, []).append(dot)
        for device, members in sorted(dots.items()):
            sheet = sheets[device]
            title = sheet.titles.get(device, device)
            name = title if device in title.lower() or table.machine else f"{device}, {title}"
            found.append(
                Roofline(
                    name,
                    " / ".join(filter(None, (table.machine, table.environment))),
                    sheet.bandwidths_gbps[device],
                    tuple(members),
                    not table.machine,
                )
            )
    return found


def _under_ceilings(table: Table, ceilings: Ceilings) -> list[Roofline]:
    dots = []
    for row, info in enumerate(table.series):
        peak = ceilings.peaks_tflops.get(info.work.dtype) if info.work is not None else None
        if info.work is not None and peak is not None:
            dots.append(_dot(table, row, info.work, peak))
    known = tuple(dot for dot in dots if dot is not None)
    if ceilings.bandwidth_gbps is None or not known:
        return []
    home = " / ".join(filter(None, (table.machine, table.environment)))
    return [Roofline(ceilings.card, home, ceilings.bandwidth_gbps, known, False, ceilings)]


def _dot(table: Table, row: int, work: Work, peak_tflops: float) -> Dot | None:
    info, latest = table.series[row], table.latest(row)
    scale = SECONDS.get(info.meaning.unit)
    if scale is None or latest is None or latest <= 0:
        return None
    rate = work.flops / (latest * scale) / 1e12
    return Dot(info.key, info.workload, work.intensity, rate, peak_tflops)


def device_of(table: Table, info: SeriesInfo, work: Work) -> str | None:
    """The device a series was measured on: its target's, or the one its machine names."""
    known = [d for d in work.peaks_tflops if d in work.bandwidths_gbps]
    if not table.machine:
        return info.target if info.target in known else None
    said = " ".join((table.machine, *table.machine_fields.values())).lower().replace("-", "_")
    fits = [device for device in known if device.lower() in said]
    return max(fits, key=len) if fits else None
