"""Measures the judge itself and writes the scorecard, beside other detectors in the same run."""

from __future__ import annotations

import argparse
import math
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

from warpwatch.judge.scorecard import error_rates, gate_tables, many_steps
from warpwatch.judge.scorecard.error_rates import Detector, Noise
from warpwatch.judge.scorecard.other_detectors import Others, others
from warpwatch.judge.scorecard.tables import SEED, number, pair, share, table, tell
from warpwatch.judge.series.fit import WINDOW
from warpwatch.judge.statistics import synthetic
from warpwatch.judge.statistics.recorded import Recording, recordings

DEFAULT_OUT = Path("docs/results/scorecard.md")
LEAST = 20
STEPS = (0.02, 0.05, 0.10)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="FILE",
                        help="where the page goes (default %(default)s); - is stdout")  # fmt: skip
    parser.add_argument("--series", type=int, default=400, metavar="N",
                        help="series a row (default %(default)s)")  # fmt: skip
    parser.add_argument("--gates", type=int, default=2000, metavar="N",
                        help="gates a row (default %(default)s)")  # fmt: skip

    parser.add_argument("--only-gates", action="store_true",
                        help="measure the gates' part of a written page again")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the page is written."""
    if args.series < LEAST or args.gates < LEAST:
        raise ValueError(f"--series and --gates: expected at least {LEAST}; fewer say nothing")
    if args.only_gates:
        if not args.out.is_file():
            raise ValueError(f"--only-gates: {args.out} is no page that has another part")
        written = args.out.read_text(encoding="utf-8")
        text = gate_tables.renewed(written, recordings(), args.gates, _versions())
    else:
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
        _several_section(detectors, series),
        _ranges_section(series),
        _alarms_section(detectors, recorded, series),
        _recorded_section(detectors, recorded, series),
        _suspicion_section(series),
        gate_tables.section(recorded, gates),
        _speed_section(detectors, 5 * series // 2),
    ]
    return "\n".join(parts)


def _head(series: int, gates: int) -> str:
    return f"""# Scorecard of the judge

Written by `warpwatch scorecard --series {series} --gates {gates}`. Every figure below was measured
in that one run, with one set of settings ({_versions()}).
A part that was measured again since says so.
Series have {error_rates.POINTS} points and one step at a random place.
The step lies {error_rates.MARGIN} or more points from both ends. It counts as found within {WINDOW}
commits. Random numbers start from {SEED}: a second run prints the same, except processor time.

Noise is 1 % around 100 us, with slow outliers of 5 to 30 %. The kinds are:

- *lognormal*: 2 % of the points are outliers
- *bimodal*: 30 % of the points lie in a second mode, 4 sigma up
- *autocorrelated*: 0.4 from one point to the next
- *drifting*: slides by 2 sigma from end to end
- *gpu-like*: a level that wanders, sticky outliers, 8 % of the points beyond 5 sigma
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
                pair(
                    detector,
                    partial(
                        error_rates.steps_found, noise=noise, step=step, series=series, seed=SEED
                    ),
                )
                for step in STEPS
            ]
            rows.append([kind, name, *cells])
            tell(f"steps in {kind} noise: {name}")
    at_90 = error_rates.recall_at(0.9, error_rates.made("bimodal", 0.01), 0.02, series, SEED)
    return (
        "## Steps: precision / recall in percent\n\n"
        + table(["noise of 1 %", "detector", *(f"step {s:.0%}" for s in STEPS)], rows)
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
            number(
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
        cells.append(number(detector, partial(_mean_alarms, noises=noises, series=series // 4)))
        rows.append([name, *cells])
        tell(f"false alarms: {name}")
    return "## False alarms per 1000 points of series without a step\n\n" + table(
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
                pair(
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
        tell(f"steps in recorded noise: {one.workload}")
    heads = ["workload", "runs", "spread", "detector", *(f"step {s:.0%}" for s in STEPS[:2])]
    return (
        "## Steps in recorded noise: precision / recall in percent\n\n"
        "Each recording holds fresh processes of one commit. Blocks of neighbouring runs are\n"
        "resampled to series of 200 points, and a step is injected.\n\n"
        + table(
            ["workloads", "recorded"],
            [[f"{len(pool)}", source] for source, pool in _sources(recorded)],
        )
        + "\n"
        + table(heads, rows)
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
    tell("suspicions")
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
        + table(["step", "2", "3", "5", "8"], rows)
        + f"\nSuspicions without a reason, per 1000 commits: {needless}.\n"
        "They cost re-runs and raise no alarm.\n"
        f"Series in which a slow slide is reported: {slides}.\n"
    )


def _several_section(detectors: Others, series: int) -> str:
    rows = []
    for case in many_steps.CASES:
        for name, detector in detectors.items():
            found = partial(many_steps.several_found, case=case, series=series, seed=SEED)
            rows.append([case.name, name, pair(detector, found)])
        tell(f"several steps: {case.name}")
    lengths = ", ".join(str(n) for n in many_steps.LENGTHS)
    return (
        "## Several steps in a series\n\n"
        f"Series have {lengths} points, as far as they have room.\n"
        "Levels have at least 5, 8 or 10 points and lie at random places.\n"
        "Precision / recall in percent, over all steps:\n\n"
        + table(["steps", "detector", "precision / recall"], rows)
    )


def _ranges_section(series: int) -> str:
    found = many_steps.ranges(max(2, series // 10), SEED)
    tell("ranges of findings")
    return (
        "## Ranges of findings\n\n"
        "Histories have 120 commits and 40 series. In each, six commits slow 1 to 12 series down\n"
        f"by 3 to 30 %. There are {found.findings} findings for {found.causes} such commits.\n\n"
        + table(
            ["the range of a finding", "share"],
            [
                ["holds the true commit", share(found.true, found.findings)],
                [
                    "holds the likeliest commit of the costliest series",
                    share(found.own, found.findings),
                ],
            ],
        )
        + f"\nIt has {found.commits:.2f} commits on average. "
        f"It says that it is {found.sure:.1%} sure.\n"
    )


def _speed_section(detectors: Others, timed: int) -> str:
    rows = [
        [
            name,
            number(detector, partial(error_rates.cpu_seconds, series=timed, seed=SEED), digits=1),
        ]
        for name, detector in detectors.items()
    ]
    return (
        "## Processor seconds for 1000 series of 500 points, one core\n\n"
        + table(["detector", "seconds"], rows)
        + ("" if timed == 1000 else f"\nReckoned from {timed} series.\n")
    )
