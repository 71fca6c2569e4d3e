"""How long a launch keeps the SMs at work: each piece of its code, as often as it runs.

The bound says how long the busiest unit is needed. A prediction also sees why that unit waits: the
order of instructions, their latencies, barriers between warps, who shares a scheduler, and the ends
of each block. Where device memory or L2 is busy for longer, that is the prediction. No constant is
fitted to a measured time. docs/results/prediction.md says how near it is.

Each machine (:mod:`.machines`) says whether its predictions were compared with counters of a card.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from warpwatch.devices import Device
from warpwatch.instruments import method
from warpwatch.instruments.compiled.bound.overlap import L2_BYTES
from warpwatch.instruments.compiled.bound.source import Source
from warpwatch.instruments.compiled.formats import work
from warpwatch.instruments.compiled.formats.code import Program
from warpwatch.instruments.compiled.formats.recording import (
    Argument,
    DescriptorArgument,
    Launch,
)

from . import issue, parts, pipes
from .machines import MACHINES, Machine
from .parts import Part, Piece

TARGETS = tuple(MACHINES)
# Iterations of a loop that are followed: two until it is in its stride, then so many that two to
# six stages of a pipeline fit in them a whole number of times. Of long code fewer have to do.
_ITERATIONS, _OF_LONG, _LONG = 14, 6, 400
_LINE = 128  # bytes of a line of L2
_COPIES = ("UTMALDG", "UBLKCP")
# A pipe that is busy for less of the time does not limit a loop: waiting does.
_BUSY = 0.6
# Programs of which the longest takes at most as many times as long as the mean are alike.
_ALIKE = 1.02


@dataclass(frozen=True)
class Prediction:
    """``clocks`` that an SM is at work, on the average of all, and ``idle`` clocks that it then has
    no block while another has. ``us`` are both, at the datasheet's clock. ``limited_by`` is what is
    busiest: a pipe, ``memory``, ``L2``, or ``latency`` where nothing is. ``sure`` says whether all
    that runs is known: no branch depends on data. ``parts`` deals the clocks to what limits each
    loop, and to ``ends``: of blocks, outside loops. ``checked`` says whether predictions for the
    target were compared with a card."""

    clocks: float
    us: float
    limited_by: str
    sure: bool
    parts: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    checked: bool = True


@cache
def model() -> str:
    """Name the model of time by its definitions: times of two models are not compared.

    Returns:
        Twelve hexadecimal digits.
    """
    return method.method_hash(*map(str, Path(__file__).parent.glob("*.py")))


def predict(
    launch: Launch, program: Program, source: Source, device: Device, blocks: int
) -> Prediction | None:
    """The prediction of one launch.

    Args:
        launch: What was recorded, on a target of ``TARGETS``.
        program: Its machine code.
        source: Its source in Triton's GPU dialect.
        device: The card.
        blocks: How many blocks an SM holds at once.

    Returns:
        The prediction, or ``None`` for another target or for more code than can be followed.

    Example:
        >>> predict(launch, program, source, devices.load("h200"), 1).us  # doctest: +SKIP
        143.4
    """
    machine = MACHINES.get(device.arch)
    if machine is None:
        return None
    visited, works = source.visited, source.works
    played, before = parts.of_launch(launch, program, source)
    steps = _steps(launch.kernel.binary, program, device, machine)
    sms = device.kernel_sms
    filled = min(1.0, launch.programs / sms)
    resident = max(1, min(blocks, -(-launch.programs // sms)))
    each_slot = launch.programs / resident / sms

    copies = any(one.opcode.startswith(_COPIES) for one in program.instructions)
    try:
        loops = _loops(played, steps, resident, sms)
        begins = _start(played, before, steps, resident)
    except ValueError:  # more code than can be followed
        return None
    if copies:
        begins += pipes.copied(max((one.fetched for one in works.values()), default=0.0))
    # The first block finds nothing in L2: of a kernel that copies tiles not even descriptors.
    first = (machine.first_clocks if copies or not machine.checked else 0) * filled
    run = max(loops.values(), key=lambda one: one.clocks, default=_Run())
    traffic = work.dram_bytes(works, visited.total, source.arguments)
    fetched = sum(
        one.fetched * _lines(one.loads, source.arguments) * visited.total.get(region, 0.0)
        for region, one in works.items()
    )
    clocks = {
        run.limited_by: run.clocks + begins * each_slot,
        "memory": traffic * device.clock_ghz / device.kernel_bandwidth_gbps * filled
        + begins * filled,
        "L2": fetched / L2_BYTES / sms + begins * filled,
    }
    longest = max(clocks, key=lambda one: clocks[one])
    total = clocks[longest] + first
    ends = begins * (each_slot if longest == run.limited_by else filled)
    shares = run.parts if longest == run.limited_by else {longest: clocks[longest] - ends}
    made = {**shares, "ends": ends + first}
    # The time ends with the last block, whatever limits the others.
    idle = max(0.0, _last_block(launch.programs, sms, resident, run, begins) - clocks[longest])
    if longest != run.limited_by:
        idle = max(idle, clocks[longest] * (1 / filled - 1))
    us = (total + idle) / device.clock_ghz / 1e3
    return Prediction(total, us, longest, not visited.notes, made, idle, machine.checked)


class _Steps(tuple[pipes.Step, ...]):
    """The code of a kernel, which is only equal to itself: what is known of it is kept by it."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


