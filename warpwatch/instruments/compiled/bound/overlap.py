"""What keeps the units of a Hopper card from overlapping as a bound on the time lets them.

A wgmma runs beside other instructions from where it is issued to where its warps wait for it. What
stands between that wait and the next issue (the softmax of an attention kernel, an epilogue) leaves
the tensor cores idle, as far as this block goes: warps that meet at a barrier in every iteration
issue their products together, and wait for them together. Other blocks on the same multiprocessor
may fill the gap. Warp-specialised kernels order their warps by themselves and have no such chain:
of them only the ends are counted, before the first product and after the last.

Units that instructions drive get in each other's way where they are about equally loaded: warps
that wait for one do not feed the other. :func:`crowded` says how much, by one exponent that was
chosen by readings of counters, not derived.

The length of a stretch is that of its busiest pipe: issue slots (one a clock and scheduler),
special functions, FMA, or the integer and comparison pipe. Of latencies only one is counted: a
block waits once for device memory before its first product.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.code import Instruction, Program

_WAIT = re.compile(r"gsb\d+,\s*(?P<pending>0x[0-9a-f]+)")
# Of the rate of fp32: comparisons, selections and integers have half as many lanes on sm_90.
_INTEGER_SHARE = 0.5
# Multiply-adds of integers run in the FMA pipe.
_IN_FMA_PIPE = ("IMAD", "IMUL")


# Clocks from a load to its value, from device memory of a Hopper card.
_ROUND_TRIP = 600
# What one SM hands to L2 in a clock, and takes from it.
L2_BYTES = 64
# Between the sum of all units (1) and the longest of them (infinite).
_EXPONENT = 3.0
_WARPGROUP = 4


def memory_clocks(stored_bytes: int) -> float:
    """Of a block: its first loads, and its last stores, ``stored_bytes`` of them."""
    return _ROUND_TRIP + stored_bytes / L2_BYTES


def crowded(clocks: Iterable[float]) -> float:
    """The time of units that share their warps, from the time each needs alone."""
    return float(sum(one**_EXPONENT for one in clocks) ** (1 / _EXPONENT))


def tail_clocks(program: Program, device: Device) -> float:
    """Of a specialised kernel: what the warpgroup that multiplies last still does after it."""
    found = []
    for loop in program.loops:
        others = [one.indices for one in program.loops if one is not loop]
        products = [at for at in loop.indices if program.instructions[at].kind == "tensor"]
        if not products or any(loop.indices < other for other in others):
            continue
        inside = [other for other in others if other < loop.indices]
        after = [at for at in loop.indices.difference(*inside) if at > max(products)]
        found.append(_clocks([program.instructions[at] for at in after], _WARPGROUP, device))
    return min(found, default=0.0)


def applies(program: Program, specialised: bool) -> bool:
    """Whether a kernel waits for asynchronous products, all warps of a block alike."""
    return program.tensor_level == 2 and not specialised


def exposed_clocks(
    program: Program, indices: Iterable[int], warps: int, device: Device
) -> tuple[float, float]:
    """Clocks of one run of a piece of code for all warps of a block: of what runs while no product
    is in flight, and of what runs beside products."""
    code = [program.instructions[index] for index in sorted(indices)]
    flying = _flies_on(code, False)  # as at the end of the iteration before
    alone: list[Instruction] = []
    beside: list[Instruction] = []
    for one in code:
        flying = _flies_on([one], flying)
        if one.kind != "tensor":
            (beside if flying else alone).append(one)
    return _clocks(alone, warps, device), _clocks(beside, warps, device)


def _flies_on(code: Iterable[Instruction], flying: bool) -> bool:
    """Whether a product is in flight after ``code``."""
    for one in code:
        if one.tensor_level == 2:
            flying = True
        wait = _WAIT.search(one.operands) if one.opcode.startswith("WARPGROUP.DEPBAR") else None
        if wait is not None:
            flying = int(wait["pending"], 16) > 0
    return flying


def _clocks(code: Iterable[Instruction], warps: int, device: Device) -> float:
    lanes = {"special": 0, "fma": 0, "integer": 0}
    issued = 0
    for one in code:
        issued += 1
        kind = "fma" if one.opcode.startswith(_IN_FMA_PIPE) else one.kind
        if kind in lanes:
            lanes[kind] += one.work or device.warp_size
    busiest = max(
        issued / device.simds_per_sm,
        lanes["special"] / device.special_per_clock,
        lanes["fma"] / device.fp32_fma_per_clock,
        lanes["integer"] / (_INTEGER_SHARE * device.fp32_fma_per_clock),
    )
    return busiest * warps
