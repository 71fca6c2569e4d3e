"""Measures the judge itself and writes the scorecard, beside other detectors in the same run."""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from warpwatch.judge.scorecard import error_rates
from warpwatch.judge.scorecard.error_rates import Detector, Floats, Noise
from warpwatch.judge.series.segments import WINDOW
from warpwatch.judge.statistics import synthetic
from warpwatch.judge.statistics.recorded import Recording, recordings

DEFAULT_OUT = Path("docs/scorecard.md")
SEED = 2026
LEAST = 20
STEPS = (0.02, 0.05, 0.10)
Others = dict[str, Detector | str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="FILE",
                        help="where the page goes (default %(default)s); - is stdout")  # fmt: skip
    parser.add_argument("--series", type=int, default=400, metavar="N",
                        help="series a row (default %(default)s)")  # fmt: skip
    parser.add_argument("--gates", type=int, default=2000, metavar="N",
                        help="gates a row (default %(default)s)")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the page is written."""
    if args.series < LEAST or args.gates < LEAST:
        raise ValueError(f"--series and --gates: expected at least {LEAST}; fewer say nothing")
    text = page(args.series, args.gates)
    if str(args.out) == "-":
        print(text, end="")
    else:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
        print(args.out)
    return 0


def page(series: int, gates: int) -> str:
    detectors: Others = {"warpwatch": error_rates.ours, **others()}
    recorded = recordings()
    parts = [
        _head(series, gates),
        _steps_section(detectors, series),
        _alarms_section(detectors, recorded, series),
        _recorded_section(detectors, recorded, series),
        _suspicion_section(series),
        _gate_section(recorded, gates),
        _speed_section(detectors, 5 * series // 2),
    ]
    return "\n".join(parts)


def others() -> Others:
    """The detectors beside ours; one that cannot be imported is a line that says so."""
    found: Others = {}
    for name, load in (("asv step_detect", _asv), ("apache-otava", _otava)):
        try:
            found[name] = load()
        except ImportError as error:
            found[name] = f"not installed here ({error})"
    return found


def _asv() -> Detector:
    module: Any = importlib.import_module("asv.step_detect")

    def detect(values: Floats) -> list[int]:
        found = module.detect_steps(values.tolist())
        return [step[0] for step in found[1:]]

    return detect


def _otava() -> Detector:
    module: Any = importlib.import_module("otava.analysis")

    def detect(values: Floats) -> list[int]:
        points, _ = module.compute_change_points(values.tolist())
        return [point.index for point in points]

    return detect


def _head(series: int, gates: int) -> str:
    return f"""# Scorecard of the judge

Written by `warpwatch scorecard --series {series} --gates {gates}`; every figure below was
measured in that one run, with one set of settings ({_versions()}).
Series have {error_rates.POINTS} points and one step at a random place,
{error_rates.MARGIN} or more points from both ends; a step counts as found within {WINDOW} commits.
Random numbers start from {SEED}: a second run prints the same, but for processor time.

