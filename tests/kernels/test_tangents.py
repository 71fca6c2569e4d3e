"""Forward-mode differentiation, which no kernel has: refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from tests.kernels.interpreted import Worker

E4M3 = torch.float8_e4m3fn
TANGENTS = (
    "q",
    "bias",
    "a",
    "b",
    "dout",
    "k",
    "rotary_cos",
    "q_scale",
    "k_scale",
    "a_scale",
    "out",
)


@pytest.mark.parametrize("name", TANGENTS)
def test_a_tangent_is_refused_by_name(name: str) -> None:
    import kernels

    q, bias, a = torch.randn(1, 4, 2, 16), torch.randn(4, 4), torch.randn(4, 4)
    ends, low, low_q = torch.tensor([0, 4], dtype=torch.int32), a.to(E4M3), q.to(E4M3)
    cos, lse = torch.randn(4, 8), torch.randn(1, 2, 4)
    decode = kernels.flash_attention_kvcache
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "q": lambda x: kernels.flash_attention(x, q, q),
        "bias": lambda x: kernels.flash_attention(q, q, q, bias=x),
        "a": lambda x: kernels.matmul(x, a),
        "b": lambda x: kernels.grouped_matmul(a, x[None], ends),
        "dout": lambda x: kernels.flash_attention_backward(x, q, q, q, q, lse),
        "k": lambda x: decode(q, q, q, x, q, cache_seqlens=0),
        "rotary_cos": lambda x: decode(
            q, q, q, q, q, cache_seqlens=0, rotary_cos=x, rotary_sin=cos
        ),
        "q_scale": lambda x: kernels.flash_attention(low_q, low_q, low_q, q_scale=x),
        "k_scale": lambda x: decode(q, low_q, low_q, k_scale=x),
        "a_scale": lambda x: kernels.matmul(low, low, a_scale=x),
        "out": lambda x: kernels.matmul(a, a, out=x),
    }
    primals = {"bias": bias, "rotary_cos": cos, **dict.fromkeys(("a", "b", "out"), a)}
    primals |= {"q": q, "dout": q, "k": q}
    with forward_ad.dual_level():
        primal = primals.get(name, torch.ones(()))
        given = forward_ad.make_dual(primal.clone(), torch.ones_like(primal))
        expected = rf"^{name}: expected no tangent.*autograd.grad$"
        with pytest.raises(NotImplementedError, match=expected):
            calls[name](given)


def forward_over_backward() -> str:
    import kernels

    q = torch.randn(1, 8, 1, 16)
    with pytest.raises(NotImplementedError) as error:
        torch.func.hessian(lambda x: kernels.flash_attention(x, x, x).sum())(q)
    return str(error.value)


def test_second_gradients_forward_over_backward_are_refused_by_name(interpreter: Worker) -> None:
    told = interpreter.run(forward_over_backward)
    assert re.fullmatch(r"flash_attention: expected no tangent.*autograd.grad", told)
