"""The way of instructions: how many a warp may queue, and what long code costs."""

from __future__ import annotations

from warpwatch.instruments.compiled.schedule import pipes

from .benchmark import CLOCKS, LATENCY, Benchmark
from .ptx import SINK, Body, Code

_CHAINS = 8
_WARPS = 4  # one for each scheduler
_BYTES = 16  # of an instruction, and of a lane's load


def _queue(space: str) -> Code:
    """Loads that nothing waits for until the clock was read again."""

    def code(count: int) -> Body:
        places = [16 + 4 * one for one in range(count)]
        kind, address = ("volatile.shared", "r2") if space == "shared" else ("global", "d2")
        loads = [
            f"ld.{kind}.v4.u32 {{r{x}, r{x + 1}, r{x + 2}, r{x + 3}}}, [{address}+{512 * n}];"
            for n, x in enumerate(places)
        ]
        every = [f"xor.b32 r3, r3, r{x + y};" for x in places for y in range(4)]
        after = ["mov.u32 r3, tie;", *every, SINK.format("r3")]
        if space == "shared":
            before = [
                f".shared .align 16 .b8 pool[{32 * 512 + 32 * _WARPS * _BYTES}];",
                "mov.u32 r1, pool;",
                f"mad.lo.u32 r4, tid, {_BYTES}, r1;",
            ]
            tied = ["add.u32 r2, r4, tie;"]
        else:
            before = [f"mul.wide.u32 d1, tid, {_BYTES};", "add.u64 d1, d1, data;"]
            tied = ["cvt.u64.u32 d3, tie;", "add.u64 d2, d1, d3;"]
        return Body(loads, before, tied, after=after)

    return code


def _straight(count: int) -> Body:
    return Body(
        [f"fma.rn.f32 f{10 + n % _CHAINS}, f{10 + n % _CHAINS}, f2, f3;" for n in range(count)],
        (
            "mov.b32 f2, zero;",
            "mov.b32 f3, zero;",
            *(f"cvt.rn.f32.u32 f{10 + n}, tid;" for n in range(_CHAINS)),
        ),
        [f"add.f32 f{10 + n}, f{10 + n}, ftie;" for n in range(_CHAINS)],
        [
            *(f"add.f32 f10, f10, f{10 + n};" for n in range(1, _CHAINS)),
            SINK.format("f10"),
        ],
    )


def suite() -> list[Benchmark]:
    """List the queues and the lengths of code.

    Returns:
        The benchmarks.
    """
    found = [
        Benchmark(
            f"queue of {name}", "BACKLOG", pipes.BACKLOG, LATENCY,
            "4 warps, loads that nothing waits for", "", _queue(space), name.split(".")[0],
            1, 4, 32 * _WARPS, data="zeros", reading="queue",
        )
        for name, space in (("LDS.128", "shared"), ("LDG.128", "global"))
    ]  # fmt: skip
    found += [
        Benchmark(
            f"straight code of {size} KB", "instruction cache", 1.0, CLOCKS,
            "4 warps run FFMA after FFMA, walked twice before", "", _straight, "FFMA",
            1, size * 1024 // _BYTES // 2, 32 * _WARPS, reading="mean",
        )
        for size in (16, 32, 64, 128, 256)
    ]  # fmt: skip
    return found
