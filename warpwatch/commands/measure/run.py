"""``run``: one workload now, uncommitted edits included: its code on every target, and on the GPU
that is here its time."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from warpwatch.commands.compiled import inspect, tables
from warpwatch.config import choices
from warpwatch.config.package import chosen_targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.compiled.diff import sides
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.instruments.gpu import latency
from warpwatch.instruments.outcome import Outcome
from warpwatch.session.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", help="name of a workload")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; default: those configured",
    )
    parser.add_argument(
        "--lock",
        action="store_true",
        help=f"keep what autotuners choose on this GPU in {choices.FILE_NAME}: it is compiled then",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    workload = load_workloads().get(args.workload)
    if args.lock and not presence.has_gpu():
        raise ValueError("--lock: there is no GPU here, and only one can choose")
    chosen = chosen_targets(args.target)
    asked = [jobs.Job(workload.name, target, is_workload=True) for target in chosen]
    with sides.opened(".") as side:
        results = inspect.in_order(jobs.run(asked, side.environment), asked)
    content: dict[str, object] = {
        "command": "run",
        "results": [inspect.document(one) for one in results],
    }
    inspect.write(args.json, content, last=False)
    measured = _on_this_gpu(workload.name, lock=args.lock)
    if measured is not None:
        content["measured"] = asdict(measured)
    inspect.write(args.json, content)
    if args.json != "-":
        print(workload.name)
        print("\n".join(tables.table(results)))
        if measured is None:
            print("no GPU here: nothing was timed")
        elif measured.status == "ok":
            print(f"on this GPU: ok {measured.detail}".rstrip())
            for name, samples in measured.samples.items():
                ordered = sorted(samples)
                print(f"  {name} {ordered[len(ordered) // 2]:.4g} (median of {len(ordered)})")
    if measured is not None and measured.status != "ok":
        print(f"on this GPU: {measured.status}: {measured.detail}", file=sys.stderr)
        return inspect.exit_code(results) or 3
    return inspect.exit_code(results)


def _on_this_gpu(name: str, *, lock: bool) -> Outcome | None:
    """Measured in a process of its own: a call that hangs is ended. ``lock`` keeps what its tuners
    choose."""
    if not presence.has_gpu():
        return None
    request: dict[str, object] = {"mode": "latency", "methods": list(latency.METHODS)}
    if lock:
        request["lock"] = str(choices.place())
    before = choices.read(choices.place())
    outcome = Session(request).run([name])[name]
    if lock:
        kept = choices.read(choices.place())
        print(f"{len(set(kept) - set(before))} new choices in {choices.place()}", file=sys.stderr)
    return outcome
