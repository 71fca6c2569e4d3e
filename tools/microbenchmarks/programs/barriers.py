"""Barriers of a block, mbarriers, and bulk copies that report to one."""

from __future__ import annotations

from warpwatch.instruments.compiled.schedule import pipes

from .benchmark import LATENCY, Benchmark, Data
from .ptx import SINK, Body, Code, waited

_ROOM = 65536  # bytes between the sources of two copies from memory
_BARRIER = (
    ".shared .align 8 .b64 barrier;",
    "mov.u32 r1, barrier;",
    "mbarrier.init.shared.b64 [r1], 1;",
    "fence.mbarrier_init.release.cluster;",
)


def _meeting(count: int) -> Body:
    return Body(("bar.sync 1;",) * count)


def _round_trip(count: int) -> Body:
    """One thread completes a phase and sees it completed; it arrives again only then."""
    steps = []
    for n in range(count):
        steps += [
            "@p1 mbarrier.arrive.shared.b64 d1, [r1];",
            f"mbarrier.try_wait.parity.shared.b64 p1, [r1], {n % 2};",
        ]
    return Body(
        steps,
        _BARRIER,
        ("setp.eq.u32 p1, tie, 0;",),
        ("selp.u32 r2, 1, 0, p1;", SINK.format("r2")),
        ("@!p1 exit;",),
    )


def _copies(size: int, apart: int) -> Code:
    """One thread copies to shared memory, waits, and copies again from ``apart`` bytes on."""

    def code(count: int) -> Body:
        steps = []
        for n in range(count):
            steps += [
                f"mbarrier.arrive.expect_tx.shared.b64 d1, [r1], {size};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[r2], [d2], {size}, [r1];",
                f"add.u64 d2, d2, {apart};",
                *waited(n, "r1", n % 2),
            ]
        return Body(
            steps,
            (
                f".shared .align 128 .b8 tile[{size}];",
                *_BARRIER,
                "mov.u32 r2, tile;",
                "mov.b64 d3, data;",
            ),
            ("cvt.u64.u32 d4, tie;", "add.u64 d2, d3, d4;"),
            after=("mov.b64 d3, d2;",) if apart else (),
        )

    return code


def _of_barrier(warps: int) -> float:
    """Of one scheduler's warps, the others issue theirs after the first."""
    return pipes._BARRIER + warps * pipes._EACH_WARP + warps // pipes.SCHEDULERS - 1


def suite() -> list[Benchmark]:
    """List the barriers and the copies.

    Returns:
        The benchmarks.
    """
    found = [
        Benchmark(
            f"BAR.SYNC, {warps} warps", "_BARRIER", _of_barrier(warps), LATENCY,
            "all warps meet again and again", "", _meeting, "BAR.SYNC", 1, 128, 32 * warps,
        )
        for warps in (4, 8, 16)
    ]  # fmt: skip
    found.append(
        Benchmark(
            "mbarrier, arrive and wait", "_MBARRIER", pipes._MBARRIER / 2 + 1, LATENCY,
            "one thread, a phase after the other", "", _round_trip, "SYNCS", 2, 64, 1, needs=90,
        )
    )  # fmt: skip
    places: tuple[tuple[str, Data, int, int], ...] = (
        ("L2", "zeros", 0, 0),
        ("memory", "stream", _ROOM, pipes.FROM_MEMORY - pipes.FROM_L2),
    )
    for place, data, apart, further in places:
        for size in (1024, 16384):
            found.append(
                Benchmark(
                    f"bulk copy of {size // 1024} KB from {place}", "copied",
                    pipes.copied(size) + further, LATENCY,
                    "one thread, until its mbarrier says so", "", _copies(size, apart), "UBLKCP",
                    1, 32, 1, data=data, needs=90,
                )
            )  # fmt: skip
    return found
