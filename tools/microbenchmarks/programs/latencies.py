"""Chains of one warp: each instruction waits for the result of the one before it."""

from __future__ import annotations

from warpwatch.instruments.compiled.schedule import pipes

from .benchmark import LATENCY, Benchmark, Data
from .ptx import SINK, Body, Code

LUO = "Luo et al. 2024, H100"
JIA = "Jia et al. 2018, V100"
# Of the instructions that bring the result of S2R to the guard of the next.
_AROUND_S2R = 21
_SELF = (".shared .align 16 .b32 cell[4];",)


def integers(*lines: str) -> Code:
    """Make a chain of integers through ``r1``, with ``r2`` and ``r3`` of unknown value.

    Args:
        lines: Of one step.

    Returns:
        The maker of its code.
    """
    before = ("add.u32 r1, tid, 3;", "add.u32 r2, zero, 1;", "add.u32 r3, zero, 5;")
    tied, sink = ("add.u32 r1, r1, tie;",), (SINK.format("r1"),)
    return lambda count: Body(lines * count, before, tied, sink)


def floats(*lines: str) -> Code:
    """Make a chain of floats through ``f1``, with ``f2`` and ``f3`` of unknown value.

    Args:
        lines: Of one step.

    Returns:
        The maker of its code.
    """
    before = ("mov.b32 f2, zero;", "mov.b32 f3, zero;", "cvt.rn.f32.u32 f1, tid;")
    tied, sink = ("add.f32 f1, f1, ftie;",), (SINK.format("f1"),)
    return lambda count: Body(lines * count, before, tied, sink)


def _self_pointing(*lines: str, space: str = "shared") -> Code:
    """Four words that hold their own address, in ``r1``."""
    cell = f".{space} .align 16 .b32 cell[4];"
    place = ("mov.u32 r2, cell;", "add.u32 r1, r2, zero;")
    store = f"st.{space}.v4.u32 [r1], {{r1, r1, r1, r1}};"
    tied, sink = ("add.u32 r1, r1, tie;",), (SINK.format("r1"),)
    return lambda count: Body(lines * count, (cell, *place, store), tied, sink)


def _constants(count: int) -> Body:
    """The only variable of its bank: its address and what it holds are both zero."""
    return Body(
        ("ld.const.u32 r1, [r1];",) * count,
        ("mov.u32 r2, cell;", "add.u32 r1, r2, zero;"),
        ("add.u32 r1, r1, tie;",),
        (SINK.format("r1"),),
        outside=(".const .align 16 .b32 cell[4] = {0, 0, 0, 0};",),
    )


def _doubles(count: int) -> Body:
    return Body(
        ("fma.rn.f64 e1, e1, e2, e3;",) * count,
        ("cvt.rn.f64.u32 e1, tid;", "cvt.rn.f64.u32 e2, zero;", "cvt.rn.f64.u32 e3, zero;"),
        ("cvt.rn.f64.u32 e4, tie;", "add.f64 e1, e1, e4;"),
        ("mov.b64 {r1, r2}, e1;", SINK.format("r1"), SINK.format("r2")),
    )


def _chase(cache: str) -> Code:
    """Pointers in device memory; each round goes on where the last one ended."""
    return lambda count: Body(
        (f"ld.global{cache}.b64 d1, [d1];",) * count,
        ("mov.b64 d1, data;",),
        ("cvt.u64.u32 d2, tie;", "add.u64 d1, d1, d2;"),
        ("cvt.u32.u64 r1, d1;", SINK.format("r1")),
    )


def _global_atomics(count: int) -> Body:
    """Each lane has a word of its own."""
    return Body(
        ("atom.global.exch.b32 r1, [d2], r1;",) * count,
        ("add.u32 r1, tid, 3;", "mul.wide.u32 d1, lane, 4;", "add.u64 d2, d1, data;"),
        ("add.u32 r1, r1, tie;",),
        (SINK.format("r1"),),
    )


