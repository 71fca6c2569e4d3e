"""Repeats of forward, backward and decoding on a GPU, whose results must be the same bits.

python -m tools.kernels.repeats --count 1000
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.kernels import on_card

ROWS = 1000  # of queries; the command changes it
Call = Callable[[], tuple[torch.Tensor, ...]]


def attention(dtype: torch.dtype, D: int, **options: Any) -> tuple[Call, Call]:
    """Forward, and gradients from a finished forward pass; ``S`` queries and ``KV`` keys."""
    import kernels

    S = options.pop("S", ROWS)
    H, G, KV = 8, 2, options.pop("KV", ROWS + 100)
    q, k, v = (torch.randn(2, rows, heads, D).to(dtype).requires_grad_()
               for rows, heads in ((S, H), (KV, G), (KV, G)))  # fmt: skip
    if options.pop("sinks", False):
        options["sinks"] = torch.randn(H).requires_grad_()
    if options.pop("bias", False):
        options["bias"] = torch.randn(H, 1, KV).requires_grad_()
    if (span := options.pop("span", 0)) > 0:
        blocks = torch.rand(1, H, -(-S // span), -(-KV // span)) < 0.5
        options |= {"block_mask": blocks, "block_size": (span, span)}
    more = tuple(options[name] for name in ("sinks", "bias") if name in options)

    def forward() -> tuple[torch.Tensor, ...]:
        found: Any = kernels.flash_attention(q, k, v, **options, return_lse=True)
        return tuple(found)

    kept = forward()
    dout = [torch.randn(one.shape).to(one.dtype) for one in kept]

    def backward() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(kept, (q, k, v, *more), dout, retain_graph=True)

    return forward, backward


def packed(D: int) -> tuple[Call, Call]:
    import kernels

    ends = torch.tensor([0, ROWS // 2, ROWS // 2, ROWS // 2 + 1, 2 * ROWS], dtype=torch.int32)
    q, k, v = (torch.randn(2 * ROWS, heads, D).half().requires_grad_() for heads in (8, 2, 2))

    def forward() -> tuple[torch.Tensor, ...]:
        found: Any = kernels.flash_attention_varlen(
            q, k, v, ends, ends, 2 * ROWS, 2 * ROWS, causal=True, return_lse=True
        )
        return tuple(found)

    kept = forward()
    dout = [torch.randn(one.shape).to(one.dtype) for one in kept]

    def backward() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(kept, (q, k, v), dout, retain_graph=True)

    return forward, backward


def attention_fp8(D: int, causal: bool = True) -> Call:
    import kernels

    S, E4M3 = ROWS, torch.float8_e4m3fn
    q, k, v = (torch.randn(2, S, heads, D).to(E4M3) for heads in (8, 2, 2))

    def call() -> tuple[torch.Tensor, ...]:
        found: Any = kernels.flash_attention(q, k, v, causal=causal, return_lse=True)
        return tuple(found)

    return call


def packed_fp8(D: int) -> Call:
    import kernels

    ends = torch.tensor([0, 30, 30, ROWS, 2 * ROWS - 10], dtype=torch.int32)
    q, k, v = (torch.randn(2 * ROWS, n, D).to(torch.float8_e4m3fn) for n in (8, 2, 2))

    def call() -> tuple[torch.Tensor, ...]:
        found: Any = kernels.flash_attention_varlen(
            q, k, v, ends, ends, ROWS, ROWS, causal=True, return_lse=True
        )
        return tuple(found)

    return call


def decoding(page: int, fp8: bool = False, new: int = 0) -> Call:
    """With ``new`` keys, appended at the same places each time."""
    import kernels

    q = torch.randn(4, 1, 16, 128).bfloat16()
    if page:
        cache = torch.randn(4 * 4096 // page, page, 4, 128).bfloat16()
        table = torch.randperm(4 * 4096 // page).reshape(4, -1).to(torch.int32)
    else:
        cache, table = torch.randn(4, 4096, 4, 128).bfloat16(), None
    cache = cache.to(torch.float8_e4m3fn) if fp8 else cache
    lengths = torch.tensor([4096 - new, 3001, 17, 1], dtype=torch.int32)
    more = tuple(torch.randn(4, new, 4, 128).bfloat16() for _ in range(2)) if new else ()
    k_cache, v_cache = (cache.clone(), cache.clone()) if new else (cache, cache)

    def call() -> tuple[torch.Tensor, ...]:
        found: Any = kernels.flash_attention_kvcache(
            q,
            k_cache,
            v_cache,
            *more,
            cache_seqlens=lengths,
            block_table=table,
            causal=True,
            return_lse=True,
        )
        return tuple(found) + ((k_cache.clone(), v_cache.clone()) if new else ())

    return call


def product(
    M: int, N: int, K: int, dtype: torch.dtype = torch.bfloat16, tf32: bool = False
) -> Call:
    """b lies along K."""
    import kernels

    a, b = torch.randn(M, K).to(dtype), torch.randn(N, K).to(dtype).t()
    if dtype == torch.float8_e4m3fn:
        one, two = torch.tensor(0.5), torch.tensor(2.0)
        return lambda: (kernels.matmul(a, b, a_scale=one, b_scale=two),)
    return lambda: (kernels.matmul(a, b, allow_tf32=tf32),)


def product_with_gradients() -> Call:
    """Of an activation's input, bias and residual too."""
    import kernels

    a, b, bias, residual = (
        torch.randn(shape).bfloat16().requires_grad_()
        for shape in ((300, 264), (264, 520), (520,), (300, 520))
    )
    dout = torch.randn(300, 520).bfloat16()

    def call() -> tuple[torch.Tensor, ...]:
        out = kernels.matmul(a, b, bias=bias, activation="gelu", residual=residual)
        return out.detach(), *torch.autograd.grad(out, (a, b, bias, residual), dout)

    return call


