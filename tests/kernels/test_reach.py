"""Views whose rows lie so far apart that a tile of them spans more than 32 bits count."""

from __future__ import annotations

import mmap

import pytest
import torch

import kernels
from kernels.attention.reach import near_bias
from tests.kernels.interpreted import Worker

NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python names from 3.13 on
ROWS, APART = 60, 40_000_000
FURTHER = 150_000_000  # beyond reach of the 16 rows of a matmul's tile


def far(tensor: torch.Tensor, axis: int = 1, apart: int = APART) -> torch.Tensor:
    """The same values, one entry along the axes before ``axis``, those along it ``apart``; memory
    not touched is not there."""
    size = ((tensor.shape[axis] - 1) * apart + tensor.stride(axis)) * tensor.element_size()
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    strides = (*(0,) * axis, apart, *tensor.stride()[axis + 1 :])
    return (
        torch.frombuffer(room, dtype=tensor.dtype).as_strided(tensor.shape, strides).copy_(tensor)
    )


def run(kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Results of far views beside those of near ones."""
    q, k, v, dout = (torch.randn(1, ROWS, 2, 16, dtype=torch.float16) for _ in range(4))
    found = []
    for place in (far, torch.clone):
        a, b, c, d = (place(one) for one in (q, k, v, dout))
        if kind == "packed":
            ends = torch.tensor([0, 20, ROWS], dtype=torch.int32)
            given = (a[0], b[0], c[0], ends, ends, 40, 40)
            found.append([kernels.flash_attention_varlen(*given)])
        elif kind == "fp8":
            low = [place(one.to(torch.float8_e4m3fn)) for one in (q, k, v)]
            found.append([kernels.flash_attention(*low)])
        elif kind == "bias":
            bias = torch.arange(ROWS * ROWS).view(1, 1, ROWS, ROWS).half() % 7
            bias = bias if place is torch.clone else far(bias, 2, FURTHER)
            found.append([kernels.flash_attention(q, k, v, bias=bias)])
        else:
            out, lse = kernels.flash_attention(a, b, c, softcap=9.0, return_lse=True)
            gradients = kernels.flash_attention_backward(d, a, b, c, place(out), lse)
            found.append([out, lse, *gradients])
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("kind", ["both passes", "packed", "fp8", "bias"])
def test_rows_may_lie_any_distance_apart(interpreter: Worker, kind: str) -> None:
    for got, wanted in interpreter.run(run, kind):
        assert torch.equal(got, wanted) and not got.isnan().any()


def test_a_bias_that_no_copy_brings_near_is_refused() -> None:
    scores = (1, 1, 64, 36_000_000)
    for size in (scores, (1, 1, 1, 1)):
        bias = torch.empty(size, device="meta")
        if size == scores:
            with pytest.raises(NotImplementedError, match="pass at most 60 queries at a time"):
                near_bias(bias, scores)
        else:
            assert near_bias(bias, scores) is bias
