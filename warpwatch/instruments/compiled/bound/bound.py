"""The time each unit of the device needs for a launch; the longest bounds it.

Machine code says what one iteration of a loop does, the evaluated loop bounds say how often it
runs, the datasheet how fast each unit is. Nothing is assumed about overlap: all of it overlaps, so
that no schedule can be faster than the bound. The utilization beside it is held closer to what
counters read: it knows what keeps the units of a Hopper card from overlapping (``overlap.py``).

Units: *tensor* (matrix instructions, and the operands wgmma fetches itself), *special* (exp2, rcp,
...), *fma* (floating-point adds and multiplies), *shared* (loads and stores of shared memory, and
asynchronous copies into it), *memory* (traffic with device memory, each byte of an argument once).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats import ir, work
from warpwatch.instruments.compiled.formats.code import Class, Loop, Program
from warpwatch.instruments.compiled.formats.recording import Launch

from . import overlap, trip_counts

UNITS = ("tensor", "special", "fma", "shared", "memory")
# No units of the bound on the time, of utilization alone: see :mod:`.overlap`.
_ALONE, _ISSUE, _FETCH = "chain", "issue", "fetch"
_CROWD = ("tensor", "special", "fma", _ISSUE)
# mma.sync reaches this share of the tensor cores' rate on Hopper; only wgmma reaches all of it.
_HOPPER_MMA_SYNC = 0.62


@dataclass(frozen=True)
class Bound:
    """Microseconds by unit. ``limited_by`` is the longest. ``tensor_us`` is how long the tensor
    cores are busy and ``active_us`` how long the SMs must at least be at work, on the average of
    all SMs; ``utilization`` is the one as a share of the other (percent), as counters state it: an
    SM that has nothing left to do is not active. ``chain_us`` is what of that the code keeps from
    overlapping, 0 where it does not. ``repeated`` is how many times the products of the source are
    really executed (warps that share rows repeat them), ``asked_flops`` the products of the source;
    ``iterations`` how often each hot loop runs, over all programs."""

    units_us: Mapping[str, float]
    limited_by: str
    tensor_us: float
    active_us: float
    chain_us: float
    repeated: float
    asked_flops: float
    iterations: tuple[float, ...]
    notes: tuple[str, ...]

    @property
    def us(self) -> float:
        return self.units_us[self.limited_by]

    @property
    def utilization(self) -> float:
        return 100 * self.tensor_us / self.active_us if self.active_us else 0.0


@dataclass(frozen=True)
class _Runs:
    """How often a piece of code runs: over the launch, and in the program that runs it most.
    ``seldom``: the share of them in which what its rarest branch holds runs, too. ``multiplied``:
    the share of its products that they execute, which code of a branch not taken does not."""

    total: float
    most: float
    warps: int
    seldom: float = 1.0
    multiplied: float = 1.0


@dataclass(frozen=True)
class _Loop:
    """A loop of the source, with what one iteration does."""

    runs: _Runs
    flops: int
    special: int
    global_bytes: int


def bound(launch: Launch, program: Program, device: Device, blocks: int = 1) -> Bound:
    """The bound of one launch whose machine code is ``program``, ``blocks`` of it on an SM."""
    function = ir.parse(launch.kernel.texts["ttgir"])
    visited = trip_counts.evaluate(function, launch)
    works = work.of_function(function)
    notes = list(visited.notes)
    loops = _source_loops(function, visited, works)
    pieces = _pieces(program, loops, _Runs(launch.programs, 1.0, function.warps), notes)

    specialised = any(one.name == "ttg.warp_specialize" for one in function.body.walk())
    chained = overlap.applies(program, specialised)
    # Of the launch, of the longest program.
    clocks = {unit: [0.0, 0.0] for unit in (*UNITS, _ALONE, _ISSUE, _FETCH)}

    def add(unit: str, amount: float, runs: _Runs) -> None:
        clocks[unit][0] += amount * runs.total
        clocks[unit][1] += amount * runs.most

    works_asked = sum(
        one.flops.total() * visited.total.get(region, 0.0) for region, one in works.items()
    )
    executed = sum(
        program.work("tensor", indices) * runs.warps * runs.total * runs.multiplied
        for indices, runs in pieces
    )
    # Code of several specialised warps may hide loops from the reader. The products of the source
    # are all executed: where the machine's fall short, so does the rest of its loops.
    short = works_asked / executed if 0 < executed < 0.99 * works_asked else 1.0
    if short > 1:
        notes.append(f"loops found hold 1/{short:.2f} of the products: their work is scaled up")
    for indices, runs in pieces:
        # A persistent loop holds what begins and ends a tile, which few of its iterations run.
        over = program.skipped(indices) if runs.seldom < 1 else frozenset()
        for unit, per_clock in (
            ("special", device.special_per_clock),
            ("fma", device.fp32_fma_per_clock),
            ("shared", device.shared_bytes_per_clock),
        ):
            done = program.work(unit, indices)  # type: ignore[arg-type]
            done -= (1 - runs.seldom) * program.work(unit, over)  # type: ignore[arg-type]
            add(unit, short * done * runs.warps / per_clock, runs)
        products = short * _tensor_clocks(program, indices, device) * runs.warps
        products *= runs.multiplied
        add("tensor", products, runs)
        # Of what stands in no loop each specialised warp runs only its own part.
        if not specialised or indices is not pieces[-1][0]:
            issued = len(indices) - (1 - runs.seldom) * len(over)
            add(_ISSUE, short * issued * runs.warps / device.simds_per_sm, runs)
        if chained:
            alone, beside = overlap.exposed_clocks(program, indices, runs.warps, device)
            add(_ALONE, short * alone + max(products, short * beside), runs)
    for region, one in works.items():
        runs = _Runs(visited.total.get(region, 0.0), visited.most.get(region, 0.0), 1)
        add("shared", one.copied_by_tma / device.shared_bytes_per_clock, runs)
        add(_FETCH, one.fetched / overlap.L2_BYTES, runs)
        if program.tensor_level == 3:  # the code does not say the shape, the source does
            for dtype, flops in one.flops.items():
                add("tensor", flops / _rate(device, dtype), runs)
    ends = 0.0
    if program.tensor_level == 2:
        regions = (one for one in _regions(function.body) if one in works)
        done = sum(works[one].stores.total() for one in regions)
        ends = overlap.memory_clocks(done)
        ends += overlap.tail_clocks(program, device) if specialised else 0.0
    # Blocks that share an SM share its units, but each fills the gaps of another's chain.
    sharing = max(1, min(blocks, -(-launch.programs // device.kernel_sms)))
    clocks[_ALONE][0] /= sharing
    ends *= launch.programs / sharing / device.kernel_sms
    per_us = device.clock_ghz * 1e3
    average = {unit: total / device.kernel_sms / per_us for unit, (total, _) in clocks.items()}
    units_us = {unit: max(average[unit], clocks[unit][1] / per_us) for unit in UNITS}
    traffic = work.dram_bytes(works, visited.total, launch)
    units_us["memory"] = traffic / (device.kernel_bandwidth_gbps * 1e3)
    average["memory"] = units_us["memory"] * min(1.0, launch.programs / device.kernel_sms)
    active = max(average[unit] for unit in UNITS)
    if program.tensor_level == 2:
        crowd = overlap.crowded(average[unit] for unit in _CROWD)
        average[_ALONE] += ends / per_us if chained else 0.0
        active = max(active, average[_ALONE], max(crowd, average[_FETCH]) + ends / per_us)
    return Bound(
        units_us=units_us,
        limited_by=max(units_us, key=lambda unit: units_us[unit]),
        tensor_us=average["tensor"],
        active_us=active,
        chain_us=average[_ALONE],
        repeated=short * executed / works_asked if works_asked and executed else 1.0,
        asked_flops=works_asked,
        iterations=tuple(runs.total for indices, runs in pieces if indices in _hot(program)),
        notes=tuple(notes),
    )


def _hot(program: Program) -> set[frozenset[int]]:
    return {loop.indices for loop in program.hot_loops}


def _rate(device: Device, dtype: str) -> float:
    """Flops a clock and SM; the plain fp32 rate where the card has no such path."""
    table = device.flop_per_clock
    return float(table.get(dtype) or table.get("fp32") or 2 * device.fp32_fma_per_clock)


def _tensor_clocks(program: Program, indices: Iterable[int], device: Device) -> float:
    """Of one warp, as a share of the SM's tensor cores."""
    clocks = 0.0
    for index in indices:
        one = program.instructions[index]
        if one.kind != "tensor" or not one.work:
            continue
        rate = _rate(device, one.dtype)
        if one.tensor_level == 1 and device.arch == "sm_90":
            rate *= _HOPPER_MMA_SYNC
        fetch = one.fetched_bytes / device.shared_bytes_per_clock
        clocks += max(one.work / rate, fetch)
    return clocks


