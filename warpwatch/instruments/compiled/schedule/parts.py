"""The parts that the warps of a block play, the code of each part, and how often it runs.

Warps of a specialised kernel jump by a table to the code of their part; those of any other kernel
all play one part. Which part of the machine code is which partition of the source is seen by their
loops: as many of them, with products in the same ones, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from warpwatch.instruments.compiled.bound.loops import Runs, SourceLoop, pieces_of, source_loops
from warpwatch.instruments.compiled.bound.source import Source
from warpwatch.instruments.compiled.formats import ir
from warpwatch.instruments.compiled.formats.code import Loop, Program
from warpwatch.instruments.compiled.formats.recording import Launch

from . import paths

# Of the code of a loop, what stands for the largest branch in it.
_MUCH = 1 / 3


@dataclass(frozen=True)
class Piece:
    """A way through one loop, loops inside it left out, by the numbers of its instructions.
    ``more`` is the same with what runs seldom. ``products`` counts its matrix instructions."""

    way: tuple[int, ...]
    more: tuple[int, ...]
    runs: Runs
    is_inner: bool
    products: int

    @property
    def whole_runs(self) -> float:
        """How often it runs, without the rounds in which the most of it is jumped over. Where the
        way leaves out that much already, nothing is to be taken off for it."""
        is_off = len(self.more) - len(self.way) > _MUCH * len(self.more)
        return self.runs.total * (1.0 if is_off else self.runs.whole)


@dataclass(frozen=True)
class Part:
    """What ``warps`` of a block do: ``once`` outside of loops, and their loops in order."""

    warps: int
    once: tuple[int, ...]
    loops: tuple[Piece, ...]


def of_launch(
    launch: Launch, program: Program, source: Source
) -> tuple[list[Part], tuple[int, ...]]:
    """The parts of a launch, and the way that every warp takes before its part begins.

    Args:
        launch: What was recorded.
        program: Its machine code.
        source: Its source in Triton's GPU dialect.

    Returns:
        The parts in the order of their code, and numbers of instructions, none where all warps
        do the same.
    """
    function, visited, works = source.function, source.visited, source.works
    labels = paths.places(program)
    starts = paths.entries(program) if source.specialised else []
    whole = Runs(launch.programs, 1.0, function.warps)
    found = pieces_of(program, source_loops(function, visited, works), whole, [])
    outside = found[-1][0]
    loops: dict[int, list[Piece]] = {start: [] for start in starts or [0]}
    for loop, (own, runs) in zip(program.loops, found, strict=False):
        inner = _directly(program.loops, loop)
        seldom = program.skipped(own)
        more = tuple(paths.way(program, loop.header, own, inner, labels))
        usual = tuple(paths.way(program, loop.header, own, inner, labels, seldom))
        products = sum(program.instructions[at].kind == "tensor" for at in more)
        start = max((one for one in loops if one <= loop.header), default=min(loops))
        loops[start].append(Piece(usual, more, runs, not inner, products))
    outermost = _directly(program.loops, None)

    def once(start: int, end: int) -> tuple[int, ...]:
        own = {at for at in outside if start <= at < end}
        within = [loop for loop in outermost if start <= loop.header < end]
        return tuple(paths.way(program, start, own, within, labels, is_loop=False))

    last = len(program.instructions)
    if not starts:
        return [Part(function.warps, once(0, last), tuple(loops[0]))], ()
    # Warps that have played their part go back to the table, where the block ends.
    ends = dict(zip(starts, [*starts[1:], last], strict=True))
    partitions = _partitions(source)
    parts = []
    for start, pieces in loops.items():
        if pieces:
            warps, runs_of = _take(partitions, [piece.products > 0 for piece in pieces])
            made = [
                replace(piece, runs=runs) for piece, runs in zip(pieces, runs_of, strict=False)
            ] or pieces
            parts.append(Part(warps or pieces[0].runs.warps, once(start, ends[start]), tuple(made)))
    return parts, once(0, starts[0])


def _directly(loops: Sequence[Loop], outer: Loop | None) -> list[Loop]:
    """The loops directly inside ``outer``, or inside none."""
    within = [one for one in loops if outer is None or one.indices < outer.indices]
    return [one for one in within if not any(one.indices < other.indices for other in within)]


def _partitions(source: Source) -> list[tuple[int, list[SourceLoop]]]:
    """The warps and the loops of each partition of the source, that of the default warps last."""
    function = source.function
    found: list[tuple[bool, int, list[SourceLoop]]] = []
    for op in function.body.walk():
        for region in op.regions if op.name == "ttg.warp_specialize" else ():
            warps = region.warps or function.warps
            inside = ir.Function(function.name, function.arguments, region, warps)
            loops = source_loops(inside, source.visited, source.works)
            found.append((region.kind == "default", warps, loops))
    return [(warps, loops) for _, warps, loops in sorted(found, key=lambda one: one[0])]


def _take(
    partitions: list[tuple[int, list[SourceLoop]]], multiplies: list[bool]
) -> tuple[int, list[Runs]]:
    """The first partition, not taken yet, whose loops multiply where ``multiplies`` says so."""
    for place, (warps, loops) in enumerate(partitions):
        if [loop.flops > 0 for loop in loops] == multiplies:
            partitions.pop(place)
            return warps, [loop.runs for loop in loops]
    return 0, []
