"""Products of the tensor cores: of one warp, and of a warpgroup out of shared memory.

Hopper has no fp8 product of one warp: the assembler makes two of fp16 and a sum of it.
"""

from __future__ import annotations

from warpwatch.devices import Device
from warpwatch.instruments.compiled.schedule import pipes

from .benchmark import CLOCKS, LATENCY, SHARE, Benchmark
from .ptx import SINK, Body, Code

LUO = "Luo et al. 2024, H100"
_FIRST = 16  # register of the first accumulator
# A descriptor of a tile whose rows are 128 bytes, swizzled: eight rows are 1024 bytes.
_SWIZZLED = (1 << 62) | (64 << 32) | (1 << 16)
_TILE = 64 * 128  # bytes of the left tile


def _registers(kind: str, first: int, number: int) -> str:
    return ", ".join(f"{kind}{one}" for one in range(first, first + number))


def _warp(shape: str, types: str, left: int, right: int, kind: str, chains: int) -> Code:
    """mma.sync with ``chains`` sets of accumulators, which are taken in turn."""
    name = f"mma.sync.aligned.{shape}.row.col.{types}"
    doubles = types.startswith("f64")
    operand = "e" if doubles else "r"
    size = 2 if shape == "m8n8k4" else 4
    sets = [_FIRST + size * one for one in range(chains)]

    def code(count: int) -> Body:
        a, b = _registers(operand, 2, left), _registers(operand, 2 + left, right)
        steps = [
            f"{name} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
            for d in (_registers(kind, sets[n % chains], size) for n in range(count))
        ]
        inputs = range(2, 2 + left + right)
        accumulators = range(_FIRST, _FIRST + size * chains)
        if doubles:
            before = [f"cvt.rn.f64.u32 e{one}, zero;" for one in (*inputs, *accumulators)]
            tied = ["cvt.rn.f64.u32 e1, tie;", *(f"add.f64 e{one}, e{one}, e1;" for one in sets)]
            joined = [f"add.f64 e1, e1, e{one};" for one in sets]
            consumed = [*joined, "mov.b64 {r1, r2}, e1;", SINK.format("r1"), SINK.format("r2")]
        else:
            before = [f"add.u32 r{one}, zero, 0;" for one in inputs]
            before += [f"mov.b32 f{one}, zero;" for one in accumulators]
            tied = [f"add.f32 f{one}, f{one}, ftie;" for one in sets]
            consumed = ["mov.b32 f1, zero;", *(f"add.f32 f1, f1, f{one};" for one in sets)]
            consumed += [SINK.format("f1")]
        return Body(steps, before, tied, consumed)

    return code


def _group(n: int, k: int, types: str) -> Code:
    """wgmma: one group of products that all add to the same accumulators."""
    number = n // 2
    flags = "1, 1, 1, 0, 0" if "bf16" in types else "1, 1, 1"
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{types}"
    accumulators = _registers("f", _FIRST, number)

    def code(count: int) -> Body:
        return Body(
            [
                "wgmma.fence.sync.aligned;",
                *[f"{name} {{{accumulators}}}, d1, d2, {flags};"] * count,
                "wgmma.commit_group.sync.aligned;",
                "wgmma.wait_group.sync.aligned 0;",
            ],
            [
                f".shared .align 1024 .b8 tiles[{_TILE + n * 128}];",
                "mov.u32 r1, tiles;",
                *("mad.lo.u32 r2, tid, 16, r1;", "mov.u32 r4, tid;"),
                "FILL:",
                "st.shared.v4.u32 [r2], {zero, zero, zero, zero};",
                "add.u32 r2, r2, 2048;",
                "add.u32 r4, r4, 128;",
                f"setp.lt.u32 p1, r4, {(_TILE + n * 128) // 16};",
                "@p1 bra FILL;",
                "fence.proxy.async.shared::cta;",
                "bar.sync 0;",
                "and.b32 r2, r1, 0x3ffff;",
                "shr.u32 r2, r2, 4;",
                "cvt.u64.u32 d1, r2;",
                f"or.b64 d1, d1, {_SWIZZLED:#x};",
                f"add.u64 d2, d1, {_TILE >> 4};",
                *(f"mov.b32 f{one}, zero;" for one in range(_FIRST, _FIRST + number)),
            ],
            after=[
                "mov.b32 f1, zero;",
                *(f"add.f32 f1, f1, f{one};" for one in range(_FIRST, _FIRST + number)),
                SINK.format("f1"),
            ],
        )

    return code


