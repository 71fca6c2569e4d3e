"""Runs public Gluon kernels in the simulator, as they are and with faults planted in them.

    python -m tools.gluon.public_kernels FOLDER [--only TEXT ...] [--orders N] [--json FILE]

FOLDER holds your copies of Triton's Gluon tutorials, examples and tests, in any folders. They are
not part of this repository. Each kernel runs in N orders on the targets it is for, and must give
the right answer without a report. Then faults are planted one at a time: a wait, a fence or a
signal is taken away, or a wait is for the other phase. Each must be reported in one of the orders.

Prints a table and every fault that was not found. 1 if there is one, or a report that is wrong.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

from tools.gluon.places import MARK
from tools.gluon.public_kernels import cases, planting
from tools.gluon.public_kernels.cases import Case

CAPABILITY = {cases.HOPPER: (9, 0), cases.BLACKWELL: (10, 0)}
PATIENCE = 4  # planted faults are tried in so many orders for every one of the plain kernel


@dataclass
class Row:
    """What came of a case on a target."""

    case: Case
    target: str
    reports: list[str] = field(default_factory=list)
    expected: bool = False  # the kernel's own fault was found
    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    explained: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    @property
    def answer(self) -> str:
        """What the table says of the plain kernel."""
        if self.reports:
            return self.reports[0]
        return f"{self.case.known}, as expected" if self.case.known else "right"

    @property
    def wrong(self) -> bool:
        """Whether a report is false, or a fault was missed."""
        return bool(self.reports or self.missed or (self.case.known and not self.expected))


def judge(path: Path, case: Case, target: str, orders: int) -> Row:
    """Run one case, as it is and with faults.

    Args:
        path: The file.
        case: What is run of it.
        target: The GPU that host code sees.
        orders: How many orders the plain kernel runs in.

    Returns:
        What came of it.
    """
    from warpwatch.simulator.session import interpreter
    from warpwatch.simulator.session.check import check
    from warpwatch.simulator.session.host import Card

    card = Card(CAPABILITY[target])
    module = _imported(path, card)
    row = Row(case, target)

    def run() -> None:
        getattr(module, case.function)(*case.arguments(module))

    interpreter.called.clear()
    found = check(run, range(orders), card)
    for one in found.reports:
        if case.known and one.kind == case.known:
            row.expected = True
        else:
            row.reports.append(f"{one.kind}: {one.message}")
    if row.reports or case.known:
        return row
    ran = [one for one in interpreter.called if _is_near(one, path)]
    reached = _reached(run, ran, partial(check, card=card))
    for plain in sorted(ran, key=planting.name_of):
        for fault in planting.planted_in(plain):
            if fault.place in reached:
                _plant(row, fault, lambda seed: check(run, [seed], card), orders * PATIENCE)
    return row


def _plant(row: Row, one: planting.Planted, once: Callable[[int], Any], orders: int) -> None:
    from warpwatch.simulator.session import interpreter

    row.planted[one.kind] += 1
    interpreter.changed[one.plain] = one.code
    try:
        if any(once(seed).reports for seed in range(orders)):
            row.found[one.kind] += 1
            return
    finally:
        del interpreter.changed[one.plain]
    key = (row.case.file, one.plain.__name__, one.what)
    said = f"{row.case.file}:{one.line} {one.plain.__name__}: {one.what}"
    if key in cases.EXPLAINED:
        row.explained.append(f"{said} on {row.target}, since {cases.EXPLAINED[key]}")
    else:
        row.missed.append(said)


def _reached(run: Callable[[], None], ran: list[FunctionType], once: Any) -> set[tuple[str, int]]:
    """Places that a run comes by."""
    from warpwatch.simulator.session import interpreter

    found: set[tuple[str, int]] = set()

    def mark(name: str, number: int, value: Any) -> Any:
        found.add((name, number))
        return value

    interpreter.extra_globals[MARK] = mark
    for plain in ran:
        if next(planting.planted_in(plain), None) is not None:
            interpreter.changed[plain] = planting.watched(plain)
    try:
        once(run, [0])
    finally:
        interpreter.changed.clear()
    return found


def _is_near(plain: FunctionType, path: Path) -> bool:
    """Whether a function is of the file's folder."""
    return Path(plain.__code__.co_filename).resolve().parent == path.resolve().parent


