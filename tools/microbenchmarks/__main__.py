"""Measure the constants of the model of time on this card.

    python -m tools.microbenchmarks [--out FILE] [--only PATTERN] [--without-card | --again FILE]

It takes about a minute and writes a table: the value that the model uses, the measured one, and
what the model itself predicts for the program that was measured. ``--out`` keeps all of it as JSON,
with the clocks of every launch. ``--without-card`` assembles and predicts only. ``--again``
keeps what FILE measured and makes the rest anew, after a change of the model. A benchmark that
fails or hangs is a row that says why; the others go on. Exits 1 where one has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from warpwatch import devices

from . import results, session
from .assembled import Assembled, build
from .programs.benchmark import Benchmark
from .programs.suite import DEVICE, benchmarks

_LIMIT, _BUDGET = 5.0, 45.0
_THREADS = min(8, os.cpu_count() or 1)


def assembled(
    chosen: list[Benchmark], architecture: int
) -> list[tuple[Benchmark, Assembled | ValueError]]:
    """Assemble benchmarks, several at a time.

    Args:
        chosen: The benchmarks.
        architecture: Such as 90.

    Returns:
        Each with its machine code, or with the assembler's refusal.
    """

    def one(benchmark: Benchmark) -> tuple[Benchmark, Assembled | ValueError]:
        try:
            return benchmark, build(benchmark, architecture)
        except ValueError as error:
            return benchmark, error

    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(one, chosen))


def measure(chosen: list[Benchmark], is_without_card: bool) -> dict[str, Any]:
    """Make every row of the table.

    Args:
        chosen: The benchmarks.
        is_without_card: Whether to assemble and to predict only.

    Returns:
        The document that ``--out`` writes.

    Raises:
        RuntimeError: There is no card, though one was wanted.
    """
    device = devices.load(DEVICE)
    card: session.Answer = {}
    numbers = {one.name: number for number, one in enumerate(benchmarks())}
    with tempfile.TemporaryDirectory(prefix="microbenchmarks-") as name:
        folder = Path(name)
        with session.Session(folder, _LIMIT) as first:
            if not is_without_card:
                first.open()
                card = first.card
        architecture = int(card.get("architecture", 90))
        found: dict[str, results.Row] = {}
        ready = []
        for one, made in assembled(chosen, architecture):
            row = found[one.name] = results.Row.of(one)
            if not one.runs_on(architecture):
                row.failed = f"not for sm_{architecture}"
            elif isinstance(made, ValueError):
                row.failed = str(made)
            else:
                row.simulated = _simulated(made, device) if architecture == 90 else None
                (folder / f"{numbers[one.name]}.cubin").write_bytes(made.cubin)
                ready.append(one)
        if not is_without_card:
            for one, answer in session.measured(ready, folder, _LIMIT, _BUDGET):
                found[one.name].take(one, answer)
                print(results.line(found[one.name]), flush=True)
    return results.document([*found.values()], card)


def _simulated(made: Assembled, device: devices.Device) -> float | None:
    """Another assembler may write what the model cannot follow; it is measured all the same."""
    try:
        return made.simulated(device)
    except ValueError:
        return None


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and keep.

    Args:
        arguments: Of the command line; those of the process without.

    Returns:
        0; 1 where a benchmark has failed; 2 where there is no card.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.microbenchmarks",
        description="Measure the constants of the model of time on this card.",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to keep all of it as JSON")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name matches")
    parser.add_argument(
        "--without-card", action="store_true", help="assemble and predict only, measure nothing"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="keep what FILE measured, predict once more"
    )
    options = parser.parse_args(arguments)
    chosen = [one for one in benchmarks() if re.search(options.only, one.name)]
    try:
        document = measure(chosen, options.without_card or options.again is not None)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.again:
        before = json.loads(options.again.read_text(encoding="utf-8"))
        document = results.simulated_again(before, document)
    print(results.table_of(document))
    if options.out:
        options.out.write_text(results.kept(document), encoding="utf-8")
    return int(any(row["failed"] for row in document["rows"]))


if __name__ == "__main__":
    raise SystemExit(main())
