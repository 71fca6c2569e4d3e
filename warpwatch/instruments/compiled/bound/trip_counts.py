"""How often each loop body and branch of a launch runs, by evaluating its scalar code.

Loop bounds depend on program ids, scalar arguments and sometimes on small tables in memory. All of
these are known from the recorded launch, so that the bounds are evaluated exactly, for all programs
at once. What cannot be evaluated (a bound computed from floating-point data, a table that another
kernel fills) is assumed to run once and is noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from warpwatch.instruments.compiled.formats.ir import Function, Op, Region
from warpwatch.instruments.compiled.formats.recording import Argument, Launch
from warpwatch.instruments.compiled.formats.work import stored_arguments

from .scalars import (
    ARITHMETIC,
    COMPARISONS,
    Pointer,
    Value,
    argument,
    is_known,
    load,
    may_be,
    numbers,
    retyped,
    truncated,
    unknown,
    where,
)

# Programs evaluated at most: all of them where loops are plain, a spread where they nest.
PLAIN_PROGRAMS = 1 << 16
NESTED_PROGRAMS = 1 << 11
# Iterations followed one by one of a loop with loops or branches in it. Of a counted loop the rest
# goes on like these; where a loop ends only by a condition, nothing is known of the rest.
ITERATIONS = 1 << 12


@dataclass
class Visits:
    """Runs of each region, summed over the launch and of the program that runs it most."""

    total: dict[Region, float] = field(default_factory=dict)
    most: dict[Region, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class _Scope:
    def __init__(self, region: Region, parent: _Scope | None, known: dict[str, Value]) -> None:
        self.region, self.parent, self.known = region, parent, known


def evaluate(function: Function, launch: Launch, arguments: Mapping[str, Argument]) -> Visits:
    """Run the control flow of ``function`` for the programs of ``launch``; its ``arguments`` are
    those by compiled names."""
    return _Evaluator(function, launch, arguments).run()


# Hides from the compiler that a number is always the same.
_MOVE = '"mov.b32 $0, $1;"'
_LOOPS = ("scf.for", "scf.while")


def _nests(region: Region) -> bool:
    return any(
        inner.name in (*_LOOPS, "scf.if")
        for op in region.walk()
        if op.name in _LOOPS
        for body in op.regions
        for inner in body.walk()
    )


class _Evaluator:
    def __init__(
        self, function: Function, launch: Launch, arguments: Mapping[str, Argument]
    ) -> None:
        self._function = function
        self._grid = launch.grid
        limit = NESTED_PROGRAMS if _nests(function.body) else PLAIN_PROGRAMS
        count = launch.programs
        if count <= limit:
            chosen = np.arange(count, dtype=np.int64)
        else:  # evenly spread, but in step with no period of the grid
            golden = (np.arange(limit) * 0.6180339887498949) % 1.0
            chosen = np.unique((golden * count).astype(np.int64))
        self._weight = count / len(chosen)
        x, y, _ = launch.grid
        self._ids = {"x": chosen % x, "y": chosen // x % y, "z": chosen // (x * y)}
        self._size = len(chosen)
        self._visits = Visits()
        self._runs: dict[Region, np.ndarray] = {}
        self._arguments = {f"%{name}": argument(value) for name, value in arguments.items()}
        stored = stored_arguments(function)
        for name, value in self._arguments.items():
            # What the kernel itself writes may have changed before it is read.
            if isinstance(value, Pointer) and (stored is None or name[1:] in stored):
                self._arguments[name] = None

    def run(self) -> Visits:
        everywhere = np.ones(self._size, dtype=bool)
        self._region(self._function.body, None, {}, everywhere)
        for region, runs in self._runs.items():
            self._visits.total[region] = float(runs.sum()) * self._weight
            self._visits.most[region] = float(runs.max())
        return self._visits

    def _note(self, text: str) -> None:
        if text not in self._visits.notes:
            self._visits.notes.append(text)

    # Control flow ---------------------------------------------------------------------------

    def _count(self, region: Region, runs: np.ndarray) -> None:
        before = self._runs.get(region)
        added = runs.astype(np.float64)
        self._runs[region] = added if before is None else before + added

    def _region(
        self, region: Region, parent: _Scope | None, known: dict[str, Value], mask: np.ndarray
    ) -> _Scope:
        scope = _Scope(region, parent, known)
        self._count(region, mask)
        arrivals: dict[str, np.ndarray] = {}
        here = mask
        for op in region.ops:
            if op.name == "block":
                here = arrivals.get(op.results[0], np.zeros(self._size, dtype=bool))
            elif op.name == "cf.cond_br":
                self._branch(op, scope, here, arrivals)
            elif op.name == "cf.br":
                _arrive(arrivals, op.rest, here)
            elif op.name == "scf.for":
                self._for(op, scope, here)
            elif op.name == "scf.while":
                self._while(op, scope, here)
            elif op.name == "scf.if":
                self._if(op, scope, here)
            elif op.name == "ttg.warp_specialize":
                self._partitions(op, scope, here)
        return scope

    def _branch(
        self, op: Op, scope: _Scope, here: np.ndarray, arrivals: dict[str, np.ndarray]
    ) -> None:
        sides = self._sides(self._value(op.values[0], scope), here)
        for label, programs in zip(re.findall(r"\^\w+", op.rest), sides, strict=False):
            _arrive(arrivals, label, programs)

    def _sides(self, condition: Value, here: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The programs that go where a condition holds, and where it does not."""
        if not is_known(condition, here):
            self._note("a branch depends on data: both sides are counted")
        return may_be(True, condition, here), may_be(False, condition, here)

    def _partitions(self, op: Op, scope: _Scope, here: np.ndarray) -> None:
        handed = re.match(r"\((?P<values>[^)]*)\)", op.rest)
        values = re.findall(r"%[\w$.#-]+", handed["values"]) if handed else []
        for region in op.regions:
            names = region.parameters
            known = {
                name: self._value(value, scope) for name, value in zip(names, values, strict=False)
            }
            self._region(region, scope, known, here)

    def _for(self, op: Op, scope: _Scope, here: np.ndarray) -> None:
        head = re.match(
            r"\s*(?:unsigned )?(?P<iv>%\S+) = (?P<lower>%\S+) to (?P<upper>%\S+)"
            r" step (?P<step>%\S+)",
            op.rest,
        )
        assert head is not None, op.rest
        lower, upper, step = (self._value(head[one], scope) for one in ("lower", "upper", "step"))
        names, starts = _carried(op.rest)
        trips = self._trips(lower, upper, step, here)
        body = op.regions[0]
        branches = any(inner.name in (*_LOOPS, "scf.if") for inner in body.walk())
        most = int(trips.max(initial=0))
        carried = [self._value(start, scope) for start in starts]
        # A loop over numbers alone may be a sum that another loop's bound is made of.
        sums = bool(carried) and not unknown(*carried)
        if most == 0 or not (branches or sums):
            self._count(body, trips)
            self._results(op, scope, carried if most == 0 else [None] * len(names))
            return
        limit = min(most, ITERATIONS)
        before = dict(self._runs)
        for i in range(limit):
            mask = trips > i
            known = {head["iv"]: None if unknown(lower, step) else lower + i * step}
            known.update(zip(names, carried, strict=True))
            inner = self._region(body, scope, known, mask)
            carried = self._yielded(body, inner, mask, carried)
        if most > limit:
            self._note(f"a loop of {most} iterations was followed for {limit}")
            factor = trips / np.maximum(1, np.minimum(trips, limit))
            for region, runs in self._runs.items():
                earlier = before.get(region, np.zeros(self._size))
                self._runs[region] = earlier + (runs - earlier) * factor
            carried = [None] * len(names)
        self._results(op, scope, carried)

    def _trips(self, lower: Value, upper: Value, step: Value, here: np.ndarray) -> np.ndarray:
        """Iterations of a counted loop, one where its bounds are not known."""
        if not all(is_known(one, here) for one in (lower, upper, step)):
            self._note("a loop bound depends on data: one iteration is assumed")
        if unknown(lower, upper, step):
            return here.astype(np.int64)
        stride = np.maximum(step, 1)
        whole = numbers(-((lower - upper) // stride), otherwise=1)
        return np.where(here, np.maximum(whole, 0), 0)

    def _while(self, op: Op, scope: _Scope, here: np.ndarray) -> None:
        before, after = op.regions[0], op.regions[-1]
        names, starts = _carried(op.rest)
        carried = [self._value(start, scope) for start in starts]
        mask = here
        for _ in range(ITERATIONS):
            inner = self._region(before, scope, dict(zip(names, carried, strict=True)), mask)
            end = next(one for one in before.ops if one.name == "scf.condition")
            condition = self._value(end.values[0], inner)
            passed = [self._value(one, inner) for one in end.values[1:]]
            if not is_known(condition, mask):
                self._note("a loop ends by data: one iteration is assumed")
                self._region(after, scope, {}, may_be(True, condition, mask))
                carried = [None] * len(passed)
                break
            mask = may_be(True, condition, mask)
            if not mask.any():
                carried = passed
                break
            known = dict(zip(after.parameters, passed, strict=False))
            body = self._region(after, scope, known, mask)
            carried = self._yielded(after, body, mask, passed)
        else:
            self._note(
                f"a loop had not ended after {ITERATIONS} iterations: what follows is not counted"
            )
            carried = [None] * len(carried)
        self._results(op, scope, carried)

    def _if(self, op: Op, scope: _Scope, here: np.ndarray) -> None:
        condition = self._value(op.values[0], scope)
        holds, fails = self._sides(condition, here)
        then = self._region(op.regions[0], scope, {}, holds)
        results = self._yielded(op.regions[0], then, here, None)
        if len(op.regions) > 1:
            other = self._region(op.regions[1], scope, {}, fails)
            others = self._yielded(op.regions[1], other, here, None)
            results = [
                where(condition, one, two) for one, two in zip(results, others, strict=False)
            ]
        self._results(op, scope, results)

    def _yielded(
        self, region: Region, scope: _Scope, mask: np.ndarray, before: list[Value] | None
    ) -> list[Value]:
        end = next((one for one in reversed(region.ops) if one.name == "scf.yield"), None)
        if end is None:
            return before or []
        names = re.findall(r"%[\w$.#-]+", end.rest.split(" : ")[0])
        values = [self._value(name, scope) for name in names]
        if before is None:
            return values
        return [where(mask, new, old) for new, old in zip(values, before, strict=False)]

    def _results(self, op: Op, scope: _Scope, values: list[Value]) -> None:
        if not op.results:
            return
        name = op.results[0]
        for i, value in enumerate(values):
            scope.known[f"{name}#{i}"] = value
        scope.known[name] = values[0] if len(values) == 1 else None

    # Values ---------------------------------------------------------------------------------

    def _value(self, name: str, scope: _Scope | None) -> Value:
        one = scope
        while one is not None:
            if name in one.known:
                return one.known[name]
            op = one.region.definitions.get(name)
            if op is not None:
                value = self._compute(op, one)
                one.known[name] = value
                return value
            one = one.parent
        return self._arguments.get(name)

    def _compute(self, op: Op, scope: _Scope) -> Value:
        if "tensor<" in op.rest or op.regions:
            return None
        if op.name == "arith.constant":
            match = re.match(r"\s*(true|false|-?\d+)\b(?!\.)", op.rest)
            if match is None:
                return None
            word = match.group(1)
            return int(word) if word not in ("true", "false") else int(word == "true")
        if op.name == "tt.get_program_id":
            return self._ids[op.rest.split()[0]]
        if op.name == "tt.get_num_programs":
            return self._grid["xyz".index(op.rest.split()[0])]
        values = [self._value(name, scope) for name in op.values]
        if op.name == "tt.addptr":
            base, offset = values
            if isinstance(base, Pointer) and offset is not None:
                return Pointer(base.argument, base.offset + offset)
            return None
        if op.name == "tt.load":
            return load(*values[:3])
        if op.name == "tt.bitcast" and isinstance(values[0], Pointer):
            return retyped(values[0], op.rest)
        if unknown(*values):
            return None
        if op.name == "tt.elementwise_inline_asm" and _MOVE in op.rest:
            return values[0]
        if op.name == "arith.trunci":
            return truncated(values[0], op.rest)
        if op.name == "arith.cmpi":
            return COMPARISONS[op.rest.split(",")[0].strip()](*values)
        if op.name == "arith.select":
            return where(values[0], values[1], values[2])
        function = ARITHMETIC.get(op.name)
        return None if function is None else function(*values)


def _arrive(arrivals: dict[str, np.ndarray], text: str, mask: np.ndarray) -> None:
    match = re.search(r"\^\w+", text)
    if match:
        label = match.group()
        arrivals[label] = arrivals[label] | mask if label in arrivals else mask


def _carried(rest: str) -> tuple[list[str], list[str]]:
    """Names and start values of what a loop hands from iteration to iteration."""
    match = re.search(r"(?:iter_args|^\s*)\((?P<pairs>%[^)]*)\)", rest)
    pairs = re.findall(r"(%\S+) = (%[\w$.#-]+)", match["pairs"]) if match else []
    return [name for name, _ in pairs], [start for _, start in pairs]
