"""The graphs by which cuDNN's own frontend is called, as it reads them without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from benchmarks.peers.cudnn import Mask, backward_graph, forward_graph

SIDES = SimpleNamespace(diagonal_alignment=SimpleNamespace(TOP_LEFT="top", BOTTOM_RIGHT="bottom"))


def test_a_mask_counts_from_the_last_query_and_a_window_has_its_own_key() -> None:
    assert Mask(causal=False, window=0, square=True).options(SIDES) == {}
    square = {"diagonal_alignment": "top", "diagonal_band_right_bound": 0}
    assert Mask(causal=True, window=0, square=True).options(SIDES) == square
    longer = Mask(causal=True, window=64, square=False).options(SIDES)
    assert longer == square | {"diagonal_alignment": "bottom", "diagonal_band_left_bound": 65}


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize(
    "mask", [Mask(False, 0, False), Mask(True, 0, False), Mask(True, 8, False)]
)
def test_the_frontend_takes_the_graphs(head_dim: int, mask: Mask) -> None:
    cudnn = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")

    def rows(heads: int, count: int) -> torch.Tensor:
        made = torch.zeros(2, count, heads, head_dim, dtype=torch.bfloat16)
        return made.transpose(1, 2)

    memory = {"q": rows(4, 64), "k": rows(2, 128), "v": rows(2, 128), "out": rows(4, 64)}
    memory["lse"] = torch.zeros(2, 4, 64, 1)
    more = {"dout": rows(4, 64), "dq": rows(4, 64), "dk": rows(2, 128), "dv": rows(2, 128)}
    for describe, given in ((forward_graph, memory), (backward_graph, memory | more)):
        graph, tensors = describe(cudnn, given, mask, head_dim**-0.5)
        graph.validate()
        assert set(tensors) == set(given)
