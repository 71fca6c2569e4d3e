"""Every wrong argument of the matmuls is one error that names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels
from tests.kernels.mistakes import Mistake, told

HALF = torch.float16
Q = torch.empty(2, 8, 4, 64, dtype=HALF)
A = torch.empty(4, 6, dtype=HALF)
B = torch.empty(6, 8, dtype=HALF)
S, T = torch.empty(2, 6, 6, dtype=HALF).unbind()
W = torch.empty(8, 6, dtype=HALF)
WIDE = torch.empty(8, 10, dtype=HALF)
A8, B8 = A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn)
CU = torch.tensor([0, 8], dtype=torch.int32)


def grouped(a: Any = A, b: Any = B[None], offsets: Any = CU) -> Any:
    return kernels.grouped_matmul(a, b, offsets)


MISTAKES: dict[str, Mistake] = {
    "matmul-no-tensor": (lambda: kernels.matmul(A, None), TypeError, r"^b: .*NoneType"),
    "matmul-rank": (lambda: kernels.matmul(Q, B), ValueError, r"^a: expected 2 dim.*got 4"),
    "matmul-dtype": (lambda: kernels.matmul(A.int(), B), ValueError, r"^a: .*float16.*int32"),
    "matmul-mixed": (lambda: kernels.matmul(A, B.float()), ValueError, r"^b: .*float16.*float32"),
    "matmul-device": (
        lambda: kernels.matmul(A, B.to("meta")),
        ValueError,
        r"^b: expected device cpu as a has, got meta; move",
    ),
    "matmul-tf32": (
        lambda: kernels.matmul(A, B, allow_tf32="no"),
        TypeError,
        r"^allow_tf32: expected True or False, got 'no'",
    ),
    "matmul-bias-device": (
        lambda: kernels.matmul(A, B, bias=B[0].to("meta")),
        ValueError,
        r"^bias: expected device cpu as a has, got meta; move",
    ),
    "matmul-inner": (
        lambda: kernels.matmul(A, B.t()),
        ValueError,
        r"^b: expected 6 rows.*b\.t\(\)",
    ),
    "matmul-bias": (
        lambda: kernels.matmul(A, B, bias=A[0]),
        ValueError,
        r"^bias: expected 8 values.*got 6",
    ),
    "matmul-activation": (
        lambda: kernels.matmul(A, B, activation="tanh"),
        ValueError,
        r"^activation: .*relu, gelu, silu.*'tanh'",
    ),
    "matmul-out": (
        lambda: kernels.matmul(A, B, out=A),
        ValueError,
        r"^out: expected shape \(4, 8\), got \(4, 6\)",
    ),
    "matmul-out-shared": (
        lambda: kernels.matmul(A, B, out=A.new_empty(1, 8).expand(4, 8)),
        ValueError,
        r"^out: expected memory of its own.*shape \(4, 8\) with strides \(0, 1\); pass out.cont",
    ),
    "matmul-out-operand": (
        lambda: kernels.matmul(S, S.t(), out=S),
        ValueError,
        r"^out: expected memory of its own, got that of a, which is read",
    ),
    "matmul-out-parameter": (
        lambda: kernels.matmul(T, torch.nn.Parameter(S, requires_grad=False), out=S),
        ValueError,
        r"^out: expected memory of its own, got that of b, which is read",
    ),
    "matmul-out-residual": (
        lambda: kernels.matmul(S, S.clone(), residual=T.t(), out=T),
        ValueError,
        r"^out: expected memory of its own, got that of residual, which is read",
    ),
    "matmul-out-overlaps": (
        lambda: kernels.matmul(W[:6], S, out=W[2:]),
        ValueError,
        r"^out: expected memory of its own, got that of a, which is read",
    ),
    "matmul-out-overlaps-residual": (
        lambda: kernels.matmul(S, T, residual=W[2:].t(), out=W[:6].t()),
        ValueError,
        r"^out: expected memory of its own, got that of residual, which is read",
    ),
    "matmul-out-columns-of-operand": (
        lambda: kernels.matmul(WIDE[:, :4], S[:4, :4], out=WIDE[:, 3:7]),
        ValueError,
        r"^out: expected memory of its own, got that of a, which is read",
    ),
    "matmul-out-rows-of-operand": (
        lambda: kernels.matmul(WIDE.t()[:4, :5], S[:5, :5], out=WIDE.t()[3:7, 1:6]),
        ValueError,
        r"^out: expected memory of its own, got that of a, which is read",
    ),
    "matmul-out-overlaps-itself": (
        lambda: kernels.matmul(A, B, out=A.new_empty(40).as_strided((4, 8), (2, 1))),
        ValueError,
        r"^out: expected memory of its own.*shape \(4, 8\) with strides \(2, 1\); pass out.cont",
    ),
    "matmul-out-gradient": (
        lambda: kernels.matmul(A, B, out=A.new_empty(4, 8, requires_grad=True)),
        NotImplementedError,
        r"^out: expected None where a gradient is requested",
    ),
    "matmul-residual": (
        lambda: kernels.matmul(A, B, residual=B),
        ValueError,
        r"^residual: expected shape \(4, 8\), got \(6, 8\)",
    ),
    "matmul-residual-dtype": (
        lambda: kernels.matmul(A, B, residual=torch.empty(4, 8)),
        ValueError,
        r"^residual: expected dtype torch.float16 as a has, got torch.float32; convert",
    ),
    "fp8-mixed": (lambda: kernels.matmul(A8, B), ValueError, r"^b: expected dtype .*e4m3fn.*as a"),
    "fp8-flavour": (lambda: kernels.matmul(A.to(torch.float8_e5m2), B), ValueError, r"^a: .*e5m2"),
    "fp8-scale-number": (
        lambda: kernels.matmul(A8, B8, a_scale=0.5),
        TypeError,
        r"^a_scale: expected a torch.Tensor of fp32 scales, got float; wrap",
    ),
    "fp8-scale-dtype": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones(8, dtype=HALF)),
        ValueError,
        r"^b_scale: expected dtype float32, got float16; convert",
    ),
    "fp8-scale-of-a": (
        lambda: kernels.matmul(A8, B8, a_scale=torch.ones(6)),
        ValueError,
        r"^a_scale: expected shape \(\).*\(4,\) for rows or \(4, 1\) for blocks.*; got \(6,\)",
    ),
    "fp8-scale-of-b": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones(8, 1)),
        ValueError,
        r"^b_scale: expected shape \(\).*\(8,\) for columns or \(1, 1\).*; got \(8, 1\)",
    ),
    "fp8-out-dtype": (
        lambda: kernels.matmul(A8, B8, out_dtype=torch.float8_e4m3fn),
        ValueError,
        r"^out_dtype: expected torch.bfloat16.*got torch.float8_e4m3fn",
    ),
    "fp8-bias": (
        lambda: kernels.matmul(A8, B8, bias=torch.zeros(8, dtype=HALF)),
        ValueError,
        r"^bias: expected the output's dtype torch.bfloat16, got torch.float16; convert",
    ),
    "fp8-gradient": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones((), requires_grad=True)),
        NotImplementedError,
        r"^b_scale: expected no gradient.*b_scale\.detach\(\).*torch\.no_grad",
    ),
    "fp8-e5m2": (
        lambda: kernels.matmul(A.to(torch.float8_e5m2), B.to(torch.float8_e5m2)),
        ValueError,
        r"^a: expected dtype float16, .*float8_e4m3fn, .*got float8_e5m2; multiply it by its scale",
    ),
    "fp8-gradient-of-a-bias": (
        lambda: kernels.matmul(A8, B8, bias=B[0].bfloat16().requires_grad_()),
        NotImplementedError,
        r"^bias: expected no gradient.*bias\.detach\(\)",
    ),
    "fp8-gradient-of-a-residual": (
        lambda: kernels.matmul(A8, B8, residual=B[:4].bfloat16().requires_grad_()),
        NotImplementedError,
        r"^residual: expected no gradient.*residual\.detach\(\)",
    ),
    "fp8-scales-of-halves": (
        lambda: kernels.matmul(A, B, a_scale=torch.ones(())),
        ValueError,
        r"^a_scale: expected None where a is no fp8 tensor, got a of torch.float16; convert",
    ),
    "fp8-out-dtype-of-halves": (
        lambda: kernels.matmul(A, B, out_dtype=torch.float32),
        ValueError,
        r"^out_dtype: expected None where a is no fp8 tensor.*drop out_dtype",
    ),
    "grouped-rank": (lambda: grouped(b=B), ValueError, r"^b: expected 3 dim.*groups.*got 2"),
    "grouped-inner": (
        lambda: grouped(b=B[None].transpose(1, 2)),
        ValueError,
        r"^b: expected 6 rows a group.*transpose\(1, 2\)",
    ),
    "grouped-offsets": (
        lambda: grouped(offsets=CU.long()),
        ValueError,
        r"^group_offsets: expected dtype int32, got int64; convert",
    ),
    "grouped-groups": (
        lambda: grouped(offsets=CU[:1]),
        ValueError,
        r"^group_offsets: expected 2 entries, one more than b has groups, got 1; start",
    ),
    "grouped-device": (
        lambda: grouped(offsets=CU.to("meta")),
        ValueError,
        r"^group_offsets: expected device cpu as a has, got meta; move",
    ),
    "matmul-gradient": (
        lambda: kernels.matmul(A.clone().requires_grad_(), B, out=torch.empty(4, 8, dtype=HALF)),
        NotImplementedError,
        r"^out: expected None where a gradient.*torch\.no_grad",
    ),
    "matmul-cpu": (lambda: kernels.matmul(A, B), ValueError, r"^a: expected a tensor on a GPU"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_names_argument_expectation_and_remedy(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(mistake, monkeypatch)
