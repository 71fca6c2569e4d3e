"""``tune``: sweep a workload's configurations; the compilers condemn, the GPU times the rest."""

from __future__ import annotations

import argparse
import math
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from warpwatch.config import results_file, targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.config.targets import Target
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import series_versions, tuning
from warpwatch.session.session import Session, make_ready
from warpwatch.session.stopping import Stopped, stopped_by_sigterm
from warpwatch.session.versions import gpu_turn
from warpwatch.workload.base import Workload

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One configuration with its evidence; ``us`` only where it was timed: the median of
    ``samples_us``, the interval its own of 95 %. What is not known is NaN, ``null`` in JSON."""

    config: str
    own: bool
    condemned: str
    bound_us: float
    registers: float
    shared_bytes: float
    us: float = math.nan
    noise_percent: float = math.nan
    interval_us: tuple[float, float] | None = None
    samples_us: tuple[float, ...] = ()
    notes: str = ""


@dataclass
class Sweep:
    """What is known so far: what the compilers say, what came of timing, on which card."""

    workload: Workload
    target: Target
    base: Any
    candidates: list[tuning.Candidate] = field(default_factory=list)
    timed: dict[str, Outcome] = field(default_factory=dict)
    card: dict[str, Any] | None = None

    def rows(self) -> list[Row]:
        """The best first: by time where it ran, else by its bound."""
        found = [
            _row(candidate, self.base, self.timed.get(tuning.describe(candidate.config)))
            for candidate in self.candidates
        ]
        return sorted(found, key=_rank)

    def document(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload.name,
            "target": self.target.name,
            "card": self.card,
            "method": series_versions.TIMES if self.timed else None,
            "rows": [asdict(row) for row in self.rows()],
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", help="name of a workload")
    parser.add_argument(
        "--target", help="compile for this target (default: the GPU that is here, else sm_90)"
    )
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="configurations to try (default 40)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which configurations, in which order")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    if args.limit < 2:
        raise ValueError(f"--limit: expected 2 or more, got {args.limit}")
    workload = load_workloads().get(args.workload)
    target = targets.get(args.target) if args.target else here() or targets.get("sm_90")

    def keep(sweep: Sweep, last: bool = False) -> None:
        results_file.write(args.json, sweep.document(), last=last)

    try:
        with stopped_by_sigterm():
            found = sweep(workload, target, args.limit, args.seed, _say, keep)
    except KeyboardInterrupt as stop:
        code, word = (143, "SIGTERM") if isinstance(stop, Stopped) else (130, "Ctrl-C")
        print(f"stopped by {word}: nothing is ranked", file=sys.stderr)
        return code
    keep(found, last=True)
    rows = found.rows()
    as_json = args.json == "-"
    print(results_file.as_json(found.document()) if as_json else "\n".join(lines(rows, target)))
    return 0 if any(not row.condemned for row in rows) else 3


def here() -> Target | None:
    """The target of the GPU in this machine, if it is one of ours."""
    if not presence.has_gpu():
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    name = (
        str(properties.gcnArchName).partition(":")[0]
        if torch.version.hip
        else f"sm_{properties.major}{properties.minor}"
    )
    return next((target for target in targets.KNOWN if target.name == name), None)


def sweep(
    workload: Workload,
    target: Target,
    limit: int,
    seed: int,
    say: Callable[[str], None],
    keep: Callable[[Sweep], None] = lambda _: None,
) -> Sweep:
    """Compile every configuration, time what is worth it. ``keep`` gets what there is so far after
    each."""
    base = tuning.own_choice(workload, target)
    configs = tuning.space(base, limit=limit, seed=seed)
    on_gpu = here() == target
    found = Sweep(workload, target, base)
    keep(found)  # before anything is measured: the place may not be writable
    one_at_a_time = threading.Lock()

    def compiled(candidate: tuning.Candidate) -> None:
        verdict = candidate.condemned or f"bound {candidate.bound_us:.1f} us"
        with one_at_a_time:
            found.candidates.append(candidate)
            done = f"{len(found.candidates)}/{len(configs)}"
            say(f"{done} {tuning.describe(candidate.config)}: {verdict}")
            keep(found)

    found.candidates = tuning.judge(workload, target, configs, compiled, on_gpu=on_gpu)
    worth = [candidate.config for candidate in found.candidates if not candidate.condemned]
    if on_gpu and worth:
        _time(found, worth, seed, say, keep)
    return found


def _time(
    found: Sweep,
    configs: Sequence[Any],
    seed: int,
    say: Callable[[str], None],
    keep: Callable[[Sweep], None],
) -> None:
    """Each configuration's cold latency, by the rules of every measurement: in a process that can
    be ended, checked before and after, interleaved; who fails or hangs is out alone. Sweeps beside
    one another compile at once and are timed by turns."""
    session = Session(tuning.timing_request(found.workload, configs, seed))
    make_ready([session])

    def came(outcome: Outcome) -> None:
        found.timed[outcome.workload], found.card = outcome, session.card
        say(f"{outcome.workload}: {outcome.status} {outcome.detail}".rstrip())
        keep(found)

    try:
        with gpu_turn(say):
            session.run([tuning.describe(config) for config in configs], came)
    finally:
        session.discard()


def _row(candidate: tuning.Candidate, base: Any, timed: Outcome | None) -> Row:
    values = candidate.values
    row = Row(
        tuning.describe(candidate.config),
        candidate.config == base,
        candidate.condemned,
        candidate.bound_us,
        values.get("registers", math.nan),
        values.get("shared_bytes", math.nan),
    )
    if timed is None:
        return row
    if timed.status != "ok":
        return replace(row, condemned=f"{timed.status}: {timed.detail}")
    summary, samples = timed.evidence["latency_cold"], timed.samples["latency_cold"]
    return replace(
        row,
        us=summary["us"],
        noise_percent=100 * summary["spread"],
        interval_us=tuple(summary["interval_us"]),
        samples_us=samples,
        notes=timed.detail,
    )


def _rank(row: Row) -> tuple[bool, float, float]:
    def last(value: float) -> float:
        return math.inf if math.isnan(value) else value

    return bool(row.condemned), last(row.us), last(row.bound_us)


def lines(rows: Sequence[Row], target: Target) -> list[str]:
    """The table, and the row to put into the package's configurations."""
    printed = [f"{'us':>9}{'noise %':>9}{'bound us':>10}{'registers':>10}{'shared':>8}  config"]
    for row in rows:
        mark = " (chosen now)" if row.own else ""
        if row.condemned:
            printed.append(f"{'-':>9}{'-':>9}  {row.config}{mark}: {row.condemned}")
        else:
            printed.append(
                f"{_cell(row.us):>9}{_cell(row.noise_percent):>9}{_cell(row.bound_us):>10}"
                f"{row.registers:>10.0f}{row.shared_bytes:>8.0f}  {row.config}{mark}"
            )
    best = rows[0]
    if not best.condemned:
        how = "timed" if not math.isnan(best.us) else "by its bound, not timed"
        printed += ["", f"best on {target.name} ({how}): {best.config}"]
    return printed


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