_KEPT: dict[tuple[bytes, str], _Steps] = {}
_MOST_KEPT = 64  # kernels of which a call may launch each many times


def _steps(binary: bytes, program: Program, device: Device, machine: Machine) -> _Steps:
    key = (binary, device.title)
    if key not in _KEPT:
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.clear()
        _KEPT[key] = _Steps(machine.steps(binary, program, device))
    return _KEPT[key]


@dataclass
class _Run:
    """What one part does in its loops: the clocks of each limit, on the average of all SMs; and
    those of the program that runs longest, next to other blocks and with an SM to itself."""

    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    longest: float = 0.0
    longest_by_itself: float = 0.0

    @property
    def share_by_itself(self) -> float:
        """The share of its clocks that a block takes with an SM to itself."""
        return self.longest_by_itself / self.longest if self.longest else 1.0

    @property
    def clocks(self) -> float:
        return sum(self.parts.values())

    @property
    def limited_by(self) -> str:
        return max(self.parts, key=lambda one: self.parts[one], default="latency")


def _last_block(programs: int, sms: int, resident: int, run: _Run, begins: float) -> float:
    """Clocks until the last block ends. Blocks that are alike run in waves, the last of which may
    leave SMs without work. Others are dealt out as places get free, and end about together, but
    for the longest."""
    slots = sms * resident
    mean = run.clocks * slots / programs + begins
    if run.longest + begins > _ALIKE * mean:
        return max(run.longest_by_itself + begins, mean * programs / slots)
    waves, rest = divmod(programs, slots)
    # Fewer blocks on an SM are sooner done, where they wait for each other's unit.
    fewer = (-(-rest // sms) - 1) / (resident - 1) if resident > 1 else 1.0
    return mean * (
        waves + (run.share_by_itself + (1 - run.share_by_itself) * fewer if rest else 0.0)
    )


def _loops(played: Sequence[Part], steps: _Steps, resident: int, sms: int) -> Mapping[int, _Run]:
    """Clocks of the loops of each part, for all its runs. Loops of several parts that stand in the
    same place run at the same time; a part of few warps only feeds the others."""
    groups: dict[tuple[int, int, bool], list[tuple[int, Part, Piece]]] = defaultdict(list)
    for number, part in enumerate(played):
        if part.warps >= pipes.SCHEDULERS or len(played) == 1:
            for place, piece in enumerate(part.loops):
                key = (len(part.loops), place, piece.products > 0)
                groups[key].append((number, part, piece))
    found: dict[int, _Run] = defaultdict(_Run)
    for group in groups.values():
        who = tuple((part.warps, piece.is_inner) for _, part, piece in group)
        ways = tuple(piece.way for *_, piece in group)
        more = tuple(piece.more for *_, piece in group)
        usual = _clocks(who, ways, steps, resident)
        seldom = usual if ways == more else _clocks(who, more, steps, resident)
        # Once the others are done, the last block has the units to itself.
        lonely = usual if resident == 1 else _clocks(who, ways, steps, 1)
        limits = _limit(who, ways, steps, resident, max(usual, default=0.0))
        for (number, _, piece), few, many, own in zip(group, usual, seldom, lonely, strict=True):
            each = few + piece.runs.seldom * (many - few)
            found[number].parts[limits] += each * piece.whole_runs / resident / sms
            longest = each * piece.runs.most
            found[number].longest += longest
            found[number].longest_by_itself += longest * min(1.0, own / few if few else 1.0)
    return found


def _start(played: Sequence[Part], before: tuple[int, ...], steps: _Steps, resident: int) -> float:
    """Clocks of a block outside of its loops."""
    together = resident if len(played) == 1 else 1
    once = [_clocks(((part.warps, False),), (part.once,), steps, together)[0] for part in played]
    dealt = _clocks(((pipes.SCHEDULERS, False),), (before,), steps, 1)[0] if before else 0.0
    return dealt + max(once, default=0.0)


@lru_cache(maxsize=256)
def _clocks(
    who: tuple[tuple[int, bool], ...],
    ways: tuple[tuple[int, ...], ...],
    steps: _Steps,
    resident: int,
) -> tuple[float, ...]:
    """Clocks of one run of each way, by as many warps as ``who`` says, of ``resident`` blocks.
    Many launches of a call run the same code."""
    warps: list[issue.Warp] = []
    owners: list[int] = []
    for owner, number, block in _dealt(who, resident):
        stride = _ITERATIONS if len(ways[owner]) < _LONG else _OF_LONG
        times = stride if who[owner][1] else 1
        warps.append(issue.Warp([steps[at] for at in ways[owner]], times, block, number))
        owners.append(owner)
    result = [0.0] * len(who)
    least = _fetched(who, ways)
    for owner, value in zip(owners, issue.clocks(warps), strict=True):
        result[owner] = max(result[owner], value, least)
    return tuple(result)


def _fetched(who: Sequence[tuple[int, bool]], ways: Sequence[Sequence[int]]) -> float:
    """Clocks of an iteration for which the code of loops that run together has to be brought."""
    if not all(is_inner for _, is_inner in who):
        return 0.0
    return pipes.fetched(len(set().union(*ways)))


def _dealt(who: Sequence[tuple[int, bool]], resident: int) -> Iterator[tuple[int, int, int]]:
    """The warps of one scheduler: whose each is, how many its part has, and of which block."""
    for owner, (number, _) in enumerate(who):
        share = max(1, round(resident * number / pipes.SCHEDULERS))
        of_block = max(1, round(share / resident))
        for warp in range(share):
            yield owner, number, warp // of_block


def _limit(
    who: Sequence[tuple[int, bool]],
    ways: Sequence[Sequence[int]],
    steps: Sequence[pipes.Step],
    resident: int,
    clocks: float,
) -> str:
    """The pipe that is busiest during ``clocks``, or what else limits a loop."""
    busy: dict[str, float] = defaultdict(float)
    for owner, _, _ in _dealt(who, resident):
        for at in ways[owner]:
            busy[pipes.NAMES[steps[at].pipe]] += steps[at].busy if steps[at].pipe else 0
            busy["issue"] += 1
    busy["issue"] = max(busy["issue"], _fetched(who, ways))
    if not busy or not clocks:
        return "latency"
    name, most = max(busy.items(), key=lambda one: one[1])
    return name if most >= _BUSY * clocks else "latency"


def _lines(loads: Mapping[str, int], arguments: Mapping[str, Argument]) -> float:
    """How many lines of L2 the rows of fetched tiles touch, for each line that they fill."""
    total = sum(loads.values())
    touched = sum(nbytes * _touched(arguments.get(name)) for name, nbytes in loads.items())
    return touched / total if total else 1.0


def _touched(argument: Argument) -> float:
    """The same of one descriptor. Rows whose stride is no multiple of a line begin anywhere in
    it, in steps of what divides both; the first is taken to begin a line."""
    width = (
        re.search(r"\d+", argument.base.dtype) if isinstance(argument, DescriptorArgument) else None
    )
    if not isinstance(argument, DescriptorArgument) or width is None:
        return 1.0
    size = int(width[0]) // 8
    row = min(argument.block_shape[-1] * size, _LINE)  # of swizzled shared memory
    counted = zip(argument.strides[:-1], argument.block_shape[:-1], strict=False)
    strides = [stride * size for stride, rows in counted if rows > 1]
    starts = range(0, _LINE, math.gcd(_LINE, *strides))
    return statistics.fmean((start + row - 1) // _LINE + 1 for start in starts) / (row / _LINE)