def _source_loops(
    function: ir.Function,
    visited: trip_counts.Visits,
    works: Mapping[ir.Region, work.RegionWork],
) -> list[_Loop]:
    """Loops of the source in the order of the machine code, outer before inner: that of the text,
    but that the code of the default warps comes after that of the specialised ones."""
    found: list[_Loop] = []

    def walk(region: ir.Region, warps: int) -> None:
        for op in region.ops:
            for inner in sorted(op.regions, key=lambda one: one.kind == "default"):
                inside = inner.warps or warps
                if op.name in ("scf.for", "scf.while") and inner is op.regions[-1]:
                    total = [works[one] for one in _regions(inner) if one in works]
                    times = visited.total.get(inner, 0.0)
                    rarest = min(visited.total.get(one, 0.0) for one in _regions(inner))
                    flops = sum(one.flops.total() for one in total)
                    asked = sum(
                        works[one].flops.total() * visited.total.get(one, 0.0)
                        for one in _regions(inner)
                        if one in works
                    )
                    found.append(
                        _Loop(
                            runs=_Runs(
                                times,
                                visited.most.get(inner, 0.0),
                                inside,
                                rarest / times if times else 1.0,
                                asked / (flops * times) if flops * times else 1.0,
                            ),
                            flops=flops,
                            special=sum(one.special for one in total),
                            global_bytes=sum(one.global_bytes for one in total),
                        )
                    )
                walk(inner, inside)

    walk(function.body, function.warps)
    return found


