"""Machine code in the words both vendors share: instructions by class, and loops.

A loop is a natural one of the control-flow graph (an edge back to a block that dominates it), so
code the compiler moved out of line belongs to the loop it returns to. A loop that only polls a
barrier is a *wait*; the innermost loops that do work are *hot*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Class = Literal[
    "tensor",
    "special",
    "fma",
    "convert",
    "integer",
    "move",
    "scalar",
    "shared",
    "global",
    "local",
    "constant",
    "barrier",
    "control",
    "unknown",
]
CLASSES: tuple[Class, ...] = Class.__args__  # type: ignore[attr-defined]
_WORK: frozenset[Class] = frozenset({"tensor", "special", "fma", "shared", "global", "local"})

Flow = Literal["next", "branch", "jump", "end"]
"""Where control goes: on; on or to the targets; to the targets; nowhere."""


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``work`` counts what it does in its unit for one warp (wave): flops of a
    tensor instruction, lanes of an FMA or special one, bytes of a memory one. ``dtype`` is what a
    tensor instruction multiplies, ``fetched_bytes`` what it reads from shared memory itself.
    ``guard`` is the condition it runs under, such as ``@!P0``."""

    opcode: str
    operands: str
    kind: Class
    flow: Flow = "next"
    targets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    work: int = 0
    tensor_level: int = 0
    dtype: str = ""
    fetched_bytes: int = 0
    guard: str = ""


@dataclass(frozen=True)
class Loop:
    """The instructions (by index) that one iteration may run."""

    header: int
    indices: frozenset[int]


@dataclass(frozen=True)
class Program:
    """All instructions of a kernel in layout order."""

    instructions: tuple[Instruction, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Opcodes the reader has no class for."""
        return tuple(sorted({one.opcode for one in self.instructions if one.kind == "unknown"}))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every natural loop that does work, in layout order. The loop in which specialised warps
        wait for what to do next (it jumps by a table) is none."""
        found = [loop for loop in _natural_loops(self.instructions) if self._works(loop)]
        return tuple(
            loop
            for loop in found
            if not (
                any(self.instructions[index].opcode.startswith("BRX") for index in loop.indices)
                and any(other.indices < loop.indices for other in found)
            )
        )

    @cached_property
    def hot_loops(self) -> tuple[Loop, ...]:
        """The loops with work that hold no other such loop."""
        return tuple(
            loop
            for loop in self.loops
            if not any(other.indices < loop.indices for other in self.loops)
        )

    def _works(self, loop: Loop) -> bool:
        return any(self.instructions[index].kind in _WORK for index in loop.indices)

    def count(self, indices: Iterable[int] | None = None) -> Counter[Class]:
        """Instructions by class, of the whole kernel or of ``indices``."""
        chosen = range(len(self.instructions)) if indices is None else indices
        return Counter(self.instructions[index].kind for index in chosen)

    def work(self, kind: Class, indices: Iterable[int] | None = None) -> int:
        """What one warp does in the unit of ``kind``: see :class:`Instruction`."""
        chosen = range(len(self.instructions)) if indices is None else indices
        return sum(
            self.instructions[index].work
            for index in chosen
            if self.instructions[index].kind == kind
        )

    def skipped(self, indices: Collection[int]) -> frozenset[int]:
        """Those among ``indices`` that a branch forward, to another of them, may jump over, but for
        stretches with products, which their loop is for."""
        places = {label: i for i, one in enumerate(self.instructions) for label in one.labels}
        found: set[int] = set()
        for i in indices:
            one = self.instructions[i]
            for target in one.targets if one.flow == "branch" else ():
                over = range(i + 1, places.get(target, i))
                inside = places.get(target) in indices and all(inner in indices for inner in over)
                if inside and not any(self.instructions[inner].tensor_level for inner in over):
                    found.update(over)
        return frozenset(found)

    @property
    def tensor_level(self) -> int:
        return max((one.tensor_level for one in self.instructions), default=0)


def _natural_loops(instructions: Sequence[Instruction]) -> list[Loop]:
    starts, edges = blocks(instructions)
    dominators = _dominators(edges)
    before: dict[int, list[int]] = {block: [] for block in edges}
    for block, following in edges.items():
        for other in following:
            before[other].append(block)
    bodies: dict[int, set[int]] = {}
    for block, following in edges.items():
        for header in following:
            if header in dominators.get(block, ()):
                body = bodies.setdefault(header, {header})
                stack = [block]
                while stack:
                    one = stack.pop()
                    if one not in body:
                        body.add(one)
                        stack.extend(before[one])
    ends = [*starts[1:], len(instructions)]
    return [
        Loop(
            starts[header],
            frozenset(i for block in body for i in range(starts[block], ends[block])),
        )
        for header, body in sorted(bodies.items())
    ]


def blocks(instructions: Sequence[Instruction]) -> tuple[list[int], dict[int, list[int]]]:
    """Where basic blocks start, and the blocks that may follow each."""
    places = {label: i for i, one in enumerate(instructions) for label in one.labels}
    leaders = {0}
    for i, one in enumerate(instructions):
        if one.flow != "next":
            leaders.add(i + 1)
        leaders.update(places[target] for target in one.targets if target in places)
        if one.labels:
            leaders.add(i)
    starts = sorted(leader for leader in leaders if leader < len(instructions))
    number = {start: block for block, start in enumerate(starts)}
    edges: dict[int, list[int]] = {}
    for block, start in enumerate(starts):
        end = starts[block + 1] if block + 1 < len(starts) else len(instructions)
        last = instructions[end - 1] if end > start else None
        following = []
        if last is not None and last.flow in ("branch", "jump"):
            following = [number[places[target]] for target in last.targets if target in places]
        if (last is None or last.flow in ("next", "branch")) and block + 1 < len(starts):
            following.append(block + 1)
        edges[block] = following
    return starts, edges


def _dominators(edges: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
    """For each block, every block on all ways to it from an entry (a block nothing leads to)."""
    before: dict[int, list[int]] = {block: [] for block in edges}
    for block, following in edges.items():
        for other in following:
            before[other].append(block)
    entries = {block for block in edges if not before[block]} | {0}
    order = _reachable(edges, entries)
    # What only an indirect jump leads to (the code of specialised warps) is entered there too.
    while hidden := set(edges) - set(order):
        entries.add(min(hidden))
        order = _reachable(edges, entries)
    found: dict[int, set[int]] = {block: {block} for block in entries}
    changed = True
    while changed:
        changed = False
        for block in order:
            if block in entries:
                continue
            known = [found[one] for one in before[block] if one in found]
            if not known:
                continue
            new = set.intersection(*known) | {block}
            if found.get(block) != new:
                found[block] = new
                changed = True
    return found


def _reachable(edges: Mapping[int, Sequence[int]], entries: Iterable[int]) -> list[int]:
    """Blocks in reverse postorder, so that dominators settle in a few rounds."""
    seen: set[int] = set()
    order: list[int] = []
    for entry in sorted(entries):
        stack = [(entry, iter(edges[entry]))] if entry not in seen else []
        seen.add(entry)
        while stack:
            block, following = stack[-1]
            step = next((one for one in following if one not in seen), None)
            if step is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(edges[step])))
    return order[::-1]
