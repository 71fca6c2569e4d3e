"""What one SM does in a clock when its schedulers are kept busy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from warpwatch.devices import Device
from warpwatch.instruments.compiled.schedule import pipes

from .benchmark import BYTES, LANES, Benchmark, Data
from .ptx import SINK, Body, Code

GUIDE = "CUDA C++ Programming Guide, 9.0"
_CHAINS = 8
_THREADS = 512
_LANES = 32
_WIDE = 16  # bytes of the widest load of a lane


def _integers(*lines: str) -> Code:
    """Independent chains of integers, each through the register that a line names ``{x}``."""
    return _chains(
        lines,
        "r",
        "add.u32 r{x}, tid, {x};",
        "add.u32 r{x}, r{x}, tie;",
        "xor.b32 r{x}, r{x}, r{y};",
    )


def _floats(*lines: str) -> Code:
    return _chains(
        lines,
        "f",
        "cvt.rn.f32.u32 f{x}, tid;",
        "add.f32 f{x}, f{x}, ftie;",
        "add.f32 f{x}, f{x}, f{y};",
    )


def _chains(lines: Sequence[str], kind: str, first: str, tied: str, joined: str) -> Code:
    """The chains use registers from 10 on; 1 to 3 are of unknown value."""
    places = [10 + 4 * one for one in range(_CHAINS)]
    before = (
        *("add.u32 r1, zero, 3;", "add.u32 r2, zero, 1;", "add.u32 r3, zero, 5;"),
        *("mov.b32 f1, zero;", "mov.b32 f2, zero;", "mov.b32 f3, zero;"),
        *(first.format(x=x) for x in places),
    )

    def code(count: int) -> Body:
        return Body(
            [
                line.format(x=places[n % _CHAINS], y=places[n % _CHAINS] + 1)
                for n in range(count)
                for line in lines
            ],
            before,
            [tied.format(x=x) for x in places],
            [
                *(joined.format(x=a, y=b) for b, a in pairwise(places)),
                SINK.format(f"{kind}{places[-1]}"),
            ],
        )

    return code


def _loads_of_shared(size: int) -> Code:
    """Each lane reads its own bytes again and again; a load's address waits for the last one."""
    chains = range(60, 60 + _CHAINS)

    def code(count: int) -> Body:
        steps = []
        for n in range(count):
            x, vector, into = _destination(n, size)
            address = chains[n % _CHAINS]
            steps.append(f"ld.volatile.shared{vector}.u32 {into}, [r{address}];")
            steps.append(f"add.u32 r{address}, r{address}, r{x};")
        return Body(
            steps,
            [
                f".shared .align 16 .b8 pool[{_THREADS * _WIDE}];",
                "mov.u32 r1, pool;",
                f"mad.lo.u32 r2, tid, {_WIDE}, r1;",
                "st.volatile.shared.v4.u32 [r2], {zero, zero, zero, zero};",
                f"mad.lo.u32 r2, tid, {size}, r1;",
                *(f"mov.u32 r{x}, r2;" for x in chains),
            ],
            [f"add.u32 r{x}, r{x}, tie;" for x in chains],
            [*(f"xor.b32 r60, r60, r{x};" for x in chains[1:]), SINK.format("r60")],
            [f"mov.u32 r{x}, r2;" for x in chains],
        )

    return code


