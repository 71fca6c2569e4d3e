"""Views that torch reads in ways of its own, and what torch is told of memory that is written."""

from __future__ import annotations

import torch

from tests.kernels.interpreted import Worker


def run_biases_of_one_value() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    a, b, column = torch.randn(5, 7), torch.randn(7, 1), torch.randn(6, 3)[::2, 0]
    pairs = [(kernels.matmul(a, b, bias=column[:1]), a @ b + column[:1])]
    return [*pairs, (kernels.matmul(a, b[:, :0], bias=column[:0]), torch.empty(5, 0))]


def test_a_bias_of_one_value_or_none_has_any_stride(interpreter: Worker) -> None:
    """It is contiguous, and .contiguous() leaves its stride as it is."""
    for got, expected in interpreter.run(run_biases_of_one_value):
        torch.testing.assert_close(got, expected)