def _shared_atomics(count: int) -> Body:
    """Each lane has a word of its own."""
    return Body(
        ("atom.shared.exch.b32 r1, [r2], r1;",) * count,
        (
            ".shared .align 16 .b32 cells[32];",
            "mov.u32 r3, cells;",
            "mad.lo.u32 r2, lane, 4, r3;",
            "st.volatile.shared.b32 [r2], tid;",
            "add.u32 r1, tid, 3;",
        ),
        ("add.u32 r1, r1, tie;",),
        (SINK.format("r1"),),
    )


def _operand_read(count: int) -> Body:
    """A store of what is then changed: the change waits until the store has read it."""
    return Body(
        ("st.volatile.shared.b32 [r2], r1;", "mad.lo.s32 r1, r1, r5, r3;") * count,
        (
            *_SELF,
            "mov.u32 r4, cell;",
            "add.u32 r2, r4, zero;",
            "add.u32 r3, zero, 5;",
            "add.u32 r5, zero, 3;",
        ),
        ("add.u32 r1, tid, tie;",),
        (SINK.format("r1"),),
    )


def _special_register(count: int) -> Body:
    """The next read is guarded by the last one's result."""
    return Body(
        ("setp.ne.u32 p1, r1, r2;", "@p1 mov.u32 r1, %warpid;") * count,
        ("add.u32 r2, zero, 0x7fffff01;",),
        ("add.u32 r1, tid, tie;",),
        (SINK.format("r1"),),
    )


def _plain(
    name: str, constant: str, used: float, published: str, code: Code, opcode: str, each: int = 1
) -> Benchmark:
    how = "one warp, each waits for the one before"
    return Benchmark(name, constant, used, LATENCY, how, published, code, opcode, each)


def arithmetic() -> list[Benchmark]:
    """List the chains of arithmetic.

    Returns:
        The benchmarks.
    """
    added, plain, special = pipes._ADDED, pipes._PLAIN, pipes._SPECIAL
    turns = ("add.u32 r1, r1, r2;", "xor.b32 r1, r1, r3;")
    picks = ("xor.b32 r1, r1, r2;", "prmt.b32 r1, r1, r3, 0x2103;")
    bounds = ("max.f32 f1, f1, f2;", "min.f32 f1, f1, f3;")
    packed = ("mov.b32 f1, r1;", "cvt.rn.bf16x2.f32 r1, f1, f2;")
    forth = ("cvt.rni.s32.f32 r1, f1;", "cvt.rn.f32.s32 f1, r1;")
    shuffle = "shfl.sync.bfly.b32 r1, r1, 1, 0x1f, 0xffffffff;"
    rotated = "shf.l.wrap.b32 r1, r1, r1, r2;"
    return [
        _plain("FADD", "_ADDED", added, f"4 ({JIA})", floats("add.f32 f1, f1, f2;"), "FADD"),
        _plain("FFMA", "_ADDED", added, f"4 ({JIA})", floats("fma.rn.f32 f1, f1, f2, f3;"), "FFMA"),
        _plain(
            "IMAD", "_ADDED", added, f"5 ({JIA})", integers("mad.lo.s32 r1, r1, r2, r3;"), "IMAD"
        ),
        _plain("DFMA", "_ADDED", 2 * added, f"8 ({JIA})", _doubles, "DFMA"),
        _plain(
            "HFMA2",
            "_ADDED",
            added,
            f"6 ({JIA})",
            integers("fma.rn.bf16x2 r1, r1, r2, r3;"),
            "HFMA2",
        ),
        _plain("FMNMX", "_PLAIN", plain, f"5 ({JIA})", floats(*bounds), "FMNMX", 2),
        _plain("LOP3, PRMT", "_PLAIN", plain, f"4 ({JIA}, LOP3)", integers(*picks), "LOP3|PRMT", 2),
        _plain(
            "VIADD, LOP3", "_PLAIN", plain, f"4 ({JIA})", integers(*turns), "V?I?ADD3?|IMAD|LOP3", 2
        ),
        _plain("SHF", "_PLAIN", plain, f"4 ({JIA})", integers(rotated), "SHF"),
        _plain("F2FP", "_PLAIN", plain, "", integers(*packed), "F2FP"),
        _plain(
            "MUFU.EX2",
            "_SPECIAL",
            special,
            f"14 ({JIA})",
            floats("ex2.approx.ftz.f32 f1, f1;"),
            "MUFU",
        ),
        _plain(
            "MUFU.RSQ",
            "_SPECIAL",
            special,
            f"14 ({JIA})",
            floats("rsqrt.approx.ftz.f32 f1, f1;"),
            "MUFU",
        ),
        _plain(
            "F2I, then I2FP",
            "_SPECIAL",
            special + added,
            f"14 and 4 ({JIA})",
            floats(*forth),
            "F2I",
        ),
        _plain("POPC", "_SPECIAL", special, f"10 ({JIA})", integers("popc.b32 r1, r1;"), "POPC"),
        _plain("SHFL", "_SHUFFLED", pipes._SHUFFLED, "", integers(shuffle), "SHFL"),
        _plain(
            "S2R",
            "_SPECIAL_REGISTER",
            pipes._SPECIAL_REGISTER + _AROUND_S2R,
            "",
            _special_register,
            "S2R",
        ),
        _plain("store's operand read", "READ", pipes.READ, "", _operand_read, "STS"),
    ]