def suite(device: Device) -> list[Benchmark]:
    """List the products.

    Args:
        device: The card that the model would use.

    Returns:
        The benchmarks.
    """
    table = device.flop_per_clock
    small = {
        "bf16": ("m16n8k16", "f32.bf16.bf16.f32", 4, 2, "f"),
        "fp16": ("m16n8k16", "f32.f16.f16.f32", 4, 2, "f"),
    }
    found = []
    for dtype, (shape, types, left, right, kind) in small.items():
        depth = int(shape.partition("k")[2])
        found.append(
            Benchmark(
                f"mma.sync {shape} {dtype}",
                "_PRODUCT",
                pipes._PRODUCT,
                LATENCY,
                "one warp, each adds to the result before",
                f"33 ({LUO})",
                _warp(shape, types, left, right, kind, 1),
                "HMMA",
                1,
                64,
            )
        )
        for warps in (4, 8):
            found.append(
                Benchmark(
                    f"mma.sync {shape} {dtype}, {warps} warps",
                    "_MMA_SYNC",
                    pipes._MMA_SYNC,
                    SHARE,
                    "each warp has four sums",
                    f"0.62 ({LUO})",
                    _warp(shape, types, left, right, kind, 4),
                    "HMMA",
                    1,
                    64,
                    32 * warps,
                    2 * 16 * 8 * depth / table[dtype],
                )
            )
    double = ("m8n8k4", "f64.f64.f64.f64", 1, 1, "e")
    found.append(
        Benchmark(
            "mma.sync m8n8k4 fp64",
            "_DOUBLE_PRODUCT",
            pipes._DOUBLE_PRODUCT,
            LATENCY,
            "one warp, each adds to the result before",
            "",
            _warp(*double, 1),
            "DMMA",
            1,
            64,
        )
    )
    found.append(
        Benchmark(
            "mma.sync m8n8k4 fp64, 8 warps",
            "fp64",
            0.5,
            SHARE,
            "each warp has four sums",
            "",
            _warp(*double, 4),
            "DMMA",
            1,
            64,
            256,
            2 * 8 * 8 * 4 / (2 * table["fp64"]),
        )
    )
    for dtype, depth, types in (("bf16", 16, "bf16.bf16"), ("fp8", 32, "e4m3.e4m3")):
        for n in (64, 128, 256):
            code = _group(n, depth, types)
            name = f"wgmma m64n{n}k{depth} {dtype}"
            rate = 2 * 64 * n * depth / table[dtype]
            found.append(
                Benchmark(
                    name,
                    f"flop_per_clock.{dtype}",
                    rate,
                    CLOCKS,
                    "one warpgroup, one group",
                    "128" if n == 256 else "",
                    code,
                    "[HQ]GMMA",
                    1,
                    16,
                    128,
                    needs=90,
                    only=True,
                )
            )
            found.append(
                Benchmark(
                    f"{name}, around it",
                    "_PRODUCTS",
                    pipes._PRODUCTS,
                    LATENCY,
                    "what a group takes beyond its products",
                    "",
                    code,
                    "[HQ]GMMA",
                    1,
                    16,
                    128,
                    reading="intercept",
                    needs=90,
                    only=True,
                )
            )
        found.append(
            Benchmark(
                f"{name}, two warpgroups",
                f"flop_per_clock.{dtype}",
                2 * rate,
                CLOCKS,
                "two warpgroups, a group each",
                "",
                code,
                "[HQ]GMMA",
                1,
                16,
                256,
                needs=90,
                only=True,
            )
        )
    return found