def grouped() -> Call:
    import kernels

    a, b = torch.randn(1000, 256).half(), torch.randn(4, 256, 512).half().requires_grad_()
    offsets = torch.tensor([0, 300, 300, 777, 1000], dtype=torch.int32)
    dout = torch.randn(1000, 512).half()

    def call() -> tuple[torch.Tensor, ...]:
        out = kernels.grouped_matmul(a, b, offsets)
        return out.detach(), *torch.autograd.grad(out, b, dout)

    return call


def calls(having: str) -> dict[str, Call]:
    """Those whose name has ``having``."""
    found: dict[str, Call] = {}
    plain = {"causal": True}
    for name, dtype, D, options in (
        ("fp16 D64", torch.float16, 64, plain),
        ("bf16 D128", torch.bfloat16, 128, plain),
        ("bf16 D128 full", torch.bfloat16, 128, {}),
        ("bf16 D128 full of 900 keys", torch.bfloat16, 128, {"KV": 900}),
        ("bf16 D128 of 2500 keys", torch.bfloat16, 128, {"KV": 2500, **plain}),
        ("bf16 D256", torch.bfloat16, 256, plain),
        ("fp32 D64", torch.float32, 64, plain),
        ("fp16 D80 window", torch.float16, 80, {"window_size": (100, 50)}),
        ("fp16 D128 causal window", torch.float16, 128, {"window_size": (300, 0)}),
        ("fp16 D64 of 20 keys", torch.float16, 64, {"KV": 20}),
        ("bf16 D128 few queries", torch.bfloat16, 128, {"S": 3, "KV": 4000, **plain}),
        ("bf16 D64 blocks", torch.bfloat16, 64, {"span": 128}),
        ("bf16 D128 blocks", torch.bfloat16, 128, {"span": 128, **plain}),
        ("bf16 D128 softcap", torch.bfloat16, 128, {"softcap": 3.0, **plain}),
        ("bf16 D128 sinks", torch.bfloat16, 128, {"sinks": True, **plain}),
        ("fp16 D128 dropout", torch.float16, 128,
         {"dropout_p": 0.1, "dropout_seed": 5, **plain}),
        ("fp16 D64 softcap sinks bias", torch.float16, 64,
         {"softcap": 3.0, "sinks": True, "bias": True, "dropout_p": 0.1, "dropout_seed": 5}),
    ):  # fmt: skip
        if having in f"forward {name}" or having in f"backward {name}":
            each = attention(dtype, D, **dict(options))
            found[f"forward {name}"], found[f"backward {name}"] = each
    for D in (64, 128, 256):
        if having in f"forward varlen D{D}" or having in f"backward varlen D{D}":
            found[f"forward varlen D{D}"], found[f"backward varlen D{D}"] = packed(D)
    low, single = torch.float8_e4m3fn, torch.float32
    others: tuple[tuple[str, Callable[..., Call], Any], ...] = (
        *((f"forward fp8 D{D}", attention_fp8, (D,)) for D in (64, 128, 256)),
        ("forward fp8 D128 full", attention_fp8, (128, False)),
        ("forward varlen fp8 D128", packed_fp8, (128,)),
        ("decode contiguous", decoding, (0,)),
        ("decode paged", decoding, (16,)),
        ("decode of an fp8 cache", decoding, (16, True)),
        ("decode with new keys", decoding, (16, False, 1)),
        ("decode with new keys, fp8 cache", decoding, (16, True, 1)),
        ("matmul fp8", product, (500, 512, 1024, low)),
        ("matmul fp8 1500x1032x2048", product, (1500, 1032, 2048, low)),
        ("matmul fp8 2500x5008x512", product, (2500, 5008, 512, low)),
        ("matmul fp8 split K 16x4096x4096", product, (16, 4096, 4096, low)),
        ("matmul tf32", product, (1000, 1000, 1000, single, True)),
        ("matmul fp32", product, (300, 300, 1000, single)),
        ("matmul one row", product, (1, 4096, 4096)),
        ("matmul whole columns", product, (16, 4096, 4096)),
        ("matmul 1000x1000x1000", product, (1000, 1000, 1000)),
        ("matmul 1544x1536x512", product, (1544, 1536, 512)),
        ("matmul 2040x2048x512", product, (2040, 2048, 512)),
        ("matmul split K 8x1024x8192", product, (8, 1024, 8192)),
        ("matmul with gradients", product_with_gradients, ()),
        ("grouped_matmul with gradient", grouped, ()),
    )
    found |= {name: make(*given) for name, make, given in others if having in name}
    return {name: call for name, call in found.items() if having in name}


