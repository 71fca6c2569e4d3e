"""What torch's FlopCounterMode counts: for each operator as much as for torch's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from tests.kernels.interpreted import Worker

E4M3 = torch.float8_e4m3fn


def counted(call: Callable[[], Any], backward: bool = False) -> int:
    with FlopCounterMode(display=False) as counter:
        out = call()
        if backward:
            out.sum().backward()
    return counter.get_total_flops()


def run_counts() -> dict[str, tuple[int, int]]:
    """Ours beside torch's, or beside the sum of products written out."""
    import kernels

    q, k, v = torch.randn(2, 20, 4, 16), torch.randn(2, 24, 2, 16), torch.randn(2, 24, 2, 16)
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    by_heads = [one.transpose(1, 2) for one in (q, k, v)]
    a, b = torch.randn(8, 16), torch.randn(16, 24)
    ends = torch.tensor([0, 20, 40], dtype=torch.int32)
    ends_k = torch.tensor([0, 24, 48], dtype=torch.int32)
    uneven = torch.tensor([0, 1, 40], dtype=torch.int32)
    packed = [one.flatten(0, 1) for one in (q, k, v)]
    packed_leaves = [one.flatten(0, 1).requires_grad_() for one in (q, k, v)]
    out, lse = kernels.flash_attention(q, k, v, return_lse=True)
    low = [one.to(E4M3) for one in (q, k, v)]
    forward = 2 * 2 * 4 * 20 * 24 * (16 + 16)
    backward = 2 * 2 * 4 * 20 * 24 * 5 * 16
    pages = torch.randn(6, 16, 2, 16)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    lengths = torch.tensor([3, 20], dtype=torch.int32)
    starts = torch.tensor([0, 2, 2], dtype=torch.int32)
    weights, groups = torch.randn(2, 16, 24), torch.tensor([0, 3, 8], dtype=torch.int32)
    decode = kernels.flash_attention_kvcache
    given = torch.empty(8, 24)

    def of_torch(backward: bool = False) -> int:
        ours = [one.detach().requires_grad_(backward) for one in by_heads]
        # Their formula is of the fused kernels; on a CPU these are written out.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return counted(lambda: torch_sdpa(*ours, enable_gqa=True), backward)

    def products(backward: bool = False) -> int:
        ours = [one.clone().requires_grad_() for one in (a, b)]
        return counted(lambda: torch.mm(*ours), backward)

    def ours(backward: bool = False, **options: Any) -> int:
        both = [one.clone().requires_grad_() for one in (a, b)]
        return counted(lambda: kernels.matmul(*both, **options), backward)

    grouped = [one.clone().requires_grad_() for one in (a, weights)]
    lows = a.to(E4M3), b.to(E4M3)
    product = 2 * 8 * 16 * 24
    return {
        "attention": (counted(lambda: kernels.flash_attention(q, k, v)), of_torch()),
        "causal": (counted(lambda: kernels.flash_attention(q, k, v, causal=True)), forward),
        "sdpa": (
            counted(lambda: kernels.scaled_dot_product_attention(*by_heads, enable_gqa=True)),
            forward,
        ),
        "gradients": (
            counted(lambda: kernels.flash_attention(*leaves), backward=True),
            forward + backward,
        ),
        "flash_attention_backward": (
            counted(lambda: kernels.flash_attention_backward(out, q, k, v, out, lse)),
            backward,
        ),
        "values": (
            counted(lambda: kernels.flash_attention(q, k, v[..., :8])),
            2 * 2 * 4 * 20 * 24 * (16 + 8),
        ),
        "fp8": (counted(lambda: kernels.flash_attention(*low)), forward),
        "packed": (
            counted(lambda: kernels.flash_attention_varlen(*packed, ends, ends_k, 20, 24)),
            forward,
        ),
        "packed fp8": (
            counted(
                lambda: kernels.flash_attention_varlen(
                    *[one.to(E4M3) for one in packed], ends, ends_k, 20, 24
                )
            ),
            forward,
        ),
        "packed gradients": (
            counted(
                lambda: kernels.flash_attention_varlen(*packed_leaves, ends, ends_k, 20, 24),
                backward=True,
            ),
            forward + backward,
        ),
        # At most: each of 40 rows over the longest sequence.
        "uneven": (
            counted(
                lambda: kernels.flash_attention_varlen(*[packed[0]] * 3, uneven, uneven, 39, 39)
            ),
            2 * 4 * 40 * 39 * 32,
        ),
        "decoding": (counted(lambda: decode(q, k, v)), forward),
        "one length": (
            counted(lambda: decode(q, k, v, k[:, :2], v[:, :2], cache_seqlens=7)),
            2 * 2 * 4 * 20 * 9 * 32,
        ),
        # Of packed new keys a sequence may have any number: all there is room for.
        "packed new keys": (
            counted(
                lambda: decode(
                    *(q, k, v, k[0, :2], v[0, :2]), cache_seqlens=7, cu_seqlens_k_new=starts
                )
            ),
            forward,
        ),
        "pages": (
            counted(
                lambda: decode(q, pages, pages, cache_seqlens=lengths, block_table=table),
            ),
            2 * 2 * 4 * 20 * 32 * 32,
        ),
        "matmul": (ours(), products()),
        "matmul gradients": (ours(True), products(True)),
        "matmul without gradients": (counted(lambda: kernels.matmul(a, b)), product),
        "gelu": (ours(activation="gelu"), product),
        # What gelu was applied to is computed again.
        "gelu gradients": (ours(True, activation="gelu"), 4 * product),
        "matmul_into": (counted(lambda: kernels.matmul(a, b, out=given)), product),
        "matmul_fp8": (counted(lambda: kernels.matmul(*lows)), product),
        "matmul_fp8_into": (
            counted(lambda: kernels.matmul(*lows, out_dtype=torch.float32, out=given)),
            product,
        ),
        "grouped": (
            counted(lambda: kernels.grouped_matmul(*grouped, groups), backward=True),
            3 * product,
        ),
    }


