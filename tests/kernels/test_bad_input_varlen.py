"""What flash_attention_varlen refuses: what was expected, what came, the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels
from tests.kernels.mistakes import Mistake, told

HALF = torch.float16
Q = torch.empty(8, 4, 64, dtype=HALF)
K = torch.empty(8, 2, 64, dtype=HALF)
SINKS = torch.empty(4)
CU = torch.tensor([0, 8], dtype=torch.int32)


def varlen(q: Any = Q, k: Any = K, v: Any = K, cu_k: Any = CU, longest: Any = 8) -> Any:
    return kernels.flash_attention_varlen(q, k, v, CU, cu_k, longest, 8)


MISTAKES: dict[str, Mistake] = {
    "causal": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, causal=torch.tensor(True)),
        TypeError,
        r"^causal: expected True or False, got a tensor",
    ),
    "exact-gradients": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, exact_gradients="no"),
        TypeError,
        r"^exact_gradients: expected True or False, got 'no'",
    ),
    "longest-bool": (
        lambda: varlen(longest=True),
        ValueError,
        r"^max_seqlen_q: expected the longest.*int, got True",
    ),
    "sinks": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, sinks=[1.0]),
        TypeError,
        r"^sinks: expected a torch.Tensor of shape \(4,\), got list",
    ),
    "device": (
        lambda: varlen(cu_k=CU.to("meta")),
        ValueError,
        r"^cu_seqlens_k: expected device cpu as q has, got meta; move",
    ),
    "fp8-sinks": (
        lambda: kernels.flash_attention_varlen(
            *[Q.to(torch.float8_e4m3fn)] * 3, CU, CU, 8, 8, sinks=SINKS
        ),
        NotImplementedError,
        r"^q: expected float16.*got torch.float8_e4m3fn; convert",
    ),
    "rank": (lambda: varlen(q=Q[None]), ValueError, r"^q: expected 3 dim.*tokens.*got 4"),
    "lengths": (
        lambda: varlen(cu_k=CU.long()),
        ValueError,
        r"^cu_seqlens_k: expected dtype int32, got int64; convert",
    ),
    "used-no-tensor": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, seqused_q=[1, 2]),
        TypeError,
        r"^seqused_q: expected a torch.Tensor.*list",
    ),
    "used-dtype": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, seqused_k=CU[1:].long()),
        ValueError,
        r"^seqused_k: expected dtype int32, got int64",
    ),
    "used-batch": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, seqused_k=CU),
        ValueError,
        r"^seqused_k: expected 1 contiguous entries, one a sequence of cu_seqlens_q, got 2 with",
    ),
    "used-device": (
        lambda: kernels.flash_attention_varlen(Q, K, K, CU, CU, 8, 8, seqused_q=CU[1:].to("meta")),
        ValueError,
        r"^seqused_q: .*meta",
    ),
    "batch": (
        lambda: varlen(cu_k=CU[:1]),
        ValueError,
        r"^cu_seqlens_k: expected 2 entries as cu_seqlens_q has, got 1",
    ),
    "longest": (
        lambda: varlen(longest=torch.tensor(8)),
        ValueError,
        r"^max_seqlen_q: expected the longest.*int, got tensor\(8\).*item",
    ),
    "heads": (
        lambda: varlen(k=Q[:, :3], v=Q[:, :3]),
        ValueError,
        r"^k: .*divides the 4 of q, got 3; layout is \(tokens",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_names_argument_expectation_and_remedy(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(mistake, monkeypatch)
