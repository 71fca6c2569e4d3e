"""The product of weights and differences in Hopper's backward pass: its PTX, walked on the CPU."""

from __future__ import annotations

import re

import pytest
import torch

from kernels.attention.hopper import weight_pairs

WORD = torch.int32


def walk(ptx: str, inputs: list[torch.Tensor], f16: bool) -> torch.Tensor:
    """The four output registers, each a column of pairs; registers hold 32 bits."""
    kind = torch.float16 if f16 else torch.bfloat16
    held = {f"${i + 4}": one.contiguous().view(WORD) for i, one in enumerate(inputs)}
    for line in ptx.strip("{} ").split(";"):
        name, _, rest = line.strip().partition(" ")
        operands = re.findall(r"\{[^}]*\}|[^\s,]+", rest)
        if not name or name == ".reg":
            continue
        to, *given = operands
        given = [held.get(one, one) for one in given]
        match name:
            case "shl.b32":
                held[to] = given[0] << int(given[1])
            case "and.b32":
                held[to] = given[0] & (int(given[1], 16) - (1 << 32))
            case "mov.b32":
                both = given[0].view(kind).unflatten(0, (-1, 2))
                for i, one in enumerate(to.strip("{}").split(",")):
                    held[one.strip()] = both[:, i]
            case "cvt.f32.f16":
                held[to] = given[0].float().view(WORD)
            case "mul.rn.f32":
                held[to] = (given[0].view(torch.float32) * given[1].view(torch.float32)).view(WORD)
            case "cvt.rn.f16x2.f32" | "cvt.rn.bf16x2.f32":
                assert name == f"cvt.rn.{'f16' if f16 else 'bf16'}x2.f32"
                odd, even = (one.view(torch.float32).to(kind) for one in given)
                held[to] = torch.stack((even, odd), 1).flatten().view(WORD)
            case _:
                raise AssertionError(f"no such instruction is known here: {line}")
    return torch.stack([held[f"${i}"].view(kind).unflatten(0, (-1, 2)) for i in range(4)], 1)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_a_product_is_rounded_once_and_one_factor_in_four_before(kind: torch.dtype) -> None:
    torch.manual_seed(3)
    p, x = torch.rand(20_000, 8), torch.randn(20_000, 8)
    rounded = p.to(kind)
    f16 = kind == torch.float16
    pairs = [rounded[:, i : i + 2].contiguous().view(WORD)[:, 0] for i in range(0, 8, 2)]
    inputs = [*p.unbind(1), *pairs, *x.unbind(1)]
    found = walk(weight_pairs._products(f16), inputs, f16).flatten(1)
    factors = torch.cat((p[:, :6], rounded[:, 6:].float()), 1)
    assert torch.equal(found, (factors * x).to(kind))
    # The plain formula rounds x, which is dp there, and the product.
    true = p.double() * x.double()
    plain = (p * x.to(kind).float()).to(kind)
    error, plain_error = ((one.double() - true).norm() for one in (found, plain))
    assert error <= plain_error
