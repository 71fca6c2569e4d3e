"""Which pipe of a scheduler executes an instruction, for how long, and when its result is there.

One SM has four schedulers, each with pipes of its own; what they share (shared memory, the first
cache) is divided by four. A pipe that has L lanes takes 32 / L clocks of a warp's instruction.

Sources: lanes by instruction are those of the CUDA C++ Programming Guide, *Throughput of native
arithmetic instructions* (compute capability 9.0), and of the datasheets in ``devices``. Latencies
are round numbers near those of Jia et al. (*Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking*, 2018) and Luo et al. (*Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture*, 2024); no program of ours has measured them on a card yet. Two things were chosen
among a few by readings of published commits: a product of a warpgroup is issued when the tensor
core begins it, and memory instructions queue for up to ``BACKLOG`` clocks.
"""

from __future__ import annotations

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
FROM_MEMORY, FROM_L2 = 600, 280
COPY_FROM_L2 = 170 + FROM_L2  # an asynchronous copy of a tile
READ = 12  # until operands are read
_FROM_SHARED = 30
_FROM_STACK = 40  # the first cache holds it
_SPECIAL = 22
_BARRIER = 20
_PRODUCT, _PRODUCTS = 34, 32  # of a warp, of a warpgroup
_FROM_CONSTANTS = 40
_MBARRIER = 24
_SPECIAL_REGISTER = 30
_PLAIN, _ADDED, _UNIFORM, _OTHER = 6, 4, 8, 8
# Bytes that the first cache of an SM hands out in a clock.
FIRST_CACHE = 64
# mma.sync reaches this share of the tensor cores' rate on Hopper.
_MMA_SYNC = 0.62

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
    instructions may stay in flight."""

    stall: int
    waits: tuple[int, ...]
    written: int | None
    read: int | None
    pipe: int
    busy: int
    latency: int
    action: int = PLAIN
    number: int = 0
    threads: int = 0
    counter: int | None = None
    left: tuple[tuple[int, int], ...] = ()


def step(one: Instruction, control: Control, device: Device) -> Step:
    """What ``one`` asks of the scheduler it is issued by."""
    pipe, busy, latency = _pipe(one, device)
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
    )


def _pipe(one: Instruction, device: Device) -> tuple[int, int, int]:
    """Pipe, clocks it is busy, clocks until the result."""
    base = one.opcode.split(".")[0]
    if one.kind == "tensor":
        return TENSOR, _tensor_clocks(one, device), _PRODUCT
    if base in _ON_XU:
        clocks = round(device.warp_size * SCHEDULERS / device.special_per_clock)
        return XU, clocks, _SPECIAL + clocks
    if base == "SHFL":
        return SHARED, SCHEDULERS, _FROM_SHARED
    if one.kind == "shared":
        clocks = max(1, round(one.work * SCHEDULERS / device.shared_bytes_per_clock))
        return SHARED, clocks, clocks + (FROM_MEMORY if base == "LDGSTS" else _FROM_SHARED)
    if one.kind in ("global", "local"):
        if base.startswith(_BY_ANOTHER_UNIT) or not one.work:
            return NONE, 1, FROM_L2
        clocks = max(1, round(one.work * SCHEDULERS / FIRST_CACHE))
        return GLOBAL, clocks, clocks + (FROM_MEMORY if one.kind == "global" else _FROM_STACK)
    if one.kind == "fma" and base.startswith("D"):
        return XU, 2 * SCHEDULERS, 4 * _ADDED
    if base in _FULL_RATE_FMA:
        return FMA, max(1, int(device.warp_size * SCHEDULERS // device.fp32_fma_per_clock)), _ADDED
    if one.kind == "fma" or base.startswith(_HALF_RATE_FMA):
        return FMA, 2, _ADDED
    if one.kind in ("integer", "convert", "move"):
        return ALU, 2, _SPECIAL_REGISTER if base in _OF_SPECIAL_REGISTERS else _PLAIN
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
        rate *= 2  # the sheet has the plain rate: tensor cores do twice that
    elif one.tensor_level == 1 and device.arch == "sm_90":
        rate *= _MMA_SYNC
    clocks = max(one.work / rate, one.fetched_bytes / device.shared_bytes_per_clock)
    return max(1, round(clocks * SCHEDULERS))
