"""The instructions of AMD's CDNA 2, 3 and 4 as the scheduler of one SIMD sees them.

A CU has four SIMDs, which take turns: each issues once in four clocks, to the units of several
waves. A wave issues in order. The assembler writes no scoreboards: counters count memory
instructions until they end, in order, and ``s_waitcnt`` waits for all but the newest of them.
``s_nop`` says how many turns the result of a matrix instruction takes.

Sources: issue, counters and ``s_nop`` are those of AMD's *Instinct MI300 Instruction Set
Architecture* guide, chapters 3 to 5. Rates of matrix, transcendental and shared-memory units are
those of the datasheets in ``devices``: a matrix instruction takes its FLOP by that rate, which are
the clocks that AMD's matrix instruction calculator states. Latencies are assumed, of the order that
pointer chases found on an MI300X (Chips and Cheese, *Testing AMD's Giant MI300X*, 2024; Tee et al.,
*The MALL is Open*, 2025). No program of ours has run on such a card: nothing here is checked.
"""

from __future__ import annotations

import re

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.code import Instruction

from . import pipes
from .pipes import SCHEDULERS, Step

TURN = 4  # clocks between two turns of a SIMD
FROM_MEMORY, FROM_L2 = 750, 300
_FROM_SHARED, _FROM_SCALAR_CACHE = 64, 120
_FIRST_CACHE = 64  # bytes a clock
_BARRIER, _JUMP = 2 * TURN, 4 * TURN
_PRODUCT = 4 * TURN  # after the clocks of its unit
_SLOW = 4  # turns of a product of 32-bit integers, and of a transcendental function
VECTOR, LOCAL = range(2)  # counters: vmcnt and lgkmcnt
_COUNTERS = {"vmcnt": VECTOR, "lgkmcnt": LOCAL}
_WAITS = re.compile(r"(?P<counter>[a-z]+cnt)\((?P<left>\d+)\)")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]+")


def step(one: Instruction, device: Device) -> Step:
    """What ``one`` asks of its SIMD."""
    opcode = one.opcode
    if opcode == "s_barrier":
        return _step(pipes.NONE, TURN, _BARRIER, action=pipes.SYNC, number=0)
    if opcode == "s_waitcnt":
        left = [
            (_COUNTERS[found["counter"]], int(found["left"]))
            for found in _WAITS.finditer(one.operands)
            if found["counter"] in _COUNTERS
        ]
        return _step(pipes.NONE, 1, TURN, action=pipes.COUNTED, left=tuple(left))
    if opcode == "s_nop":
        turns = _NUMBER.search(one.operands)
        return _step(pipes.NONE, 1, TURN, stall=TURN * (1 + int(turns[0], 0) if turns else 1))
    if one.kind == "tensor":
        clocks = _tensor_clocks(one, device)
        return _step(pipes.TENSOR, clocks, clocks + _PRODUCT)
    if one.kind == "shared":
        clocks = max(TURN, round(one.work * SCHEDULERS / device.shared_bytes_per_clock))
        return _step(pipes.SHARED, clocks, clocks + _FROM_SHARED, counter=LOCAL)
    if one.kind in ("global", "local"):
        clocks = max(TURN, round(one.work * SCHEDULERS / _FIRST_CACHE))
        return _step(pipes.GLOBAL, clocks, clocks + FROM_L2, counter=VECTOR)
    if one.kind == "constant":
        return _step(pipes.UNIFORM, TURN, _FROM_SCALAR_CACHE, counter=LOCAL)
    if one.kind == "control":
        return _step(pipes.NONE, TURN, TURN, stall=_JUMP if one.flow != "end" else TURN)
    if one.kind == "scalar":
        return _step(pipes.UNIFORM, TURN, TURN)
    if one.kind == "barrier":  # priorities and hints
        return _step(pipes.NONE, 1, TURN)
    if one.kind == "special":
        clocks = round(device.warp_size * SCHEDULERS / device.special_per_clock)
        return _step(pipes.FMA, clocks, clocks)
    slow = one.kind == "integer" and opcode.startswith(("v_mul_lo", "v_mul_hi"))
    return _step(pipes.FMA, TURN * (_SLOW if slow else 1), TURN)


def _step(
    pipe: int,
    busy: int,
    latency: int,
    *,
    stall: int = TURN,
    action: int = pipes.PLAIN,
    number: int = 0,
    counter: int | None = None,
    left: tuple[tuple[int, int], ...] = (),
) -> Step:
    return Step(
        stall, (), None, None, pipe, busy, latency, action, number, counter=counter, left=left
    )


def _tensor_clocks(one: Instruction, device: Device) -> int:
    table = device.flop_per_clock
    rate = float(table.get(one.dtype) or table.get("fp32") or 2 * device.fp32_fma_per_clock)
    return max(TURN, round(one.work * SCHEDULERS / rate))
