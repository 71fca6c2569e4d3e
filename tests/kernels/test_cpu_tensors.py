"""A tensor no kernel can reach is refused by name also where torch calls: operators and graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels.public

OPS = torch.ops.warpwatch
E4M3 = torch.float8_e4m3fn
A = torch.zeros(16, 16)
LOW = A.to(E4M3)
OUT = torch.zeros(16, 16, dtype=torch.bfloat16)
Q = torch.zeros(1, 32, 2, 16)
LSE = torch.zeros(1, 2, 32)
PACKED = torch.zeros(8, 2, 16)
ENDS = torch.tensor([0, 8], dtype=torch.int32)
MASKS = (False, 0, None, 0.25)
CACHE = (None, 32, None, None, None, None)

OPERATORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "flash_attention": ("q", lambda: OPS.flash_attention(Q, Q, Q, *MASKS)),
    "flash_attention_backward": (
        "q",
        lambda: OPS.flash_attention_backward(Q, None, Q, LSE, False, Q, Q, Q, *MASKS),
    ),
    "flash_attention_fp8": (
        "q",
        lambda: OPS.flash_attention_fp8(
            *[Q.to(E4M3)] * 3, *[None] * 3, *MASKS, None, torch.bfloat16
        ),
    ),
    "flash_attention_varlen": (
        "q",
        lambda: OPS.flash_attention_varlen(*[PACKED] * 3, ENDS, ENDS, 8, 8, *MASKS),
    ),
    "flash_attention_varlen_fp8": (
        "q",
        lambda: OPS.flash_attention_varlen_fp8(
            *[PACKED.to(E4M3)] * 3,
            ENDS,
            ENDS,
            8,
            8,
            *[None] * 3,
            *MASKS,
            *[None] * 3,
            torch.bfloat16,
        ),
    ),
    "flash_attention_varlen_backward": (
        "q",
        lambda: OPS.flash_attention_varlen_backward(
            PACKED, None, *[PACKED] * 4, LSE[0, :, :8], ENDS, ENDS, 8, 8, *MASKS
        ),
    ),
    "flash_attention_kvcache": (
        "q",
        lambda: OPS.flash_attention_kvcache(
            Q, Q, Q, *CACHE, 0, None, None, True, *MASKS, None, None, None, 1
        ),
    ),
    "kvcache_append": (
        "k",
        lambda: OPS.kvcache_append(Q[:, :1], Q[:, :1], Q, Q.clone(), *CACHE, None, None, True),
    ),
    "matmul": ("a", lambda: OPS.matmul(A, A, None, None, False, None)),
    "matmul_into": ("a", lambda: OPS.matmul_into(A, A, None, None, False, None, A.clone())),
    "matmul_fp8": (
        "a",
        lambda: OPS.matmul_fp8(LOW, LOW, None, None, None, None, None, torch.bfloat16),
    ),
    "matmul_fp8_into": (
        "a",
        lambda: OPS.matmul_fp8_into(LOW, LOW, None, None, None, None, None, OUT),
    ),
    "grouped_matmul": ("a", lambda: OPS.grouped_matmul(A, A[None], ENDS)),
    "grouped_matmul_weights": ("a", lambda: OPS.grouped_matmul_weights(A, A, ENDS)),
}


def refused(name: str) -> str:
    return rf"^{name}: expected a tensor on a GPU \(device cuda\), got device cpu; move it with"


@pytest.mark.parametrize(("name", "call"), OPERATORS.values(), ids=OPERATORS)
def test_operators_refuse_a_tensor_no_kernel_can_reach(name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=refused(name)):
        call()


def test_every_operator_is_asked() -> None:
    names = re.compile(r"""(?:custom_op|operator)\(\s*"warpwatch::(\w+)""")
    sources = [file.read_text() for file in Path("kernels").rglob("*.py")]
    assert {one for source in sources for one in names.findall(source)} == set(OPERATORS)


COMPILED: dict[str, tuple[str, Callable[[], Any]]] = {
    "flash_attention": ("q", lambda: kernels.flash_attention(Q, Q, Q)),
    "scaled_dot_product_attention": ("q", lambda: kernels.scaled_dot_product_attention(Q, Q, Q)),
    "flash_attention_varlen": (
        "q",
        lambda: kernels.flash_attention_varlen(*[PACKED] * 3, ENDS, ENDS, 8, 8),
    ),
    "flash_attention_kvcache": ("q", lambda: kernels.flash_attention_kvcache(Q, Q, Q)),
    "matmul": ("a", lambda: kernels.matmul(A, A)),
    "grouped_matmul": ("a", lambda: kernels.grouped_matmul(A, A[None], ENDS)),
}


@pytest.mark.parametrize(("name", "call"), COMPILED.values(), ids=COMPILED)
def test_a_graph_refuses_a_tensor_no_kernel_can_reach(name: str, call: Callable[[], Any]) -> None:
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match=refused(name)):
        compiled()
