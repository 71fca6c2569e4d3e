"""Which pipe of a scheduler executes an instruction, for how long, and when its result is there.

One SM has four schedulers, each with pipes of its own; what they share (shared memory, the first
cache) is divided by four. A pipe that has L lanes takes 32 / L clocks of a warp's instruction.

Latencies and rates are those that ``python -m tools.microbenchmarks`` measured on an H200;
docs/results/prediction.md lists every one with its measurement. Where a published value differs,
ours counts. Lanes by instruction are those of the CUDA C++ Programming Guide, *Throughput of native
arithmetic instructions* (compute capability 9.0), and of the datasheets in ``devices``.

Assumed are ``READ``, ``_UNIFORM`` and ``_OTHER``, which no benchmark isolates. Two things were
chosen among a few by readings of published commits: a product of a warpgroup is issued when the
tensor core begins it, and memory instructions queue for up to ``BACKLOG`` clocks.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.code import Instruction

from .controls import Control

SCHEDULERS = 4
NONE, ALU, FMA, XU, TENSOR, SHARED, GLOBAL, UNIFORM = range(8)
NAMES = ("none", "integer", "fma", "special", "tensor", "shared", "first cache", "scalar")
PIPES = len(NAMES)
# Instructions of these wait in a queue, in which the next one finds room while it is this short.
QUEUED = (SHARED, GLOBAL)
BACKLOG = 64
# What an instruction does in addition to taking a pipe.
PLAIN, SYNC, ARRIVE, PRODUCT, PRODUCTS_DONE, COPY, COMMIT, COPIES_DONE, COUNTED = range(9)

# Clocks from issue to the result.
FROM_MEMORY, FROM_L2, FROM_FIRST_CACHE = 677, 285, 34
_ATOMIC, _SHARED_ATOMIC = 488, 26
READ = 12  # until operands are read
# Each further 128 bytes of shared memory take a clock more.
_FROM_SHARED, _BEAT = 22, 128
_SHUFFLED = 24
_FROM_STACK = 29  # the first cache holds it
_SPECIAL = 17
# A barrier, and each warp that meets at it, in addition to the issue of it.
_BARRIER, _EACH_WARP = 13, 1.75
_PRODUCT, _DOUBLE_PRODUCT = 24, 26  # of a warp
_PRODUCTS = 58  # of a warpgroup, after the clocks of the tensor cores
_FROM_CONSTANTS = 28
_MBARRIER = 38  # what one thread arrives at, another sees so much later
_SPECIAL_REGISTER = 23
_PLAIN, _ADDED, _UNIFORM, _OTHER = 4, 4, 8, 8
# Bytes that the first cache of an SM hands out in a clock.
FIRST_CACHE = 128
# An asynchronous copy of a tile from L2: clocks until its first bytes, and bytes a clock.
_COPY, _COPIED = 294, 96
# Clocks of an instruction of the integer pipe in a stream of them, 2 by the datasheet.
_INTEGERS = 2.5
# Shared memory and special functions reach this share of the datasheet's rate.
_REACHED = 0.93
# mma.sync reaches this share of the tensor cores' rate on Hopper.
_MMA_SYNC = 2 / 3
# Clocks of an instruction in a loop of so many KB of code, which the caches of code hold or not.
_FETCHED = ((16, 1.05), (32, 1.2), (64, 2.23), (128, 2.51), (256, 5.71))
_CODE_BYTES = 16  # of an instruction

_HALF_RATE_FMA = ("IMAD", "IMUL", "IDP", "FSWZADD")
_ON_XU = ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV", "F2IP", "I2IP")
_FULL_RATE_FMA = ("FFMA", "FMUL", "FADD", "HFMA2", "HMUL2", "HADD2", "FFMA2")
_OF_SPECIAL_REGISTERS = ("S2R", "S2UR", "CS2R", "R2UR")
_BY_ANOTHER_UNIT = ("UTMA", "UBLK", "CCTL")
_GROUP = re.compile(r"gsb\d+,\s*(?P<left>0x[0-9a-f]+)")
_SCOREBOARD = re.compile(r"SB\d+,\s*(?P<left>0x[0-9a-f]+)")
_BAR = re.compile(r"^(?P<number>0x[0-9a-f]+)(?:,\s*(?P<threads>0x[0-9a-f]+))?$")


class Step(NamedTuple):
    """One instruction as the scheduler sees it. ``number`` is of a barrier or of the groups that
    may stay in flight, ``threads`` how many meet at a barrier (0: all of the block). ``counter``
    counts it until it ends; ``left`` are counters that are waited for, each with how many of its
    instructions may stay in flight. A barrier takes ``each_warp`` clocks more for each warp."""

    stall: int
    waits: tuple[int, ...]
    written: int | None
    read: int | None
    pipe: int
    busy: float
    latency: int
    action: int = PLAIN
    number: int = 0
    threads: int = 0
    counter: int | None = None
    left: tuple[tuple[int, int], ...] = ()
    each_warp: float = 0.0


def copied(nbytes: float) -> float:
    """Clocks of an asynchronous copy of ``nbytes`` from L2 to shared memory."""
    return _COPY + nbytes / _COPIED


def fetched(instructions: int) -> float:
    """Clocks that code of so many instructions takes at least each time a loop runs it."""
    size = instructions * _CODE_BYTES / 1024
    before, each = _FETCHED[0]
    if size <= before:
        return float(instructions)
    for kilobytes, clocks in _FETCHED[1:]:
        if size <= kilobytes:
            each += (clocks - each) * math.log(size / before) / math.log(kilobytes / before)
            break
        before, each = kilobytes, clocks
    return instructions * each


def step(
    one: Instruction, control: Control, device: Device, from_memory: int = FROM_MEMORY
) -> Step:
    """What ``one`` asks of the scheduler it is issued by. A load of device memory has its result
    after ``from_memory`` clocks."""
    pipe, busy, latency = _pipe(one, device, from_memory)
    action, number, threads = PLAIN, 0, 0
    base = one.opcode.split(".")[0]
    if base == "BAR":
        found = _BAR.match(one.operands)
        action = ARRIVE if ".ARV" in one.opcode else SYNC
        number = int(found["number"], 16) if found else -1
        threads = int(found["threads"] or "0", 16) if found else 0
        latency = _BARRIER
    elif one.tensor_level == 2:
        action, number = PRODUCT, int("gsb" in one.operands)
        latency = _PRODUCTS
    elif one.opcode.startswith("WARPGROUP.DEPBAR"):
        left = _GROUP.search(one.operands)
        action, number = PRODUCTS_DONE, int(left["left"], 16) if left else 0
    elif base == "LDGSTS":
        action = COPY
    elif base == "LDGDEPBAR":
        action = COMMIT
    elif base == "DEPBAR":
        left = _SCOREBOARD.search(one.operands)
        action, number = COPIES_DONE, int(left["left"], 16) if left else 0
    return Step(
        max(1, control.stall),
        control.waits,
        control.written,
        control.read,
        pipe,
        busy,
        latency,
        action,
        number,
        threads,
        each_warp=_EACH_WARP if base == "BAR" else 0.0,
    )


def _pipe(one: Instruction, device: Device, from_memory: int) -> tuple[int, float, int]:
    """Pipe, clocks it is busy, clocks until the result."""
    base = one.opcode.split(".")[0]
    if one.kind == "tensor":
        latency = _DOUBLE_PRODUCT if one.dtype == "fp64" else _PRODUCT
        return TENSOR, _tensor_clocks(one, device), latency
    if base in _ON_XU:
        lanes = _REACHED * device.special_per_clock
        return XU, device.warp_size * SCHEDULERS / lanes, _SPECIAL
    if base == "SHFL":
        return SHARED, SCHEDULERS / _REACHED, _SHUFFLED
    if one.kind == "shared":
        clocks = max(1.0, one.work * SCHEDULERS / device.shared_bytes_per_clock / _REACHED)
        if base == "LDGSTS":
            return SHARED, clocks, from_memory
        latency = _FROM_SHARED + max(1, round(one.work / _BEAT))
        return SHARED, clocks, _SHARED_ATOMIC if base == "ATOMS" else latency
    if one.kind in ("global", "local"):
        if base.startswith(_BY_ANOTHER_UNIT) or not one.work:
            return NONE, 1, FROM_L2
        clocks = max(1, round(one.work * SCHEDULERS / FIRST_CACHE))
        latency = _ATOMIC if base.startswith("ATOM") else from_memory
        return GLOBAL, clocks, latency if one.kind == "global" else _FROM_STACK
    if one.kind == "fma" and base.startswith("D"):
        return XU, 2 * SCHEDULERS, 2 * _ADDED
    if base in _FULL_RATE_FMA:
        return FMA, max(1, int(device.warp_size * SCHEDULERS // device.fp32_fma_per_clock)), _ADDED
    if one.kind == "fma" or base.startswith(_HALF_RATE_FMA):
        return FMA, 2, _ADDED
    if one.kind in ("integer", "convert", "move"):
        # Either pipe takes it: with others, it is hardly in their way.
        if base == "VIADD":
            return ALU, _INTEGERS - 2, _PLAIN
        return ALU, _INTEGERS, _SPECIAL_REGISTER if base in _OF_SPECIAL_REGISTERS else _PLAIN
    if one.kind == "scalar":
        return UNIFORM, 2, _UNIFORM
    if one.kind == "constant":
        return NONE, 1, _FROM_CONSTANTS
    if base == "SYNCS":
        return SHARED, 2, _MBARRIER
    return NONE, 1, _OTHER


def _tensor_clocks(one: Instruction, device: Device) -> int:
    """Of the scheduler's own tensor core, or of its share of what the product fetches."""
    table = device.flop_per_clock
    rate = float(table.get(one.dtype) or table.get("fp32") or 2 * device.fp32_fma_per_clock)
    if one.dtype == "fp64":
        # The sheet has the plain rate: tensor cores do twice that, but for small products.
        rate *= 1 if one.opcode.startswith("DMMA.8x8x4") else 2
    elif one.tensor_level == 1 and device.arch == "sm_90":
        rate *= _MMA_SYNC
    clocks = max(one.work / rate, one.fetched_bytes / device.shared_bytes_per_clock)
    return max(1, round(clocks * SCHEDULERS))
