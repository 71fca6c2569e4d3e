"""Rows all of whose keys a finite mask hides, as padded queries' are: scores far from 0."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.kernels.interpreted import Errors, Worker, measure

LEAST = torch.finfo(torch.float32).min
NAMES = ("out", "lse", "dq", "dk", "dv", "dbias")
# The least of bf16 is one of fp32, too.
VALUES = [-3e3, -1e4, -1e6, -1e9, -1e10, -1e30, torch.finfo(torch.bfloat16).min, LEAST, 1e9]
HEADS, KV_HEADS, ROWS, HEAD_DIM = 4, 2, 80, 16


def run(
    value: float,
    dtype: str,
    bias_dtype: str,
    keys: int,
    rows: int = ROWS,
    head_dim: int = HEAD_DIM,
    beside: str = "",
    asked: dict[str, Any] | None = None,
) -> list[Errors]:
    """Of NAMES, where ``value`` hides all ``keys`` of some queries and the last of the others;
    ``beside`` one of what else may be asked that hides and adds nothing, and what is ``asked``."""
    import kernels

    blocks = torch.ones(1, 1, -(-rows // 128), -(-keys // 128), dtype=torch.bool)
    others: dict[str, dict[str, Any]] = {
        "": {},
        "window": {"window_size": (rows + keys, keys)},
        "block_mask": {"block_mask": blocks},
        "sinks": {"sinks": torch.full((HEADS,), -math.inf)},
    }

    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(2)

    def drawn(rows: int, heads: int) -> torch.Tensor:
        return torch.randn(1, rows, heads, head_dim, generator=generator).to(kind)

    q, k, v = drawn(rows, HEADS), drawn(keys, KV_HEADS), drawn(keys, KV_HEADS)
    dout, dlse = drawn(rows, HEADS), torch.randn(1, HEADS, rows, generator=generator)
    bias = torch.randn(1, HEADS, rows, keys, generator=generator)
    bias[:, :, :7] = value
    bias[:, 1, 40:] = value
    bias[..., keys - keys // 7 :] = value
    bias = bias.to(getattr(torch, bias_dtype))

    def formula(q: Any, k: Any, v: Any, bias: Any) -> tuple[torch.Tensor, torch.Tensor]:
        wide = torch.promote_types(q.dtype, torch.float32)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, 2).transpose(1, 2) for one in (k, v))
        scores = (q.transpose(1, 2) @ k.mT).to(wide) / math.sqrt(head_dim) + bias.to(wide)
        # torch's own has gradients by its result, in which such scores leave no place for the sum.
        most = scores.detach().amax(3, keepdim=True)
        lse = most[..., 0] + (scores - most).exp().sum(3).log()
        return (torch.softmax(scores, 3).to(q.dtype) @ v).transpose(1, 2), lse

    def of(attention: Any, to: torch.dtype | None = None) -> list[torch.Tensor]:
        leaves = [one.to(to or one.dtype).detach().requires_grad_() for one in (q, k, v, bias)]
        out, lse = attention(*leaves)
        grads = torch.autograd.grad((out, lse), leaves, (dout.to(out.dtype), dlse.to(lse.dtype)))
        return [out.detach(), lse.detach(), *grads]

    def ours(q: Any, k: Any, v: Any, bias: Any) -> Any:
        given = others[beside] | (asked or {})
        return kernels.flash_attention(q, k, v, bias=bias, return_lse=True, **given)

    errors = zip(of(ours), of(formula), of(formula, torch.float64), strict=True)
    return [measure(*three) for three in errors]


# Exponents of 2 were subtracted that such a maximum rounds by more than an exponent of 16 bits
# holds, and all gradients were NaN; times log2(e) what masks are often made of, the least of a
# dtype, was -inf, and its row one without a key.
# Neither the two lengths nor the three dtypes go into five: all are met.
@pytest.mark.sampled(of=5)
@pytest.mark.parametrize("keys", [70, 20])
@pytest.mark.parametrize(
    ("dtype", "bias_dtype"),
    [("float16", "float32"), ("bfloat16", "bfloat16"), ("float32", "float32")],
    ids=lambda one: one,
)
@pytest.mark.parametrize("value", VALUES, ids="{:.3g}".format)
def test_finite_masks_hide_as_the_formulas_do(
    interpreter: Worker, value: float, dtype: str, bias_dtype: str, keys: int
) -> None:
    if bias_dtype == "bfloat16" and value == LEAST:
        value = torch.finfo(torch.bfloat16).min
    interpreter.check(run, value, dtype, bias_dtype, keys, names=NAMES)


@pytest.mark.parametrize("beside", ["window", "block_mask", "sinks"])
def test_so_they_do_beside_what_has_loops_of_its_own(interpreter: Worker, beside: str) -> None:
    given = (-1e9, "bfloat16", "float32", 70, ROWS, HEAD_DIM, beside)
    interpreter.check(run, *given, names=NAMES)
