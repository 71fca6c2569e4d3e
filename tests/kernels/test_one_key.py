"""Rows of which one key has all the weight, in fp32: their output is its value, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.kernels.interpreted import Worker
from tests.kernels.test_exact_gradients import Case

# By a head dim whose root is no power of two a score is rounded where it is scaled. The nearest of
# the other keys is e^20 away.
PLAIN = Case(S=90, KV=90, D=192, H=2, G=1, steep=3.0, dtype="float32")


def _attention(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import kernels

    return kernels.flash_attention(q, k, v, **case.scalars, **case.extras())


def _packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import kernels

    ends = torch.tensor([0, q.shape[1]], dtype=torch.int32, device=q.device)
    flat = (one[0] for one in (q, k, v))
    return kernels.flash_attention_varlen(*flat, ends, ends, q.shape[1], q.shape[1])[None]


def _cached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    import kernels

    return kernels.flash_attention_kvcache(q, k, v, cache_seqlens=k.shape[1], num_splits=splits)


CASES: dict[str, tuple[Case, Callable[..., torch.Tensor]]] = {
    "full": (PLAIN, partial(_attention, PLAIN)),
    "causal D128": (case := replace(PLAIN, D=128, causal=True), partial(_attention, case)),
    "window D72": (case := replace(PLAIN, D=72, window=(30, 20)), partial(_attention, case)),
    "softcap": (case := replace(PLAIN, softcap=70.0), partial(_attention, case)),
    "alibi": (case := replace(PLAIN, alibi="heads"), partial(_attention, case)),
    "bias": (case := replace(PLAIN, bias=(1, 2, 90, 90)), partial(_attention, case)),
    "below 0": (case := replace(PLAIN, scale=-(192**-0.5)), partial(_attention, case)),
    "packed": (PLAIN, _packed),
    "cached": (PLAIN, partial(_cached, splits=1)),
    "cached in parts": (replace(PLAIN, KV=900, S=5), partial(_cached, splits=4)),
}


def run(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the values of the keys whose rows these are."""
    case, attention = CASES[name]
    q, k, v = case.tensors()
    if case.scale is not None:
        q = -q
    out = attention(q, k, v)
    return out, v[:, case.KV - case.S :].repeat_interleave(case.H // case.G, 2)


@pytest.mark.parametrize("name", CASES)
def test_it_is_its_value(interpreter: Worker, name: str) -> None:
    out, value = interpreter.run(run, name)
    assert torch.equal(out, value)
