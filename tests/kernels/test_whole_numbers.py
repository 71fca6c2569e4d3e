"""Lengths, windows, blocks and seeds may be whatever Python takes for an index, as numpy's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import kernels
from tests.kernels.interpreted import Worker
from tests.kernels.mistakes import told


def calls(like: Callable[[int], Any]) -> dict[str, Callable[[], Any]]:
    """Of every argument that is a whole number, given as ``like`` makes it of an int."""
    q = torch.randn(1, 256, 1, 16)
    cu = torch.tensor([0, 100, 256], dtype=torch.int32)
    mask = torch.tensor([[[[True, False], [True, True]]]])
    window, sizes, seed = (like(20), like(0)), [like(128), like(128)], like(2**40 + 3)
    return {
        "window_size": lambda: kernels.flash_attention(q, q, q, window_size=window),
        "block_size": lambda: kernels.flash_attention(q, q, q, block_mask=mask, block_size=sizes),
        "dropout_seed": lambda: kernels.flash_attention(q, q, q, dropout_p=0.5, dropout_seed=seed),
        "max_seqlen": lambda: kernels.flash_attention_varlen(
            q[0], q[0], q[0], cu, cu, like(156), like(156)
        ),
        "cache_seqlens": lambda: kernels.flash_attention_kvcache(
            q[:, :1], q, q.clone(), q[:, :3], q[:, :3], cache_seqlens=like(5)
        ),
        "num_splits": lambda: kernels.flash_attention_kvcache(q[:, :1], q, q, num_splits=like(3)),
    }


def run() -> dict[str, tuple[torch.Tensor, list[torch.Tensor]]]:
    """What each call gives of an int, and of what stands for it."""
    found = {}
    kinds: tuple[Callable[[int], Any], ...] = (int, np.int64, np.uint64, np.array)
    for name in calls(int):
        results = []
        for kind in kinds:
            torch.manual_seed(0)
            results.append(calls(kind)[name]())
        found[name] = results[0], results[1:]
    return found


def test_what_stands_for_an_int_is_taken_for_it(interpreter: Worker) -> None:
    for name, (expected, others) in interpreter.run(run).items():
        assert all(torch.equal(one, expected) for one in others), name


def run_compiled() -> list[tuple[torch.Tensor, torch.Tensor]]:
    q = torch.randn(2, 8, 2, 16)

    def attend(q: torch.Tensor, length: Any) -> Any:
        return kernels.flash_attention_kvcache(q[:, :1], q, q, cache_seqlens=length)

    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    return [(compiled(q, np.int64(n)), attend(q, n)) for n in (5, 6)]


def test_within_a_graph_too(interpreter: Worker) -> None:
    for got, expected in interpreter.run(run_compiled):
        torch.testing.assert_close(got, expected)


KINDS = (np.bool_, np.float32, bool, float, str, torch.tensor)
REFUSED = [
    (name, like)
    for name in ("window_size", "block_size", "max_seqlen", "num_splits")
    for like in KINDS
]
MAY_BE_TENSORS = [(name, like) for name in ("dropout_seed", "cache_seqlens") for like in KINDS[:-1]]


@pytest.mark.parametrize(("name", "like"), REFUSED + MAY_BE_TENSORS)
def test_a_truth_value_a_fraction_or_a_tensor_is_refused(
    name: str, like: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = TypeError if (name, like) in MAY_BE_TENSORS else ValueError
    told((calls(like)[name], error, f"^{name}.*: expected "), monkeypatch)
