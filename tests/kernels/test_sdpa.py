"""Masks and shapes mean to ``scaled_dot_product_attention`` what they mean to torch's."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.interpreted import Errors, Worker, measure
from tests.kernels.scores_cases import Case


def run_sdpa(shape: tuple[int, ...], dtype: torch.dtype | str) -> list[Errors]:
    """With a mask of this dtype, or one of torch's own, which are told by their class."""
    import torch.nn.attention.bias  # and with it torch's compiler: whoever collects need not wait

    import kernels

    case = Case(B=2, S=33, KV=40, H=4, G=2)
    q, k, v = (one.transpose(1, 2) for one in case.tensors())
    if isinstance(dtype, str):
        mask = getattr(torch.nn.attention.bias, dtype)(*shape)
    else:
        mask = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        mask = mask > -0.5 if dtype == torch.bool else mask.to(dtype)
    added = dtype == torch.float16

    def torch_sdpa(kind: torch.dtype) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            *(one.to(kind) for one in (q, k, v)),
            attn_mask=mask.to(kind) if added else mask,
            enable_gqa=True,
        )

    got = kernels.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return [measure(got, torch_sdpa(q.dtype), torch_sdpa(torch.float64))]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((33, 40), torch.bool),
        ((2, 1, 1, 40), torch.bool),
        ((2, 4, 33, 40), torch.float16),
        ((33, 40), "causal_lower_right"),
        ((33, 40), "causal_upper_left"),
    ],
    ids=str,
)
def test_attn_mask_means_what_torch_means(
    interpreter: Worker, shape: tuple[int, ...], dtype: torch.dtype | str
) -> None:
    interpreter.check(run_sdpa, shape, dtype, names=("out",))


# Shapes of query, key, value and mask; heads may be grouped.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]
SHAPES: list[tuple[Shapes, bool]] = [
    (((3, 20, 16), (3, 24, 16), (3, 24, 8), (3, 20, 24)), False),
    (((20, 16), (24, 16), (24, 16), None), False),
    (((3, 20, 16), (24, 16), (24, 16), None), False),
    (((4, 20, 16), (2, 24, 16), (2, 24, 16), None), True),
    (((2, 3, 4, 20, 16), (2, 3, 2, 24, 16), (2, 3, 2, 24, 16), (3, 1, 20, 24)), True),
    (((2, 4, 20, 16), (1, 2, 24, 16), (1, 2, 24, 16), (2, 1, 1, 24)), True),
    (((2, 3, 4, 20, 16), (3, 4, 24, 16), (2, 1, 1, 24, 16), (1, 1, 4, 20, 1)), False),
    (((1, 1, 20, 16), (2, 4, 24, 16), (1, 4, 24, 16), (2, 4, 20, 24)), False),
    (((2, 4, 20, 16), (2, 1, 24, 16), (2, 1, 24, 16), None), False),
]


def run_sdpa_of(shapes: Shapes, grouped: bool) -> tuple[list[Errors], list[torch.Tensor]]:
    """The output and all gradients beside torch's; and of a compiled graph and of eager."""
    import torch._dynamo

    import kernels

    torch._dynamo.reset()
    given = [torch.randn(one) for one in shapes if one is not None]
    dout = None
    found: list[list[torch.Tensor]] = []
    ours, torchs = kernels.scaled_dot_product_attention, torch.nn.functional
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    theirs = torchs.scaled_dot_product_attention
    for call, kind in ((ours, None), (compiled, None), (theirs, None), (theirs, torch.float64)):
        leaves = [one.to(kind or one.dtype).requires_grad_() for one in given]
        out = call(*leaves[:3], *leaves[3:], enable_gqa=grouped)
        dout = torch.randn_like(out) if dout is None else dout
        assert out.shape == dout.shape
        found.append([out.detach(), *torch.autograd.grad(out, leaves, dout.to(out.dtype))])
    eager, graph, plain, exact = found
    errors = [measure(*three) for three in zip(eager, plain, exact, strict=True)]
    return errors, [a - b for a, b in zip(eager, graph, strict=True)]


@pytest.mark.parametrize(("shapes", "grouped"), SHAPES, ids=str)
def test_any_batch_axes_mean_what_torch_means(
    interpreter: Worker, shapes: Shapes, grouped: bool
) -> None:
    errors, differences = interpreter.run(run_sdpa_of, shapes, grouped)
    for name, one in zip(("out", "dquery", "dkey", "dvalue", "dmask"), errors, strict=False):
        one.check(name)
    assert all(not torch.any(one) for one in differences)
