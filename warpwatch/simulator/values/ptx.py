"""The PTX that kernels contain, run as it is written, on blocks.

An instruction that is not here raises: what a kernel says is run, not what somebody thinks it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from warpwatch.simulator.errors import MisuseError, UnknownWordError
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.values.blocks import Block
from warpwatch.simulator.values.elements import STORED, computed, decode, encode

BF16, FP16, E4M3 = (type("T", (), {"name": name})() for name in ("bf16", "fp16", "fp8e4nv"))
Registers = dict[str, np.ndarray]


def run(
    program: Program | None,
    asm: str,
    constraints: str,
    inputs: list[Block],
    dtypes: Any,
    pack: int,
) -> Any:
    """One block for every type of ``dtypes``, or one alone; every ``pack`` neighbours of a block
    share the registers of one run, as many to a register as have room."""
    single = not isinstance(dtypes, (tuple, list))
    kinds = [dtypes] if single else list(dtypes)
    n_out, n_all = _counted(constraints)
    arrays: Any = [one.data for one in inputs] or [np.zeros(())]
    if any(one.shape != arrays[0].shape for one in arrays):
        arrays = np.broadcast_arrays(*arrays)
    shape, size = arrays[0].shape, arrays[0].size
    if size % pack:
        raise MisuseError(f"{size} values do not come in {pack}s")
    registers: Registers = {} if inputs else {"%threads": np.zeros(1, np.uint32)}
    names = iter(range(n_out, n_all))
    for one, data in zip(inputs, arrays, strict=False):
        raw: np.ndarray = np.ascontiguousarray(encode(data, one.dtype)).reshape(-1, pack)
        n_registers = max(1, pack * raw.itemsize // 4)
        bits = np.uint64 if raw.itemsize == 8 else np.uint32
        if raw.itemsize * pack < 4:  # alone in a register
            raw = raw.astype(np.uint32)
        held = np.ascontiguousarray(raw).view(bits)
        for i in range(n_registers if raw.itemsize < 8 else pack):
            registers[f"${next(names)}"] = held[:, i].copy()
    execute(program, asm, registers)
    found, i = [], 0
    for kind in kinds:
        item = np.dtype(STORED[kind.name]).itemsize
        n_registers = max(1, pack * item // 4)
        held = np.stack([registers[f"${i + j}"] for j in range(n_registers)], axis=1)
        i += n_registers
        packed = np.ascontiguousarray(held.astype(np.uint32)).view(STORED[kind.name])
        values = packed.reshape(-1, max(pack, 4 // item))[:, :pack].reshape(shape)
        found.append(Block(decode(np.ascontiguousarray(values), kind).copy(), kind))
    if i != n_out:
        raise MisuseError(f"{n_out} outputs in {constraints!r}, {i} registers of results")
    return found[0] if single else tuple(found)


@cache
def _counted(constraints: str) -> tuple[int, int]:
    """How many registers are written, and how many there are."""
    wanted = [one.strip() for one in constraints.split(",")]
    return sum(one.startswith("=") for one in wanted), len(wanted)


@cache
def _statements(asm: str) -> list[tuple[str, list[str]]]:
    """The instructions of PTX, each with its operands."""
    text = asm.strip()
    if text.startswith("{"):
        text = text[1 : text.rindex("}")]
    found = []
    for statement in text.split(";"):
        statement = " ".join(statement.split())
        if not statement or statement.startswith(".reg"):
            continue
        name, _, rest = statement.partition(" ")
        found.append((name, [one.strip() for one in re.split(r",(?![^{\[]*[}\]])", rest)]))
    return found


def execute(program: Program | None, asm: str, registers: Registers) -> None:
    for name, operands in _statements(asm):
        if name.startswith("bar."):
            if program is None:  # Triton's own interpreter, or a test of values
                raise MisuseError(f"{name} has no partitions to order")
            _meet(program, name, operands, registers)
        elif not name.startswith("prefetch."):
            computed(_step, name, operands, registers)


def _meet(program: Program, name: str, operands: list[str], registers: Registers) -> None:
    number, threads = (_bits(one, registers) for one in operands)
    numbers = set(np.asarray(number).reshape(-1).tolist())
    if len(numbers) != 1:
        raise MisuseError(f"threads of one partition meet at different barriers: {sorted(numbers)}")
    program.meet(numbers.pop(), int(threads), stays=name == "bar.sync")


def _bits(operand: str, registers: Registers) -> Any:
    if operand in registers:
        return registers[operand]
    if operand.startswith("0f"):
        return np.uint32(int(operand[2:], 16))
    if operand[0].isdigit():
        return np.uint32(int(operand, 0))
    raise MisuseError(f"PTX register {operand} has no value")


def _f32(bits: Any) -> Any:
    return np.asarray(bits, np.uint32).view(np.float32)


def _as_bits(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _flushed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """With denormals taken for 0 and given as 0."""

    def flush(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)

    return lambda x: flush(function(flush(x).astype(np.float64)).astype(np.float32))


OF_F32: dict[str, Callable[..., Any]] = {
    "abs.f32": np.abs,
    "mul.rn.f32": np.multiply,
    "add.rn.f32": np.add,
    "sub.rn.f32": np.subtract,
    "fma.rn.f32": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32),
    "max.f32": np.fmax,
    "min.f32": np.fmin,
    "cvt.rmi.f32.f32": np.floor,
    "lg2.approx.ftz.f32": _flushed(np.log2),
    "ex2.approx.ftz.f32": _flushed(np.exp2),
    "rcp.approx.ftz.f32": _flushed(np.reciprocal),
}


def _pair(kind: Any, low: Any, high: Any) -> np.ndarray:
    """Two fp32 in 16 bits each, or in 8, the first one low."""
    low, high = (encode(np.ascontiguousarray(_f32(one)), kind) for one in (low, high))
    bits = 8 * low.dtype.itemsize if kind is E4M3 else 16
    low, high = (
        (one.view(np.uint16) if one.dtype.itemsize == 2 else one).astype(np.uint32)
        for one in (low, high)
    )
    return low | (high << np.uint32(bits))


def _permuted(a: Any, b: Any, selector: Any) -> np.ndarray:
    """prmt: each byte of the result is one of the eight of a and b."""
    found: Any = np.uint32(0)
    for i in range(4):
        place = (int(selector) >> 4 * i) & 0xF
        if place > 7:
            raise MisuseError("prmt: a sign is not known here")
        source = a if place < 4 else b
        byte = (source >> np.uint32(8 * (place % 4))) & np.uint32(0xFF)
        found = found | (byte << np.uint32(8 * i))
    return found


def _step(name: str, operands: list[str], registers: Registers) -> None:
    to, *sources = operands
    if name == "mov.b32" and to.startswith("{"):
        low, high = (one.strip() for one in to.strip("{}").split(","))
        bits = _bits(sources[0], registers)
        registers[low], registers[high] = bits & np.uint32(0xFFFF), bits >> np.uint32(16)
        return
    if name == "mov.b32" and sources[0].startswith("{"):
        low, high = (_bits(one.strip(), registers) for one in sources[0].strip("{}").split(","))
        registers[to] = low | (high << np.uint32(16))
        return
    if to.startswith("{") or any(one.startswith("{") for one in sources):
        raise UnknownWordError(f"PTX instruction {name} of several registers")
    bits = [_bits(one, registers) for one in sources]
    if name == "mov.b32":
        found = np.asarray(bits[0], np.uint32)
        if not found.shape and registers:
            found = np.broadcast_to(found, next(iter(registers.values())).shape).copy()
    elif name in OF_F32:
        found = _as_bits(OF_F32[name](*map(_f32, bits)))
    elif name in ("cvt.rn.bf16x2.f32", "cvt.rn.f16x2.f32"):
        found = _pair(BF16 if "bf16" in name else FP16, bits[1], bits[0])
    elif name == "cvt.rn.satfinite.e4m3x2.f32":
        found = _pair(E4M3, bits[1], bits[0])
    elif name == "cvt.f32.f16":
        found = _as_bits(bits[0].astype(np.uint16).view(np.float16).astype(np.float32))
    elif name == "cvt.rni.s32.f32":
        wide = np.nan_to_num(np.rint(_f32(bits[0]).astype(np.float64)), nan=0.0)
        found = np.clip(wide, -(2.0**31), 2.0**31 - 1).astype(np.int32).view(np.uint32)
    elif name == "shl.b32":
        found = bits[0] << bits[1]
    elif name == "and.b32":
        found = bits[0] & bits[1]
    elif name == "prmt.b32":
        found = _permuted(*bits)
    elif name == "setp.lt.f32":
        found = _f32(bits[0]) < _f32(bits[1])
    elif name == "setp.lt.and.f32":
        found = (_f32(bits[0]) < _f32(bits[1])) & bits[2]
    elif name == "selp.f32":
        found = np.where(bits[2], bits[0], bits[1]).astype(np.uint32)
    else:
        raise UnknownWordError(f"PTX instruction {name}")
    registers[to] = found