def _regions(region: ir.Region) -> list[ir.Region]:
    """``region`` and the regions inside it that are no loops of their own."""
    found = [region]
    for op in region.ops:
        if op.name not in ("scf.for", "scf.while"):
            for inner in op.regions:
                found.extend(_regions(inner))
    return found


def _pieces(
    program: Program, source: list[_Loop], once: _Runs, notes: list[str]
) -> list[tuple[frozenset[int], _Runs]]:
    """The code of every loop (inner loops left out) with its runs, then what is in no loop."""
    matched = _match(program, source, notes)
    pieces: list[tuple[frozenset[int], _Runs]] = []
    covered: set[int] = set()
    for loop in program.loops:
        inside = [other.indices for other in program.loops if other.indices < loop.indices]
        own = loop.indices.difference(*inside)
        covered |= own
        pieces.append((own, matched[loop]))
    rest = frozenset(range(len(program.instructions))) - covered
    pieces.append((rest, once))
    return pieces


def _match(program: Program, source: list[_Loop], notes: list[str]) -> dict[Loop, _Runs]:
    """The runs of each machine loop.

    The compilers keep the order of loops. Where they also keep their number the n-th is the n-th;
    else loops with and without products are matched apart; what is left over is scaled so that
    its memory traffic (or the special functions, or nothing) agrees with the source's.
    """
    machine = list(program.loops)
    found: dict[Loop, _Runs] = {}
    multiplies = [program.count(loop.indices)["tensor"] > 0 for loop in machine]
    groups: list[tuple[list[Loop], list[_Loop]]]
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


def _ratios(program: Program, loop: Loop, original: _Loop) -> dict[str, float]:
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


def _unrolled(program: Program, loop: Loop, original: _Loop) -> _Runs:
    """A machine iteration that does everything of the source's n times stands for n of them."""
    ratios = _ratios(program, loop, original)
    times = max(1, int(min(ratios.values(), default=1.0) + 0.05))
    runs = original.runs
    return replace(runs, total=runs.total / times, most=runs.most / times)


def _scaled(program: Program, loops: list[Loop], originals: list[_Loop]) -> dict[Loop, _Runs]:
    if not originals:
        return {loop: _Runs(0.0, 0.0, 1) for loop in loops}
    heaviest = max(originals, key=lambda one: (one.flops, one.global_bytes * one.runs.total))
    kind: Class = "tensor" if heaviest.flops else "global"
    main = max(loops, key=lambda loop: program.work(kind, loop.indices))
    found = {loop: _Runs(0.0, 0.0, heaviest.runs.warps) for loop in loops}
    ratios = _ratios(program, main, heaviest)
    scale = 1.0 / max(1.0, ratios.get(kind, 1.0))
    total = sum(one.runs.total for one in originals) if heaviest.flops else heaviest.runs.total
    most = heaviest.runs.most * scale
    found[main] = replace(heaviest.runs, total=total * scale, most=most)
    return found
