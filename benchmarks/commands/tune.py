"""``tune``: sweep a workload's configurations; the compilers condemn, the GPU times the rest."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import accuracy, latency, presence, tuning
from benchmarks.instruments.latency import Limits
from benchmarks.targets import Target
from benchmarks.workloads.base import Workload

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One configuration with its evidence; ``us`` only where it was timed."""

    config: str
    own: bool
    condemned: str
    bound_us: float
    registers: float
    shared_bytes: float
    us: float = math.nan
    noise_percent: float = math.nan


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
    rows = sweep(workload, target, args.limit, args.seed, _say)
    document = {
        "schema_version": SCHEMA_VERSION,
        "workload": workload.name,
        "target": target.name,
        "rows": [asdict(row) for row in rows],
    }
    if args.json == "-":
        print(json.dumps(document))
    else:
        if args.json:
            Path(args.json).write_text(json.dumps(document) + "\n", encoding="utf-8")
        print("\n".join(lines(rows, target)))
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
    return next((target for target in targets.TARGETS if target.name == name), None)


def sweep(
    workload: Workload, target: Target, limit: int, seed: int, say: Callable[[str], None]
) -> list[Row]:
    """Every configuration's row, the best first: by time where it ran, else by its bound."""
    base = tuning.own_choice(workload, target)
    configs = tuning.space(base, limit=limit, seed=seed)
    on_gpu = here() == target
    done: list[str] = []

    def came(candidate: tuning.Candidate) -> None:
        done.append(tuning.describe(candidate.config))
        verdict = candidate.condemned or f"bound {candidate.bound_us:.1f} us"
        say(f"{len(done)}/{len(configs)} {done[-1]}: {verdict}")

    candidates = tuning.judge(workload, target, configs, came, on_gpu=on_gpu)
    worth = [candidate.config for candidate in candidates if not candidate.condemned]
    timed = time(workload, worth, seed) if on_gpu else {}
    rows = [_row(candidate, base, timed.get(candidate.config)) for candidate in candidates]
    return sorted(rows, key=_rank)


def _row(candidate: tuning.Candidate, base: Any, timed: latency.Latency | str | None) -> Row:
    values = candidate.values
    row = Row(
        tuning.describe(candidate.config),
        candidate.config == base,
        candidate.condemned if not isinstance(timed, str) else timed,
        candidate.bound_us,
        values.get("registers", math.nan),
        values.get("shared_bytes", math.nan),
    )
    if not isinstance(timed, latency.Latency):
        return row
    return Row(**{**asdict(row), "us": timed.us, "noise_percent": 100 * timed.spread})


def _rank(row: Row) -> tuple[bool, float, float]:
    def last(value: float) -> float:
        return math.inf if math.isnan(value) else value

    return bool(row.condemned), last(row.us), last(row.bound_us)


def time(workload: Workload, configs: Sequence[Any], seed: int) -> dict[Any, latency.Latency | str]:
    """Each configuration's latency, interleaved in balanced random order; a wrong or failing one
    gets the reason instead."""
    from benchmarks.instruments.torch_gpu import TorchGpu

    gpu = TorchGpu()
    inputs = workload.inputs("cuda", seed=seed)
    truth = workload.reference(inputs, "float64")
    found: dict[Any, latency.Latency | str] = {}
    calls: dict[str, Callable[[], object]] = {}
    by_name: dict[str, Any] = {}
    for config in configs:
        call = tuning.forced(lambda: workload.call(inputs), config)
        try:
            accuracy.check(workload, inputs, call(), truth)
        except Exception as error:  # a configuration may do anything
            found[config] = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]
            continue
        calls[tuning.describe(config)] = call
        by_name[tuning.describe(config)] = config
    taken = latency.interleave(gpu, calls, "cold", Limits(max_samples=30), seed)
    return found | {by_name[name]: measured for name, measured in taken.items()}


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
