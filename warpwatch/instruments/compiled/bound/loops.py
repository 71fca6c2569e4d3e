"""Which loop of the machine code is which of the source, and how often each of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from warpwatch.instruments.compiled.formats import ir, work
from warpwatch.instruments.compiled.formats.code import Class, Loop, Program

from . import trip_counts


@dataclass(frozen=True)
class Runs:
    """How often a piece of code runs: over the launch, and in the program that runs it most.
    ``seldom``: the share of them in which what its rarest branch holds runs, too. ``multiplied``:
    the share of its products that they execute, which code of a branch not taken does not.
    ``whole``: the share of them in which the region with most operations runs: a loop over tiles
    may go round once more than there are tiles."""

    total: float
    most: float
    warps: int
    seldom: float = 1.0
    multiplied: float = 1.0
    whole: float = 1.0


@dataclass(frozen=True)
class SourceLoop:
    """A loop of the source, with what one iteration does."""

    runs: Runs
    flops: int
    special: int
    global_bytes: int


def source_loops(
    function: ir.Function,
    visited: trip_counts.Visits,
    works: Mapping[ir.Region, work.RegionWork],
) -> list[SourceLoop]:
    """Loops of the source in the order of the machine code, outer before inner: that of the text,
    but that the code of the default warps comes after that of the specialised ones."""
    found: list[SourceLoop] = []

    def walk(region: ir.Region, warps: int) -> None:
        for op in region.ops:
            for inner in sorted(op.regions, key=lambda one: one.kind == "default"):
                inside = inner.warps or warps
                if op.name in ("scf.for", "scf.while") and inner is op.regions[-1]:
                    total = [works[one] for one in regions_of(inner) if one in works]
                    times = visited.total.get(inner, 0.0)
                    rarest = min(visited.total.get(one, 0.0) for one in regions_of(inner))
                    largest = max(regions_of(inner), key=lambda one: len(one.ops))
                    flops = sum(one.flops.total() for one in total)
                    asked = sum(
                        works[one].flops.total() * visited.total.get(one, 0.0)
                        for one in regions_of(inner)
                        if one in works
                    )
                    found.append(
                        SourceLoop(
                            runs=Runs(
                                times,
                                visited.most.get(inner, 0.0),
                                inside,
                                rarest / times if times else 1.0,
                                asked / (flops * times) if flops * times else 1.0,
                                visited.total.get(largest, 0.0) / times if times else 1.0,
                            ),
                            flops=flops,
                            special=sum(one.special for one in total),
                            global_bytes=sum(one.global_bytes for one in total),
                        )
                    )
                walk(inner, inside)

    walk(function.body, function.warps)
    return found


def regions_of(region: ir.Region) -> list[ir.Region]:
    """``region`` and the regions inside it that are no loops of their own."""
    found = [region]
    for op in region.ops:
        if op.name not in ("scf.for", "scf.while"):
            for inner in op.regions:
                found.extend(regions_of(inner))
    return found


def pieces_of(
    program: Program, source: list[SourceLoop], once: Runs, notes: list[str]
) -> list[tuple[frozenset[int], Runs]]:
    """The code of every loop (inner loops left out) with its runs, then what is in no loop."""
    matched = _match(program, source, notes)
    pieces: list[tuple[frozenset[int], Runs]] = []
    covered: set[int] = set()
    for loop in program.loops:
        inside = [other.indices for other in program.loops if other.indices < loop.indices]
        own = loop.indices.difference(*inside)
        covered |= own
        pieces.append((own, matched[loop]))
    rest = frozenset(range(len(program.instructions))) - covered
    pieces.append((rest, once))
    return pieces


def _match(program: Program, source: list[SourceLoop], notes: list[str]) -> dict[Loop, Runs]:
    """The runs of each machine loop.

    The compilers keep the order of loops. Where they also keep their number the n-th is the n-th;
    else loops with and without products are matched apart; what is left over is scaled so that
    its memory traffic (or the special functions, or nothing) agrees with the source's.
    """
    machine = list(program.loops)
    found: dict[Loop, Runs] = {}
    multiplies = [program.count(loop.indices)["tensor"] > 0 for loop in machine]
    groups: list[tuple[list[Loop], list[SourceLoop]]]
    if len(machine) == len(source):
        groups = [(machine, source)]
    else:
        groups = [
            (
                [loop for loop, yes in zip(machine, multiplies, strict=True) if yes],
                [loop for loop in source if loop.flops],
            ),
            (
                [loop for loop, yes in zip(machine, multiplies, strict=True) if not yes],
                [loop for loop in source if not loop.flops],
            ),
        ]
    for loops, originals in groups:
        if len(loops) == len(originals):
            for loop, original in zip(loops, originals, strict=True):
                found[loop] = _unrolled(program, loop, original)
        elif loops:
            notes.append(
                f"{len(originals)} loops of the source are {len(loops)} in machine code: "
                "their runs are scaled by the work of the heaviest"
            )
            found.update(_scaled(program, loops, originals))
    return found


def _ratios(program: Program, loop: Loop, original: SourceLoop) -> dict[str, float]:
    """Work of one machine iteration over that of one source iteration, by kind."""
    warps = original.runs.warps
    pairs: tuple[tuple[Class, int], ...] = (
        ("tensor", original.flops),
        ("special", original.special),
        ("global", original.global_bytes),
    )
    ratios = {
        kind: program.work(kind, loop.indices) * warps / asked for kind, asked in pairs if asked
    }
    copies = sum(
        program.instructions[index].work
        for index in loop.indices
        if program.instructions[index].opcode.startswith("LDGSTS")
    )
    if original.global_bytes and copies:
        ratios["global"] = ratios.get("global", 0.0) + copies * warps / original.global_bytes
    return {kind: ratio for kind, ratio in ratios.items() if ratio}


def _unrolled(program: Program, loop: Loop, original: SourceLoop) -> Runs:
    """A machine iteration that does everything of the source's n times stands for n of them."""
    ratios = _ratios(program, loop, original)
    times = max(1, int(min(ratios.values(), default=1.0) + 0.05))
    runs = original.runs
    return replace(runs, total=runs.total / times, most=runs.most / times)


def _scaled(program: Program, loops: list[Loop], originals: list[SourceLoop]) -> dict[Loop, Runs]:
    if not originals:
        return {loop: Runs(0.0, 0.0, 1) for loop in loops}
    heaviest = max(originals, key=lambda one: (one.flops, one.global_bytes * one.runs.total))
    kind: Class = "tensor" if heaviest.flops else "global"
    main = max(loops, key=lambda loop: program.work(kind, loop.indices))
    found = {loop: Runs(0.0, 0.0, heaviest.runs.warps) for loop in loops}
    ratios = _ratios(program, main, heaviest)
    scale = 1.0 / max(1.0, ratios.get(kind, 1.0))
    total = sum(one.runs.total for one in originals) if heaviest.flops else heaviest.runs.total
    most = heaviest.runs.most * scale
    found[main] = replace(heaviest.runs, total=total * scale, most=most)
    return found
