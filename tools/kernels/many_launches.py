"""Ten thousand launches of each of Hopper's kernels, alone and beside a second stream's load.

    python -m tools.kernels.many_launches [CASE ...] [--calls N]

A line a case says how long they took and whether every hundredth result had the first one's bits.
Exits 1 when one had not, or hung: then nothing after it is tried, in this process nothing can be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

CALLS = 10_000
EACH = 100  # calls a graph holds: launched by the host one by one they would take it longer
SECONDS = 20.0  # ten times what the slowest takes
LOADS = ("alone", "beside")

# What writes to tensors of its own, and those.
Case = tuple[Callable[[], object], list[torch.Tensor]]


def _drawn(*shape: int, device: str, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape).to(dtype).to(device)


def forward(
    device: str, D: int, S: int, heads: int, causal: bool = False, tails: bool = False
) -> Case:
    from kernels.attention.common.problem import Mask, Problem
    from kernels.attention.hopper.forward import launch as hopper

    q, k, v = (_drawn(1, S, heads, D, device=device) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty((1, heads, S), device=device)
    problem, config = Problem(q, k, v, Mask(causal, 0, None), D**-0.5), None
    if tails:
        config = hopper.HopperConfig(3, block_n=128, stages=2, skip=True, tails=True)
    return lambda: hopper.launch(problem, out, lse, config=config), [out, lse]


def forward_fp8(device: str, D: int, S: int, causal: bool) -> Case:
    import kernels

    q, k, v = (_drawn(1, S, 4, D, device=device, dtype=torch.float8_e4m3fn) for _ in range(3))
    given: dict[str, Any] = {"causal": causal, "out_dtype": torch.bfloat16}
    return _kept(q.bfloat16(), lambda: kernels.flash_attention(q, k, v, **given))


def forward_window(device: str, D: int, S: int) -> Case:
    import kernels

    q, k, v = (_drawn(1, S, 4, D, device=device) for _ in range(3))
    return _kept(q, lambda: kernels.flash_attention(q, k, v, causal=True, window_size=(256, 0)))


def forward_packed(device: str, D: int, lengths: tuple[int, ...]) -> Case:
    import kernels

    ends = torch.tensor((0, *lengths)).cumsum(0)
    q, k, v = (_drawn(int(ends[-1]), 4, D, device=device) for _ in range(3))
    ends = ends.int().to(device)
    given = (q, k, v, ends, ends, max(lengths), max(lengths))
    return _kept(q, lambda: kernels.flash_attention_varlen(*given, causal=True))


def forward_fp8_packed(device: str, D: int, lengths: tuple[int, ...], causal: bool) -> Case:
    """The list of tiles, values turned around, and the kernel."""
    import kernels

    ends = torch.tensor((0, *lengths)).cumsum(0)
    q, k, v = (_drawn(int(ends[-1]), 4, D, device=device, dtype=torch.float8_e4m3fn) for _ in "qkv")
    ends = ends.int().to(device)
    given = (q, k, v, ends, ends, max(lengths), max(lengths))
    return _kept(q.bfloat16(), lambda: kernels.flash_attention_varlen(*given, causal=causal))


def decoding(device: str, D: int, lengths: tuple[int, ...]) -> Case:
    """Parts of keys, and the launch that adds them, which begins while they run."""
    import kernels

    B, keys = len(lengths), max(lengths)
    q = _drawn(B, 1, 8, D, device=device)
    k, v = (_drawn(B, keys, 2, D, device=device) for _ in range(2))
    held = torch.tensor(lengths, dtype=torch.int32, device=device)
    return _kept(q, lambda: kernels.flash_attention_kvcache(q, k, v, cache_seqlens=held))


def _kept(like: torch.Tensor, call: Callable[[], Any]) -> Case:
    out = torch.empty_like(like)
    return lambda: out.copy_(call()), [out]


def backward(
    device: str,
    D: int,
    S: int,
    causal: bool,
    two_kernels: bool | None = None,
    window: int | None = None,
) -> Case:
    from kernels.attention.common.problem import Given, Mask, Problem
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from kernels.attention.hopper.forward import launch as hopper
    from kernels.attention.portable.backward.launch import reserved

    q, k, v, dout = (_drawn(1, S, 4, D, device=device) for _ in range(4))
    out, lse = torch.empty_like(q), torch.empty((1, 4, S), device=device)
    mask, config = Mask(causal, 0, None if window is None else -window), None
    problem = Problem(q, k, v, mask, D**-0.5)
    hopper.launch(problem, out, lse)
    if two_kernels is not None:
        seen = 0 if two_kernels else S + hopper_backward_launch.SHORT
        config = hopper_backward_launch.choose(D, seen)
    given, made = Given(dout, None, out, lse), reserved(problem)
    return lambda: hopper_backward_launch.launch(problem, given, made, config=config), [*made]


def backward_packed(device: str, D: int, lengths: tuple[int, ...], causal: bool) -> Case:
    """The search for blocks of keys, and the three launches of the gradients."""
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.common.problem import Given, Mask, Problem
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from kernels.attention.hopper.forward import launch as hopper
    from kernels.attention.portable.backward.launch import reserved

    ends = torch.tensor((0, *lengths)).cumsum(0)
    tokens = int(ends[-1])
    ends = ends.int().to(device)
    packed = Packed(ends, ends, max(lengths), max(lengths))
    q, k, v, dout = (_drawn(tokens, 4, D, device=device) for _ in range(4))
    out, lse = torch.empty_like(q), torch.empty((4, tokens), device=device)
    q, k, v, dout, out = (packed.spread(one) for one in (q, k, v, dout, out))
    problem = Problem(q, k, v, Mask(causal, 0, None), D**-0.5, packed)
    hopper.launch(problem, out, lse)
    given, made = Given(dout, None, out, lse), reserved(problem)
    return lambda: hopper_backward_launch.launch(problem, given, made), [*made]


def corrected(device: str, D: int, S: int, causal: bool) -> Case:
    """Before the gradients: delta of rows of one heavy weight, which some are."""
    from kernels.attention.common.problem import Given, Mask, Problem
    from kernels.attention.hopper.backward.heavy_rows import launch as hopper_backward_exact
    from kernels.attention.hopper.forward import launch as hopper

    q, v, dout = (_drawn(1, S, 4, D, device=device) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty((1, 4, S), device=device)
    made = torch.empty_like(lse)
    problem = Problem(q, q, v, Mask(causal, 0, None), D**-0.5)
    hopper.launch(problem, out, None, rows=lse)
    given = Given(dout, None, out, lse)
    return lambda: hopper_backward_exact.launch(problem, given, made), [made]


def product(
    device: str, M: int, N: int, K: int, residual: bool = False, activation: str | None = None
) -> Case:
    """With an activation: and a bias."""
    from kernels.matmul.common.product import Product
    from kernels.matmul.hopper import launch as hopper

    a, b = _drawn(M, K, device=device), _drawn(K, N, device=device)
    out = a.new_empty((M, N))
    added = _drawn(M, N, device=device) if residual else None
    bias = _drawn(N, device=device) if activation else None
    made = Product(a, b, out, bias, activation, added)
    return lambda: hopper.launch(made), [out]


def product_of_few_rows(device: str, M: int, N: int, K: int) -> Case:
    import kernels

    a, b = _drawn(M, K, device=device), _drawn(N, K, device=device).t()
    out = a.new_empty((M, N))
    return lambda: kernels.matmul(a, b, out=out), [out]


def product_in_tf32(device: str, size: int) -> Case:
    from kernels.matmul.common.product import Product
    from kernels.matmul.hopper.tf32 import launch as hopper_tf32

    a, b = (_drawn(size, size, device=device, dtype=torch.float32) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: hopper_tf32.launch(Product(a, b, out)), [out]


def product_of_fp8(device: str, M: int, N: int, K: int, wide: bool | None) -> Case:
    from kernels.matmul.common.product import Product
    from kernels.matmul.hopper.fp8 import launch as hopper_fp8
    from kernels.matmul.operators import fp8 as fp8_interface

    a, b = (_drawn(rows, K, device=device, dtype=torch.float8_e4m3fn) for rows in (M, N))
    one = torch.ones((), device=device)
    scales = fp8_interface._scale("a_scale", a, one), fp8_interface._scale("b_scale", b.t(), one)
    out = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    config = None if wide is None else hopper_fp8.WIDE if wide else hopper_fp8.NARROW
    made = Product(a, b.t(), out, None, None, None, *scales)
    return lambda: hopper_fp8.launch(made, config), [out]


def product_of_fp8_blocks(device: str, M: int, N: int, K: int) -> Case:
    import kernels

    a, b = (_drawn(rows, K, device=device, dtype=torch.float8_e4m3fn) for rows in (M, N))
    scales: dict[str, Any] = {
        "a_scale": torch.rand((M, K // 128)).to(device),
        "b_scale": torch.rand((K // 128, N // 128)).to(device),
    }
    out = torch.empty((M, N), dtype=torch.bfloat16, device=device)
    return lambda: kernels.matmul(a, b.t(), **scales, out=out), [out]


CASES: dict[str, Callable[[str], Case]] = {
    "forward-D64-causal": lambda on: forward(on, 64, 512, 40, causal=True),
    "forward-D64-one-tile": lambda on: forward(on, 64, 512, 24),
    "forward-D64-tails": lambda on: forward(on, 64, 600, 4, tails=True),
    "forward-D64-one-block": lambda on: forward(on, 64, 256, 80),
    "forward-D96": lambda on: forward(on, 96, 512, 24),
    "forward-D128": lambda on: forward(on, 128, 512, 24),
    "forward-D128-few-rows": lambda on: forward(on, 128, 512, 4),
    "forward-D256-causal": lambda on: forward(on, 256, 512, 24, causal=True),
    "forward-fp8-D128-causal": lambda on: forward_fp8(on, 128, 512, True),
    "forward-fp8-D64-packed": lambda on: forward_fp8_packed(on, 64, (500, 1, 0, 300), False),
    "forward-fp8-D128-packed-causal": lambda on: forward_fp8_packed(
        on, 128, (500, 1, 0, 300), True
    ),
    "forward-D128-window": lambda on: forward_window(on, 128, 1024),
    "forward-D128-packed": lambda on: forward_packed(on, 128, (500, 1, 0, 300)),
    "decoding-D128": lambda on: decoding(on, 128, (4000, 1000, 3, 2048)),
    "backward-D64": lambda on: backward(on, 64, 256, False),
    "backward-D128-causal": lambda on: backward(on, 128, 256, True, two_kernels=False),
    "backward-D128-two-kernels": lambda on: backward(on, 128, 256, False, two_kernels=True),
    "backward-D256-causal": lambda on: backward(on, 256, 256, True),
    "backward-D128-window": lambda on: backward(on, 128, 512, True, two_kernels=False, window=200),
    "backward-D128-two-kernels-window": lambda on: backward(
        on, 128, 512, True, two_kernels=True, window=200
    ),
    "backward-D256-window": lambda on: backward(on, 256, 512, True, window=200),
    "backward-D64-packed": lambda on: backward_packed(on, 64, (500, 1, 0, 300), False),
    "backward-D128-packed-causal": lambda on: backward_packed(on, 128, (500, 1, 0, 300), True),
    "backward-D64-exact": lambda on: corrected(on, 64, 600, False),
    "backward-D128-exact-causal": lambda on: corrected(on, 128, 600, True),
    "backward-D256-exact": lambda on: corrected(on, 256, 400, False),
    "matmul-persistent": lambda on: product(on, 1024, 8448, 128),
    "matmul-quarters": lambda on: product(on, 1024, 9216, 128, activation="silu"),
    "matmul-halves": lambda on: product(on, 2304, 2304, 128),
    "matmul-three-consumers": lambda on: product(on, 1536, 1536, 256, activation="gelu"),
    "matmul-residual": lambda on: product(on, 1024, 9216, 128, residual=True),
    "matmul-one-tile": lambda on: product(on, 512, 512, 512),
    "matmul-one-wide-tile": lambda on: product(on, 2048, 2048, 320),
    "matmul-rows-by-class": lambda on: product(on, 1000, 1000, 200),
    "matmul-rows-by-class-persistent": lambda on: product(on, 2040, 2056, 136),
    "matmul-split": lambda on: product(on, 128, 512, 4096),
    "matmul-few-rows": lambda on: product_of_few_rows(on, 16, 4096, 1024),
    "matmul-few-rows-wide": lambda on: product_of_few_rows(on, 64, 14336, 512),
    "matmul-few-rows-split": lambda on: product_of_few_rows(on, 16, 256, 8192),
    "matmul-tf32": lambda on: product_in_tf32(on, 512),
    "matmul-fp8-wide": lambda on: product_of_fp8(on, 2048, 4608, 256, wide=True),
    "matmul-fp8-narrow": lambda on: product_of_fp8(on, 1024, 1024, 512, wide=False),
    "matmul-fp8-blocks": lambda on: product_of_fp8_blocks(on, 1536, 5632, 1024),
    "matmul-fp8-blocks-rest": lambda on: product_of_fp8_blocks(on, 1536, 5760, 896),
    "matmul-fp8-blocks-one-tile": lambda on: product_of_fp8_blocks(on, 512, 4096, 8192),
    "matmul-fp8-blocks-few-rows": lambda on: product_of_fp8_blocks(on, 16, 4096, 4224),
    "matmul-fp8-blocks-split": lambda on: product_of_fp8_blocks(on, 128, 512, 4096),
    "matmul-fp8-one-tile": lambda on: product_of_fp8(on, 256, 4096, 2048, wide=None),
    "matmul-fp8-few-rows": lambda on: product_of_fp8(on, 16, 4096, 1024, wide=None),
    "matmul-fp8-split": lambda on: product_of_fp8(on, 128, 512, 4096, wide=None),
}


def _bits_differ(found: list[torch.Tensor], expected: list[torch.Tensor]) -> torch.Tensor:
    pairs = zip(found, expected, strict=True)
    return torch.stack([(x.view(torch.uint8) != y.view(torch.uint8)).any() for x, y in pairs]).any()


def launched(case: Case, beside: bool, calls: int) -> str:
    """``same bits`` or what is wrong."""
    run, outputs = case
    run()
    expected = [one.clone() for one in outputs]
    different = torch.zeros((), dtype=torch.bool, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in outputs:
            one.fill_(float("nan"))
        for _ in range(min(EACH, calls)):
            run()
        different |= _bits_differ(outputs, expected)
    other = torch.cuda.Stream()
    load = torch.randn((2048, 2048), device="cuda")
    other.wait_stream(torch.cuda.current_stream())
    for _ in range(max(1, calls // EACH)):
        if beside:
            with torch.cuda.stream(other):
                for _ in range(2):
                    load = (load @ load).tanh_()
        graph.replay()
    end = torch.cuda.Event()
    end.record()
    until = time.monotonic() + SECONDS
    while not end.query():
        if time.monotonic() > until:
            return "hung"
        time.sleep(0.001)
    torch.cuda.synchronize()
    return "other bits" if different else "same bits"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernels.many_launches",
        description="ten thousand launches of each of Hopper's kernels end with the same bits",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--calls", type=int, default=CALLS)
    args = parser.parse_args()
    unknown = sorted(set(args.cases) - set(CASES))
    if unknown or args.calls < 1:
        parser.error(f"expected cases out of {', '.join(CASES)} and calls from 1 on, got {args}")
    wrong = 0
    for name in args.cases or CASES:
        torch.manual_seed(0)
        for load in LOADS:
            begin = time.monotonic()
            try:
                word = launched(CASES[name]("cuda"), load == "beside", args.calls)
            except Exception as error:  # the others may be right
                word = f"failed: {type(error).__name__}: {error}".partition("\n")[0]
            seconds = time.monotonic() - begin
            print(f"{name} {load}: {word}, {args.calls} calls, {seconds:.2f} s", flush=True)
            if word == "hung":
                os._exit(1)  # to end as always would wait for the GPU
            wrong += word != "same bits"
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
