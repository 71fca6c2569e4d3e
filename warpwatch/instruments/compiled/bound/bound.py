"""The time each unit of the device needs for a launch; the longest bounds it.

Machine code says what one iteration of a loop does, the evaluated loop bounds say how often it
runs, the datasheet how fast each unit is. Nothing is assumed about overlap: all of it overlaps, so
that no schedule can be faster than the bound. The utilization beside it is held closer to what
counters read: it knows what keeps the units of a Hopper card from overlapping (``overlap.py``).

Units: *tensor* (matrix instructions, and the operands wgmma fetches itself), *special* (exp2, rcp,
...), *fma* (floating-point adds and multiplies), *shared* (loads and stores of shared memory, and
asynchronous copies into it), *memory* (traffic with device memory, each byte of an argument once),
and where registers spill *spills* (local memory, through the first cache).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats import work
from warpwatch.instruments.compiled.formats.code import Class, Program
from warpwatch.instruments.compiled.formats.recording import Launch

from . import overlap
from .loops import Runs, pieces_of, regions_of, source_loops
from .source import Source, of_launch

# Bytes a clock and SM that local memory, where registers spill to, goes through at most: the first
# cache of either vendor.
_FIRST_CACHE_BYTES = {"nvidia": 128, "amd": 64}
_SPILLS = "spills"  # a unit where there are any
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
    ``iterations`` how often each hot loop runs, over all programs; ``atomics`` how many elements of
    memory are updated atomically, masked ones included."""

    units_us: Mapping[str, float]
    limited_by: str
    tensor_us: float
    active_us: float
    chain_us: float
    repeated: float
    asked_flops: float
    iterations: tuple[float, ...]
    atomics: float
    notes: tuple[str, ...]

    @property
    def us(self) -> float:
        return self.units_us[self.limited_by]

    @property
    def utilization(self) -> float:
        return 100 * self.tensor_us / self.active_us if self.active_us else 0.0


def bound(
    launch: Launch,
    program: Program,
    device: Device,
    blocks: int = 1,
    source: Source | None = None,
) -> Bound:
    """The bound of one launch whose machine code is ``program``, ``blocks`` of it on an SM. Its
    ``source`` is read where it is not given."""
    source = source or of_launch(launch)
    function, visited, works = source.function, source.visited, source.works
    notes = [*visited.notes, *_unknown_rates(program, device)]
    loops = source_loops(function, visited, works)
    pieces = pieces_of(program, loops, Runs(launch.programs, 1.0, function.warps), notes)

    specialised = source.specialised
    chained = overlap.applies(program, specialised)
    # Of the launch, of the longest program.
    clocks = {unit: [0.0, 0.0] for unit in (*UNITS, _SPILLS, _ALONE, _ISSUE, _FETCH)}

    def add(unit: str, amount: float, runs: Runs) -> None:
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
            (_SPILLS, _FIRST_CACHE_BYTES[device.vendor]),
        ):
            kind: Class = "local" if unit == _SPILLS else unit  # type: ignore[assignment]
            busy = program.work(kind, indices) - (1 - runs.seldom) * program.work(kind, over)
            add(unit, short * busy * runs.warps / per_clock, runs)
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
        runs = Runs(visited.total.get(region, 0.0), visited.most.get(region, 0.0), 1)
        add("shared", one.copied_by_tma / device.shared_bytes_per_clock, runs)
        add(_FETCH, one.fetched / overlap.L2_BYTES, runs)
        if program.tensor_level == 3:  # the code does not say the shape, the source does
            for dtype, flops in one.flops.items():
                add("tensor", flops / _rate(device, dtype), runs)
    ends = 0.0
    if program.tensor_level == 2:
        regions = (one for one in regions_of(function.body) if one in works)
        done = sum(works[one].stores.total() for one in regions)
        ends = overlap.memory_clocks(done)
        ends += overlap.tail_clocks(program, device) if specialised else 0.0
    # Blocks that share an SM share its units, but each fills the gaps of another's chain.
    sharing = max(1, min(blocks, -(-launch.programs // device.kernel_sms)))
    clocks[_ALONE][0] /= sharing
    ends *= launch.programs / sharing / device.kernel_sms
    per_us = device.clock_ghz * 1e3
    average = {unit: total / device.kernel_sms / per_us for unit, (total, _) in clocks.items()}
    units = (*UNITS, _SPILLS) if clocks[_SPILLS][0] else UNITS
    units_us = {unit: max(average[unit], clocks[unit][1] / per_us) for unit in units}
    traffic = work.dram_bytes(works, visited.total, source.arguments)
    units_us["memory"] = traffic / (device.kernel_bandwidth_gbps * 1e3)
    average["memory"] = units_us["memory"] * min(1.0, launch.programs / device.kernel_sms)
    active = max(average[unit] for unit in units)
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
        atomics=sum(one.atomics * visited.total.get(region, 0.0) for region, one in works.items()),
        notes=tuple(notes),
    )


def _hot(program: Program) -> set[frozenset[int]]:
    return {loop.indices for loop in program.hot_loops}


def _unknown_rates(program: Program, device: Device) -> list[str]:
    """A note for each rate that ``program`` needs and no vendor has printed."""
    needed = {f"flop_per_clock.{one.dtype}" for one in program.instructions if one.dtype}
    needed |= {
        key
        for key, kind in (
            ("special_per_clock", "special"),
            ("fp32_fma_per_clock", "fma"),
            ("shared_bytes_per_clock", "shared"),
        )
        if any(one.kind == kind for one in program.instructions)
    }
    return [
        f"{key} of {device.title} is not public: what it limits is not in the bound"
        for key in device.unknown
        if key in needed
    ]


def _rate(device: Device, dtype: str) -> float:
    """Flops a clock and SM; the plain fp32 rate where the card has no such path."""
    if dtype == "fp4":  # no datasheet of ours has a row of it; both vendors double fp8
        return 2 * _rate(device, "fp8")
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