def unlike(call: Call, count: int) -> tuple[int, int]:
    """How many of ``count`` repeats differ in a bit from the first, and NaNs of the first."""

    def bits(one: torch.Tensor) -> torch.Tensor:
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[one.element_size()]
        return one.detach().contiguous().view(kind)

    first = call()
    wrong = torch.zeros((), dtype=torch.int64)
    for _ in range(count):
        differs = [(bits(a) != bits(b)).any() for a, b in zip(call(), first, strict=True)]
        wrong += torch.stack(differs).any()
    return int(wrong), sum(int(one.isnan().sum()) for one in first)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.repeats")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=ROWS, help="of queries of attention")
    parser.add_argument("--name", default="", help="only calls whose name has this")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth of them from the Ith on")
    args = parser.parse_args(given)
    first, step = map(int, args.part.split("/"))
    globals()["ROWS"] = args.rows
    device = on_card.prepare()
    failed = 0
    for portable in (True, False):
        with on_card.Made(device), on_card.portable(portable):
            torch.manual_seed(1)
            # Decoding and groups have no kernel of one architecture.
            special = ("forward", "backward", "matmul")
            made = [
                (name, call)
                for name, call in calls(args.name).items()
                if portable or name.startswith(special)
            ]
            for name, call in made[first - 1 :: step]:
                started = time.monotonic()
                try:
                    wrong, nans = unlike(call, args.count)
                    text = f"{wrong} of {args.count} unlike the first, {nans} NaN"
                except Exception as error:  # the others still count
                    wrong, nans, text = 1, 0, f"FAILED {type(error).__name__}: {error}"
                failed += bool(wrong or nans)
                kind = "portable" if portable else "any"
                seconds = time.monotonic() - started
                print(f"{name:<40} {kind:<9} {text} {seconds:.1f} s", flush=True)
    print(f"{failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