def memory() -> list[Benchmark]:
    """List the chains of pointers through each kind of memory.

    Returns:
        The benchmarks.
    """
    shared = pipes._FROM_SHARED + 1

    def row(
        name: str,
        constant: str,
        used: float,
        published: str,
        code: Code,
        opcode: str,
        data: Data = "none",
        each: int = 1,
        count: int = 128,
    ) -> Benchmark:
        how = "a chain of pointers, one warp"
        return Benchmark(
            name, constant, used, LATENCY, how, published, code, opcode, each, count, data=data
        )

    load = "ld.{}.u32 r1, [r1];"
    wide = "ld.volatile.shared.v4.u32 {r1, r10, r11, r12}, [r1];"
    matrix = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r1}, [r1];"
    both = ("st.volatile.shared.u32 [r1], r1;", "ld.volatile.shared.u32 r1, [r1];")
    return [
        row(
            "LDS",
            "_FROM_SHARED",
            shared,
            f"29 ({LUO})",
            _self_pointing(load.format("shared")),
            "LDS",
        ),
        row("LDS.128", "_FROM_SHARED", shared + 3, "", _self_pointing(wide), "LDS"),
        row("LDSM", "_FROM_SHARED", shared, "", _self_pointing(matrix), "LDSM"),
        row("STS, then LDS", "_FROM_SHARED", shared, "", _self_pointing(*both), "LDS"),
        row("ATOMS", "_SHARED_ATOMIC", pipes._SHARED_ATOMIC, "", _shared_atomics, "ATOMS"),
        row("LDC", "_FROM_CONSTANTS", pipes._FROM_CONSTANTS, f"27 ({JIA})", _constants, "LDC"),
        row(
            "LDL",
            "_FROM_STACK",
            pipes._FROM_STACK,
            f"40.7 ({LUO}, first cache)",
            _self_pointing(load.format("local"), space="local"),
            "LDL",
        ),
        row(
            "LDG, first cache",
            "FROM_FIRST_CACHE",
            pipes.FROM_FIRST_CACHE,
            f"40.7 ({LUO})",
            _chase(""),
            "LDG",
            "first cache",
        ),
        row(
            "LDG, L2",
            "FROM_L2",
            pipes.FROM_L2,
            f"263.0 ({LUO})",
            _chase(".cg"),
            "LDG",
            "L2",
        ),
        row(
            "LDG, memory",
            "FROM_MEMORY",
            pipes.FROM_MEMORY,
            f"478.8 ({LUO})",
            _chase(".cg"),
            "LDG",
            "memory",
            count=256,
        ),
        row(
            "ATOMG",
            "_ATOMIC",
            pipes._ATOMIC,
            "",
            _global_atomics,
            "ATOMG",
            "zeros",
            count=64,
        ),
    ]