def _imported(path: Path, card: Any) -> Any:
    """The module of a file, anew: it may ask for the GPU when it is imported."""
    from warpwatch.simulator.session.host import shown

    folder = str(path.resolve().parent)
    for name, module in list(sys.modules.items()):
        # Not what others imported from there as part of a package.
        place = Path(getattr(module, "__file__", None) or "/").parent
        if "." not in name and str(place) == folder:
            del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        with shown(card):
            return importlib.import_module(path.stem)
    finally:
        sys.path.remove(folder)


def _line(cells: list[str], widths: list[int]) -> str:
    return "  ".join(one.ljust(width) for one, width in zip(cells, widths, strict=True)).rstrip()


def table(rows: list[Row]) -> str:
    """What came of all cases.

    Args:
        rows: The cases.

    Returns:
        A table with a line for each, and the sums.
    """
    head = ["kernel", "target", "as it is", *planting.KINDS]
    lines = [
        [
            one.case.name,
            one.target,
            one.answer,
            *(f"{one.found[kind]} of {one.planted[kind]}" for kind in planting.KINDS),
        ]
        for one in rows
    ]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    sums = summed(rows)
    return "\n".join(
        (
            *(_line(one, widths) for one in (head, *lines)),
            "{kernels} kernels of {files} files, {false_reports} false reports".format(**sums),
            "{planted} faults planted: {found} found, {explained} explained, "
            "{missed} not found".format(**sums),
        )
    )


def summed(rows: list[Row]) -> dict[str, int]:
    """Count what came of all cases.

    Args:
        rows: The cases.

    Returns:
        The counts, by name.
    """
    return {
        "kernels": len({one.case.name for one in rows}),
        "files": len({one.case.file for one in rows}),
        "false_reports": sum(len(one.reports) for one in rows),
        "planted": sum(one.planted.total() for one in rows),
        "found": sum(one.found.total() for one in rows),
        "explained": sum(len(one.explained) for one in rows),
        "missed": sum(len(one.missed) for one in rows),
    }


def parser_of_arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m tools.gluon.public_kernels")
    parser.add_argument("folder", type=Path, help="your copies of Triton's Gluon files")
    parser.add_argument("--only", nargs="+", default=[], help="cases whose names have this text")
    parser.add_argument("--orders", type=int, default=3, help="of the kernels as they are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts to FILE")
    return parser


def main(arguments: list[str]) -> int:
    """Run the command.

    Args:
        arguments: Its words.

    Returns:
        0 if every kernel is right and every fault was found.
    """
    given = parser_of_arguments().parse_args(arguments)
    rows, lacking = [], set()
    begun = time.perf_counter()
    for case in cases.CASES:
        if given.only and not any(one in case.name for one in given.only):
            continue
        path = next(iter(sorted(given.folder.rglob(case.file))), None)
        if path is None:
            lacking.add(case.file)
            continue
        for target in case.targets:
            print(f"{case.name} on {target}", file=sys.stderr, flush=True)
            rows.append(judge(path, case, target, given.orders))
    if not rows:
        print(f"no file of the cases is in {given.folder}: expected {', '.join(sorted(lacking))}")
        return 2
    print(table(rows))
    if given.json:
        counts = {"triton": importlib.metadata.version("triton"), **summed(rows)}
        given.json.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    for missed in (one for row in rows for one in row.missed):
        print(f"not found: {missed}")
    for reason in (one for row in rows for one in row.explained):
        print(f"not found, explained: {reason}")
    for one in rows:
        if one.expected:
            print(f"{one.case.name} on {one.target}: {one.case.known}, since {one.case.why}")
    if lacking:
        print(f"not there: {', '.join(sorted(lacking))}")
    print(f"{time.perf_counter() - begun:.0f} s")
    return int(any(one.wrong for one in rows))


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)  # plain Triton's own interpreter is not wanted
    raise SystemExit(main(sys.argv[1:]))