def _loads_of_memory(size: int) -> Code:
    """The same of device memory. All that a load brings is used, or it would be narrowed."""
    chains = range(60, 60 + _CHAINS)

    def code(count: int) -> Body:
        steps = []
        for n in range(count):
            x, vector, into = _destination(n, size)
            address = chains[n % _CHAINS]
            steps.append(f"ld.global{vector}.u32 {into}, [d{address}];")
            steps += [f"xor.b32 r{x}, r{x}, r{y};" for y in range(x + 1, x + size // 4)]
            steps += [f"cvt.u64.u32 d10, r{x};", f"add.u64 d{address}, d{address}, d10;"]
        return Body(
            steps,
            [
                f"mul.wide.u32 d1, tid, {size};",
                "add.u64 d2, data, d1;",
                *(f"mov.b64 d{x}, d2;" for x in chains),
            ],
            ["cvt.u64.u32 d11, tie;", *(f"add.u64 d{x}, d{x}, d11;" for x in chains)],
            [
                "mov.b64 d12, d60;",
                *(f"xor.b64 d12, d12, d{x};" for x in chains[1:]),
                "cvt.u32.u64 r9, d12;",
                SINK.format("r9"),
            ],
        )

    return code


def _destination(number: int, size: int) -> tuple[int, str, str]:
    """The first register, the width, and all registers of a load."""
    x = 10 + 4 * (number % _CHAINS)
    registers = ", ".join(f"r{one}" for one in range(x, x + size // 4))
    return (x, "", registers) if size == 4 else (x, f".v{size // 4}", f"{{{registers}}}")


def _stores(kind: str, spacing: int, value: str) -> Code:
    """Each lane writes bytes that begin ``spacing`` bytes after those of the lane before it."""
    who, room = ("tid", _THREADS) if spacing <= _WIDE else ("lane", _LANES)
    return lambda count: Body(
        (f"st.volatile.shared{kind} [r2], {value};",) * count,
        (
            f".shared .align 16 .b8 pool[{room * spacing}];",
            "mov.u32 r1, pool;",
            f"mad.lo.u32 r2, {who}, {spacing}, r1;",
            *(f"add.u32 r{x}, zero, {x};" for x in range(10, 14)),
        ),
        ("add.u32 r2, r2, tie;",),
    )


_HOW = f"{_THREADS // _LANES} warps of one SM, {_CHAINS} chains each"
_ALU, _FMA, _XU = "lanes of integers", "fp32_fma_per_clock", "special_per_clock"


def arithmetic(device: Device) -> list[Benchmark]:
    """List the rates of arithmetic.

    Args:
        device: The card that the model would use.

    Returns:
        The benchmarks.
    """
    used = {
        _ALU: _LANES * pipes.SCHEDULERS / 2,
        _FMA: device.fp32_fma_per_clock,
        _XU: device.special_per_clock,
        "_HALF_RATE_FMA": _LANES * pipes.SCHEDULERS / 2,
        "clocks of SHFL": _LANES,
    }

    def row(
        name: str, constant: str, published: int, code: Code, opcode: str, each: int = 1
    ) -> Benchmark:
        return Benchmark(
            f"{name}, rate",
            constant,
            used[constant],
            LANES,
            _HOW,
            f"{published} ({GUIDE})",
            code,
            opcode,
            each,
            threads=_THREADS,
            amount=each * _LANES,
        )

    bounds = ("max.f32 f{x}, f{x}, f2;", "min.f32 f{x}, f{x}, f3;")
    picks = ("xor.b32 r{x}, r{x}, r2;", "prmt.b32 r{x}, r{x}, r3, 0x2103;")
    turns = ("add.u32 r{x}, r{x}, r2;", "xor.b32 r{x}, r{x}, r3;")
    packed = ("mov.b32 f{x}, r{x};", "cvt.rn.bf16x2.f32 r{x}, f{x}, f2;")
    forth = ("cvt.rni.s32.f32 r{x}, f{x};", "cvt.rn.f32.s32 f{x}, r{x};")
    shuffled = "shfl.sync.bfly.b32 r{x}, r{x}, 1, 0x1f, 0xffffffff;"
    rotated = "shf.l.wrap.b32 r{x}, r{x}, r{x}, r2;"
    return [
        row("FFMA", _FMA, 128, _floats("fma.rn.f32 f{x}, f{x}, f2, f3;"), "FFMA"),
        row("FADD", _FMA, 128, _floats("add.f32 f{x}, f{x}, f2;"), "FADD"),
        row("HFMA2", _FMA, 128, _integers("fma.rn.bf16x2 r{x}, r{x}, r2, r3;"), "HFMA2"),
        row("IMAD", "_HALF_RATE_FMA", 64, _integers("mad.lo.s32 r{x}, r{x}, r2, r3;"), "IMAD"),
        row("FMNMX", _ALU, 64, _floats(*bounds), "FMNMX", 2),
        row("LOP3, PRMT", _ALU, 64, _integers(*picks), "LOP3|PRMT", 2),
        row("VIADD, LOP3", _ALU, 64, _integers(*turns), "V?I?ADD3?|IMAD|LOP3", 2),
        row("SHF", _ALU, 64, _integers(rotated), "SHF"),
        row("F2FP", _ALU, 64, _integers(*packed), "F2FP"),
        row("MUFU.EX2", _XU, 16, _floats("ex2.approx.ftz.f32 f{x}, f{x};"), "MUFU"),
        row("F2I", _XU, 16, _floats(*forth), "F2I"),
        row("POPC", _XU, 16, _integers("popc.b32 r{x}, r{x};"), "POPC"),
        row("SHFL", "clocks of SHFL", 32, _integers(shuffled), "SHFL"),
    ]


def memory(device: Device) -> list[Benchmark]:
    """List the rates of shared memory and of the first cache.

    Args:
        device: The card that the model would use.

    Returns:
        The benchmarks. Of a store of single bytes, the model counts the word that each lies in.
    """
    shared, first = device.shared_bytes_per_clock, pipes.FIRST_CACHE

    def row(
        name: str, size: int, code: Code, published: str = "128 (datasheet)", data: Data = "none"
    ) -> Benchmark:
        is_shared = data == "none"
        return Benchmark(
            f"{name}, rate",
            "shared_bytes_per_clock" if is_shared else "FIRST_CACHE",
            shared if is_shared else first,
            BYTES,
            _HOW,
            published,
            code,
            name[:3],
            1,
            64,
            _THREADS,
            size * _LANES,
            data,
        )

    four, byte = "{r10, r11, r12, r13}", ".u8"
    return [
        row("LDS.128", 16, _loads_of_shared(16)),
        row("LDS.64", 8, _loads_of_shared(8)),
        row("LDS.32", 4, _loads_of_shared(4)),
        row("STS.128", 16, _stores(".v4.u32", 16, four)),
        row("STS.32", 4, _stores(".u32", 4, "r10")),
        row("STS.U8, neighbours", 4, _stores(byte, 1, "r10"), ""),
        row("STS.U8, own banks", 4, _stores(byte, 4, "r10"), ""),
        row("STS.U8, rows of 64", 4, _stores(byte, 64, "r10"), "8 (16 lanes share a bank)"),
        row("STS.U8, rows of 128", 4, _stores(byte, 128, "r10"), "4 (all lanes share a bank)"),
        row("LDG.128, first cache", 16, _loads_of_memory(16), "", "zeros"),
        row("LDG.64, first cache", 8, _loads_of_memory(8), "", "zeros"),
    ]
