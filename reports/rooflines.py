"""Every workload under the roof of its device: intensity, achieved or bound rate, and the peak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from reports.history import History, SeriesInfo, Table
from reports.model import SeriesKey
from reports.work_done import Work

_SECONDS = {"us": 1e-6, "seconds": 1.0, "s": 1.0, "ms": 1e-3, "ns": 1e-9}


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
    """A device as one table's measurements show it; ``is_bound`` if they are compiled bounds."""

    name: str
    home: str
    bandwidth_gbps: float
    dots: tuple[Dot, ...]
    is_bound: bool

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


def rooflines(history: History) -> list[Roofline]:
    """One roofline for every device that has a time and a work for some workload."""
    found = []
    for table in history.tables:
        dots: dict[str, list[Dot]] = {}
        sheets: dict[str, Work] = {}
        for row, info in enumerate(table.series):
            work, scale = info.work, _SECONDS.get(info.meaning.unit)
            latest = table.latest(row)
            if work is None or scale is None or latest is None or latest <= 0:
                continue
            device = _device(table, info, work)
            if device is None:
                continue
            sheets[device] = work
            rate = work.flops / (latest * scale) / 1e12
            dots.setdefault(device, []).append(
                Dot(info.key, info.workload, work.intensity, rate, work.peaks_tflops[device])
            )
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


def _device(table: Table, info: SeriesInfo, work: Work) -> str | None:
    """The device a series was measured on: its target's, or the one its machine names."""
    known = [d for d in work.peaks_tflops if d in work.bandwidths_gbps]
    if not table.machine:
        return info.target if info.target in known else None
    said = " ".join((table.machine, *table.machine_fields.values())).lower().replace("-", "_")
    fits = [device for device in known if device.lower() in said]
    return max(fits, key=len) if fits else None
