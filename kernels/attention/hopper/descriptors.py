"""Descriptors of the copy engine over the tensors of Hopper's attention."""

from __future__ import annotations

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.attention.common.packed.sequences import Packed
from kernels.device import hopper_rings as ring

from .problem import BEYOND


def columns(head_dim: int, causal: bool) -> tuple[int, int, bool]:
    """HEAD_DIM, REST and SPLIT of hopper/products.py."""
    block = max(16, triton.next_power_of_2(head_dim))
    half = block // 2
    rest = max(16, triton.next_power_of_2(head_dim - half)) if head_dim > half else 0
    if rest >= half:
        return block, 0, False
    # Full attention at head dims 81 to 96 is 2 % faster with values of all columns.
    return block, rest, rest > 0 and (causal or (block, rest) != (128, 32))


def copyable(x: torch.Tensor) -> bool:
    """TMA wants whole 16 bytes between neighbours along every axis but the last."""
    return (
        x.stride(3) == 1
        and x.data_ptr() % 16 == 0
        and x.numel() > 0
        and all(
            stride > 0 and stride * x.element_size() % 16 == 0
            for stride, size in zip(x.stride()[:3], x.shape[:3], strict=True)
            if size > 1
        )
    )


def descriptor(x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """(batch, seqlen, heads, head_dim) in boxes of ``rows`` positions of one head.

    Columns past head_dim are read as zeros and never written.
    """
    batch, seqlen, heads, head_dim = x.shape
    by_batch, by_row, by_head = _strides(x)
    shape, strides = (batch, heads, seqlen, head_dim), (by_batch, by_head, by_row, 1)
    return ring.boxes(x, (1, 1, rows, columns), shape, strides)


def _strides(x: torch.Tensor) -> list[int]:
    """Of all axes but the last. One of length 1 may have any stride; the copy engine still wants a
    multiple of 16 bytes."""
    pairs = zip(x.stride()[:-1], x.shape[:-1], strict=True)
    return [stride if size > 1 else 16 // x.element_size() for stride, size in pairs]


def ragged_descriptor(x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """(tokens, heads, head_dim) in boxes of ``rows`` positions of one head and one sequence.

    Rows are counted so that those of every sequence end at ``BEYOND``, the axis' end. A second axis
    moves this to the row behind the sequence's last; the first takes away the bytes up to
    ``BEYOND``, modulo 2^64. What lies beyond is read as zeros and never written.
    """
    _, heads, head_dim = x.shape
    by_row, by_head = _strides(x)
    beyond, most = BEYOND.value, 0x7FFF0000
    shape = (most, most, heads, beyond, head_dim)
    strides = (2**34 - by_row, by_row, by_head, by_row, 1)
    return ring.boxes(x, (1, 1, 1, rows, columns), shape, strides)


def described(packed: Packed | None, x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Of (batch, seqlen, heads, head_dim); of packed sequences the rows that all entries share, or
    (tokens, heads, head_dim)."""
    if packed is None:
        return descriptor(x, rows, columns)
    return ragged_descriptor(x if x.dim() == 3 else x[0], rows, columns)


def numbers(x: torch.Tensor, block: int) -> TensorDescriptor:
    """A contiguous tensor of fp32 in boxes of ``block`` numbers."""
    return TensorDescriptor(x, [x.numel()], [1], [block], gl.NVMMASharedLayout(0, 32, 1))
