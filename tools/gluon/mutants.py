"""What the tests of this folder are worth: takes Hopper's kernels' synchronisation away, piece by
piece.

    python -m tools.gluon.mutants [--only NAME ...] [--orders N] [--processes N]

Each mutant is one of the kernels without one of its waits, releases, fences or turns, or without
what one depends on, with a wait for one product fewer, or with a phase the wrong way round. It is
told if one of the cases that ``make test`` interprets ends in an error of the interpreter's or in
values far off. Prints those that nothing tells or reaches; 1 if there are any that are not known
to be harmless.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any, TypeVar

from tools.gluon.places import MARK
from tools.gluon.taken_away import Change, Mutant, functions, mutants_of, name_of, unawaited

OF_GRADIENTS = r"kernels\.attention\.hopper\.(backward|packed).*"
QUICKEST = 8  # cases that try a change in more than one order
T = TypeVar("T")
NOT_TOLD, NOT_REACHED = "NOT TOLD", "NOT REACHED"
_SUM = "warpgroup_mma_wait(1, deps=[part, acc])"
_SCALED_SUM = "warpgroup_mma_wait(1, deps=[part, acc, of_odd])"
# Nothing tells these, since nothing is wrong with the kernel: something else says the same.
# By module, function and change: how many places, and why.
HARMLESS = {
    ("attention.hopper.backward.wide.key_grads", "_keys", "no memory.q.wait(at)"): (
        2,
        "the other warpgroup waited before it handed weights over",
    ),
    ("attention.hopper.backward.heavy_rows.kernel", "_consume", "no meet('sync', 0)"): (
        1,
        "turns are for speed alone",
    ),
    ("attention.hopper.backward.short.key_grads", "_pass_over", "no memory.dout.wait(at)"): (
        1,
        "a stage of dO is handed back before that of Q is",
    ),
    ("matmul.hopper.fp8.block_scales", "_add_step", f"{_SUM} of 2"): (
        1,
        "no second product is on its way: it holds a sum in its place",
    ),
    ("matmul.hopper.fp8.block_scales", "_add_step", f"{_SCALED_SUM} of 2"): (
        1,
        "no second product is on its way: it holds a sum in its place",
    ),
    ("attention.hopper.forward.kernel", "_turn", "no meet(OPERATION, I_CONSUMER % CONSUMERS)"): (
        1,
        "turns are for speed alone",
    ),
    ("attention.hopper.forward.kernel", "_consume", "no _turn('sync', 0, CONSUMERS)"): (
        1,
        "turns are for speed alone",
    ),
}


@dataclass(frozen=True)
class Call:
    """A ``case`` of the tests, and what ``run`` says is beyond its bars in one of its orders, 0 for
    its own; nothing where all is well. ``of``: where it reaches places, also
    kernels.device.hopper_rings."""

    of: re.Pattern[str]
    case: Any
    run: Callable[[Any, int], str]
    reached: set[tuple[str, int]] = field(default_factory=set)


def calls() -> list[Call]:
    from tests.gluon import (
        backward_cases,
        forward_cases,
        marked_cases,
        matmul_cases,
        test_backward,
        test_forward,
        test_marked,
        test_matmul,
    )
    from tests.kernels import test_matmul_fp8

    def far(errors: dict[str, Any]) -> str:
        """What no other draw of numbers brings back."""
        return ", ".join(f"{name}: {one}" for name, one in errors.items() if one.far_beyond())

    def product(case: Any, order: int) -> str:
        case = replace(case, seed=case.seed + order)
        if not case.in_fp8:
            return far({"out": matmul_cases.run(case)[0]})
        share = test_matmul_fp8.shares(*matmul_cases.run_fp8(case)[0])
        return "" if bool((share <= 1.0).all()) else f"{float(share.max()):.2f} of the bound"

    def forward(case: Any, order: int) -> str:
        case = replace(case, order=case.order + order)
        in_fp8 = isinstance(case, forward_cases.Fp8Cut)
        return far((forward_cases.run_fp8 if in_fp8 else forward_cases.run)(case))

    def backward(case: Any, order: int, first: int = 0) -> str:
        return far(backward_cases.run(case, first + order))

    def marked(case: Any, order: int) -> str:
        share = marked_cases.run(replace(case, order=case.order + order))
        return "" if share <= 1.0 else f"{share:.2f} of the bar"

    forwards = (*test_forward.CHOSEN, *test_forward.CUT, *test_forward.TAILS, *test_forward.FP8)
    return [
        Call(re.compile(of), case, run)
        for of, run, cases in (
            (r"kernels\.matmul\..*", product, test_matmul.CASES),
            (r"kernels\.attention\.hopper\.(?!backward).*", forward, forwards),
            (OF_GRADIENTS, backward, test_backward.CASES),
            (OF_GRADIENTS, marked, test_marked.CASES),
        )
        for case in cases
    ] + [
        Call(re.compile(OF_GRADIENTS), test_backward.LATE, partial(backward, first=order))
        for order in (*test_backward.LATE_QUERIES, *test_backward.LATE_KEYS)
    ]


def told(call: Call, order: int) -> str:
    """What is told of a call, nothing where all is well."""
    from tests.kernels.interpreted import numbers

    with numbers(0):
        try:
            return call.run(call.case, order)
        except AssertionError as error:  # the interpreter's are such, too
            return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"


def reach(every: list[Call], among: list[FunctionType], processes: int = 1) -> str:
    """Run all calls as they are, quickest first from then on, and note which places they reach;
    what is wrong already."""
    from warpwatch.simulator.session import interpreter

    now: set[tuple[str, int]] = set()

    def mark(name: str, number: int, value: Any) -> Any:
        now.add((name, number))
        return value

    def run(i: int) -> tuple[str, float, set[tuple[str, int]]]:
        now.clear()
        begun = time.perf_counter()
        wrong = told(every[i], 0)
        return wrong, time.perf_counter() - begun, set(now)

    interpreter.extra_globals[MARK] = mark
    for plain in among:
        marked = interpreter.compiled(plain, Change(name_of(plain), None).visit)
        interpreter.changed[plain] = marked
    took: dict[int, float] = {}
    for call, (wrong, seconds, places) in zip(every, each(run, len(every), processes), strict=True):
        if wrong:
            return f"{call.case}: {wrong}"
        took[id(call)] = seconds
        call.reached.update(places)
    interpreter.changed.clear()
    every.sort(key=lambda one: took[id(one)])
    return ""


def each(run: Callable[[int], T], many: int, processes: int) -> Iterator[T]:
    """``run`` of each number, in order: in forks, which have what this process has made."""
    if processes == 1:
        yield from map(run, range(many))
        return
    global _run
    _run = run
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_of_number, range(many))


_run: Callable[[int], Any]


def _of_number(number: int) -> Any:
    return _run(number)


@contextmanager
def put_in_place(mutant: Mutant) -> Iterator[None]:
    """Inside, it runs instead of what it was made of."""
    from warpwatch.simulator.session import interpreter

    interpreter.extra_globals["_unawaited"] = unawaited
    interpreter.changed[mutant.plain] = mutant.code
    try:
        yield
    finally:
        del interpreter.changed[mutant.plain]


def judged(mutant: Mutant, every: list[Call], orders: int) -> str:
    """What tells a mutant, or that nothing does."""
    place = (name_of(mutant.plain), mutant.number)
    reaching = [one for one in every if place in one.reached]
    with put_in_place(mutant):
        for i, call in enumerate(reaching):
            for order in range(orders if i < QUICKEST else 1):
                if found := told(call, order):
                    return found
    return NOT_TOLD if reaching else NOT_REACHED


def parser_of_arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.gluon.mutants")
    parser.add_argument("--only", nargs="+", default=[], help="kernels' modules, by their ends")
    parser.add_argument("--orders", type=int, default=3, help=f"of the {QUICKEST} quickest cases")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)),
                        help="so many at a time (default: the cores, %(default)s)")  # fmt: skip
    return parser


def main(arguments: list[str]) -> int:
    parser = parser_of_arguments()
    given = parser.parse_args(arguments)
    among = functions()
    for name in given.only:
        if not any(one.__module__.endswith(f".{name}") for one in among):
            parser.error(f"--only {name}: no such module has anything to take away")
    if given.only:
        ends = tuple(f".{name}" for name in given.only)
        among = [one for one in among if one.__module__.endswith(ends)]
    modules = {one.__module__ for one in among}
    every = [
        one
        for one in calls()
        if any(
            one.of.fullmatch(module) or module == "kernels.device.hopper_rings"
            for module in modules
        )
    ]
    begun = time.perf_counter()
    if wrong := reach(every, among, given.processes):
        print(f"without a change: {wrong}")
        return 2
    print(f"{len(every)} cases in {time.perf_counter() - begun:.0f} s", flush=True)
    harmless: Counter[tuple[str, str, str]] = Counter()
    counts = dict.fromkeys(("told", "harmless", NOT_REACHED, NOT_TOLD), 0)
    mutants = [mutant for plain in among for mutant in mutants_of(plain)]

    def run(i: int) -> str:
        return judged(mutants[i], every, given.orders)

    said = each(run, len(mutants), given.processes)
    for mutant, found in zip(mutants, said, strict=True):
        kind, plain = found, mutant.plain
        key = (plain.__module__.removeprefix("kernels."), plain.__name__, mutant.what)
        count, known = HARMLESS.get(key, (0, ""))
        if found == NOT_TOLD and harmless[key] < count:
            kind, found = "harmless", f"harmless: {known}"
            harmless[key] += 1
        elif found not in (NOT_TOLD, NOT_REACHED):
            kind = "told"
        counts[kind] += 1
        print(f"{mutant}: {found}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    asked = (
        {one.removeprefix("kernels.") for one in modules}
        if given.only
        else {k[0] for k in HARMLESS}
    )
    stale = [k for k, (count, _) in HARMLESS.items() if k[0] in asked and harmless[k] != count]
    if stale:
        print(f"told, or gone, of those that HARMLESS names: {stale}")
    return int(bool(counts[NOT_TOLD] or counts[NOT_REACHED] or stale))


if __name__ == "__main__":
    parser_of_arguments().parse_args()  # a mistake, or --help, ends it here
    if os.environ.get("TRITON_INTERPRET") != "1":
        # Triton reads it when it is imported.
        os.environ["TRITON_INTERPRET"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "tools.gluon.mutants", *sys.argv[1:]])
    from tests.kernels.interpreted import prepare

    prepare()
    raise SystemExit(main(sys.argv[1:]))
