"""Tensors on the meta device give results there, as those of torch's operators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernels


def empty(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


FP8 = torch.float8_e4m3fn
Q, K = empty(2, 8, 4, 64), empty(2, 1024, 2, 64)
A, B = empty(16, 24), empty(24, 32)
CU = empty(3, dtype=torch.int32)
LSE = empty(2, 4, 8, dtype=torch.float32)

CALLS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "attention": (lambda: kernels.flash_attention(Q, K, K), (2, 8, 4, 64)),
    "attention-options": (
        lambda: kernels.flash_attention(Q, K, K, dropout_p=0.1, bias=empty(8, 1024)),
        (2, 8, 4, 64),
    ),
    "attention-chunks": (
        lambda: kernels.flash_attention(Q, K[:, :9], K[:, :9], attention_chunk=3),
        (2, 8, 4, 64),
    ),
    "attention-fp8": (lambda: kernels.flash_attention(*[Q.to(FP8)] * 3), (2, 8, 4, 64)),
    "attention-backward": (
        lambda: kernels.flash_attention_backward(Q, Q, K, K, Q, LSE)[1],
        (2, 1024, 2, 64),
    ),
    "attention-varlen": (
        lambda: kernels.flash_attention_varlen(Q[0], K[0], K[0], CU, CU, 8, 1024),
        (8, 4, 64),
    ),
    "attention-varlen-fp8": (
        lambda: kernels.flash_attention_varlen(
            *[Q[0].to(FP8)] * 3, CU, CU, 8, 8, k_scale=empty(2, 4, dtype=torch.float32)
        ),
        (8, 4, 64),
    ),
    "attention-varlen-used": (
        lambda: kernels.flash_attention_varlen(
            Q[0], K[0], K[0], CU, CU, 8, 1024, seqused_q=CU[1:], seqused_k=CU[1:]
        ),
        (8, 4, 64),
    ),
    "attention-kvcache": (
        lambda: kernels.flash_attention_kvcache(
            Q, K, K, K[:, :8], K[:, :8], cache_seqlens=3, cache_leftpad=CU[:2], attention_chunk=9
        ),
        (2, 8, 4, 64),
    ),
    "attention-kvcache-packed": (
        lambda: kernels.flash_attention_kvcache(
            *(Q[0], K, K, K[0], K[0]),
            cache_seqlens=CU[:2],
            cu_seqlens_q=CU,
            cu_seqlens_k_new=CU,
            max_seqlen_q=8,
        ),
        (8, 4, 64),
    ),
    "sdpa": (lambda: kernels.scaled_dot_product_attention(Q, Q, Q), (2, 8, 4, 64)),
    "matmul": (lambda: kernels.matmul(A, B, activation="relu"), (16, 32)),
    "matmul-out": (lambda: kernels.matmul(A, B, out=empty(16, 32)), (16, 32)),
    "matmul-fp8": (lambda: kernels.matmul(A.to(FP8), B.to(FP8)), (16, 32)),
    "matmul-fp8-out": (
        lambda: kernels.matmul(A.to(FP8), B.to(FP8), out=empty(16, 32, dtype=torch.bfloat16)),
        (16, 32),
    ),
    "grouped": (lambda: kernels.grouped_matmul(A, B.expand(2, -1, -1), CU), (16, 32)),
}


@pytest.mark.parametrize(("call", "shape"), CALLS.values(), ids=CALLS)
def test_results_are_on_the_meta_device(call: Callable[[], Any], shape: tuple[int, ...]) -> None:
    found = call()
    assert found.is_meta and tuple(found.shape) == shape


def test_so_are_gradients() -> None:
    leaves = [Q.clone().requires_grad_(), A.clone().requires_grad_()]
    total = kernels.flash_attention(leaves[0], K, K).sum() + kernels.matmul(leaves[1], B).sum()
    for leaf, found in zip(leaves, torch.autograd.grad(total, leaves), strict=True):
        assert found.is_meta and found.shape == leaf.shape