Noise of 1 % around 100 us, all kinds with slow outliers of 5 to 30 %: *lognormal* (2 % outliers),
*bimodal* (30 % of the points in a second mode 4 sigma up), *autocorrelated* (0.4 from one point to
the next), *drifting* (slides by 2 sigma from end to end), *gpu-like* (a level that wanders, sticky
outliers, 8 % of the points beyond 5 sigma).
"""


def _versions() -> str:
    names = []
    for name in ("numpy", "scipy", "asv", "apache-otava"):
        try:
            names.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            names.append(f"no {name}")
    return ", ".join(names)


def _steps_section(detectors: Others, series: int) -> str:
    rows = []
    for kind in ("lognormal", "bimodal", "autocorrelated", "gpu-like"):
        noise = error_rates.made(kind, 0.01)
        for name, detector in detectors.items():
            cells = [
                _pair(
                    detector,
                    partial(
                        error_rates.steps_found, noise=noise, step=step, series=series, seed=SEED
                    ),
                )
                for step in STEPS
            ]
            rows.append([kind, name, *cells])
            _tell(f"steps in {kind} noise: {name}")
    at_90 = error_rates.recall_at(0.9, error_rates.made("bimodal", 0.01), 0.02, series, SEED)
    return (
        "## Steps: precision / recall in percent\n\n"
        + _table(["noise of 1 %", "detector", *(f"step {s:.0%}" for s in STEPS)], rows)
        + f"\nOur recall of the 2 % step in bimodal noise at 90 % precision: {at_90:.0%}.\n"
    )


def _alarms_section(detectors: Others, recorded: list[Recording], series: int) -> str:
    columns: tuple[synthetic.Kind, ...] = (
        "lognormal",
        "bimodal",
        "autocorrelated",
        "gpu-like",
        "drifting",
    )
    rows = []
    for name, detector in detectors.items():
        cells = [
            _number(
                detector,
                partial(
                    error_rates.false_alarms,
                    noise=error_rates.made(kind, 0.01),
                    series=2 * series,
                    seed=SEED + 1,
                ),
            )
            for kind in columns
        ]
        noises: list[Noise] = [one.resampled for one in recorded]
        cells.append(_number(detector, partial(_mean_alarms, noises=noises, series=series // 4)))
        rows.append([name, *cells])
        _tell(f"false alarms: {name}")
    return "## False alarms per 1000 points of series without a step\n\n" + _table(
        ["detector", *columns, "recorded H200"], rows
    )


def _mean_alarms(detector: Detector, noises: list[Noise], series: int) -> float:
    if not noises:
        return math.nan
    return float(np.mean([error_rates.false_alarms(detector, one, series, SEED) for one in noises]))


def _recorded_section(detectors: Others, recorded: list[Recording], series: int) -> str:
    rows = []
    for one in recorded:
        for name, detector in detectors.items():
            cells = [
                _pair(
                    detector,
                    partial(
                        error_rates.steps_found,
                        noise=one.resampled,
                        step=step,
                        series=series // 4,
                        seed=SEED,
                    ),
                )
                for step in STEPS[:2]
            ]
            rows.append([one.workload, f"{one.runs}", f"{one.spread:.2%}", name, *cells])
        _tell(f"steps in recorded noise: {one.workload}")
    heads = ["workload", "runs", "spread", "detector", *(f"step {s:.0%}" for s in STEPS[:2])]
    return (
        "## Steps in recorded noise: precision / recall in percent\n\n"
        "Fresh processes of one commit, resampled in blocks of neighbouring runs to series of 200\n"
        "points, with a step injected:\n\n"
        + "".join(f"- {len(pool)} workloads: {source}\n" for source, pool in _sources(recorded))
        + "\n"
        + _table(heads, rows)
    )


def _sources(recorded: list[Recording]) -> list[tuple[str, list[Recording]]]:
    """Recordings by where they come from; how many runs, device, software and commit."""
    found: dict[str, list[Recording]] = {}
    for one in recorded:
        found.setdefault(f"{one.runs} runs, {one.source}", []).append(one)
    return sorted(found.items())


def _suspicion_section(series: int) -> str:
    rows = []
    cases = (("5 % at 1 % noise", 0.05, 1), ("2 % at 1 % noise, 4 runs a commit", 0.02, 4))
    noise = error_rates.made("lognormal", 0.01)
    for label, step, runs in cases:
        cells = [
            f"{error_rates.suspected(noise, step, points, series, SEED, runs):.1%}"
            for points in (2, 3, 5, 8)
        ]
        rows.append([label, *cells])
    _tell("suspicions")
    kinds: tuple[synthetic.Kind, ...] = ("lognormal", "bimodal", "autocorrelated", "gpu-like")
    few = max(4, series // 20)
    needless = ", ".join(
        f"{kind} {error_rates.needless_suspicions(error_rates.made(kind, 0.01), few, SEED):.1f}"
        for kind in kinds
    )
    slides = ", ".join(
        f"{kind} {error_rates.slides_seen(error_rates.made(kind, 0.01), series, SEED):.1%}"
        for kind in ("drifting", "lognormal", "autocorrelated", "gpu-like")
    )
    return (
        "## Suspicions and slides\n\nShare of steps suspected so many commits after they came:\n\n"
        + _table(["step", "2", "3", "5", "8"], rows)
        + f"\nSuspicions without a reason, per 1000 commits: {needless}. They cost re-runs, no\n"
        f"alarm. Series in which a slow slide is reported: {slides}.\n"
    )


def _gate_section(recorded: list[Recording], gates: int) -> str:
    cases: list[tuple[str, Noise, float]] = [
        (f"{kind} 1 %", error_rates.made(kind, 0.01), change)
        for kind in ("lognormal", "gpu-like")
        for change in (0.02, 0.0)
    ]
    cases.append(("lognormal 0.5 %", error_rates.made("lognormal", 0.005), 0.02))
    rows = []
    for label, noise, change in cases:
        rows.append(_gate_row(label, noise, change, gates))
        _tell(f"gates: {label}, change {change:.0%}")
    pools = [("all workloads", recorded)]
    pools.append(("spread up to 1.5 %", [one for one in recorded if one.spread <= 0.015]))
    by_source = _sources(recorded)
    if len(by_source) > 1:
        pools += [(source.partition(",")[0] + " of one commit", pool) for source, pool in by_source]
    for label, pool in pools:
        for change in (0.0, 0.02):
            if pool:
                rows.append(_gate_row(f"recorded H200, {label}", _drawn(pool), change, gates))
                _tell(f"gates: recorded, {label}, change {change:.0%}")
    return (
        "## The gate of a pull request: at most 24 pairs\n\n"
        "*Regressed* is the power where head is slower, a false alarm where it is not; the range\n"
        "holds the true rate with 95 %.\n\n"
        + _table(
            ["noise", "head slower by", "gates", "regressed", "improved", "pairs, mean / most"],
            rows,
        )
    )


def _drawn(pool: list[Recording]) -> Noise:
    """Runs of one recording of the pool at a time."""
    return lambda points, random: pool[int(random.integers(len(pool)))].resampled(points, random)


def _gate_row(label: str, noise: Noise, change: float, gates: int) -> list[str]:
    rate = error_rates.gates(noise, change, gates, SEED)
    return [
        label,
        f"{change:.0%}",
        f"{rate.gates}",
        _range(rate.regressed, rate.gates),
        _range(rate.improved, rate.gates),
        f"{rate.pairs:.1f} / {rate.most_pairs}",
    ]


def _range(count: int, total: int) -> str:
    """A share with its Clopper-Pearson interval."""
    low = float(special.betaincinv(count, total - count + 1, 0.025)) if count else 0.0
    high = float(special.betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return f"{count / total:.2%} ({low:.2%} to {high:.2%})"


def _speed_section(detectors: Others, timed: int) -> str:
    rows = [
        [
            name,
            _number(detector, partial(error_rates.cpu_seconds, series=timed, seed=SEED), digits=1),
        ]
        for name, detector in detectors.items()
    ]
    return (
        "## Processor seconds for 1000 series of 500 points, one core\n\n"
        + _table(["detector", "seconds"], rows)
        + ("" if timed == 1000 else f"\nReckoned from {timed} series.\n")
    )


def _pair(detector: Detector | str, measure: Callable[[Detector], error_rates.Found]) -> str:
    if isinstance(detector, str):
        return detector
    found = measure(detector)
    return f"{100 * found.precision:.0f} / {100 * found.recall:.0f}"


def _number(detector: Detector | str, measure: Callable[[Detector], float], digits: int = 2) -> str:
    if isinstance(detector, str):
        return detector
    value = measure(detector)
    return "none" if math.isnan(value) else f"{value:.{digits}f}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