def test_counts_are_torchs(interpreter: Worker) -> None:
    found = interpreter.run(run_counts)
    assert {name: ours for name, (ours, _) in found.items()} == {
        name: torchs for name, (_, torchs) in found.items()
    }


def test_attention_is_counted_as_by_torchs_formulas() -> None:
    from kernels.runtime import flops

    q, k = torch.empty(2, 4, 20, 16, device="meta"), torch.empty(2, 2, 24, 16, device="meta")
    v = torch.empty(2, 2, 24, 8, device="meta")
    ours = {name: one.transpose(1, 2) for name, one in zip("qkv", (q, k, v), strict=True)}
    aten = torch.ops.aten
    dout = torch.empty(2, 4, 20, 8, device="meta")
    k, v = (one.repeat_interleave(2, 1) for one in (k, v))  # which torch 2.11 asks for
    forward = flop_registry[aten._scaled_dot_product_flash_attention](q, k, v)
    backward = flop_registry[aten._scaled_dot_product_flash_attention_backward](dout, q, k, v)
    assert flops.FORMULAS["flash_attention"](**ours) == forward
    assert flops.FORMULAS["flash_attention_backward"](**ours) == backward


def test_every_operator_has_a_formula() -> None:
    import kernels.public  # noqa: F401  (registers the operators)
    from kernels.runtime import flops

    names = re.compile(r"""(?:custom_op|operator)\(\s*"warpwatch::(\w+)""")
    sources = [file.read_text() for file in Path("kernels").rglob("*.py")]
    operators = {one for source in sources for one in names.findall(source)}
    assert operators - {"kvcache_append"} == set(flops.FORMULAS)
    assert all(getattr(torch.ops.warpwatch, one) in flop_registry for one in flops.FORMULAS)
