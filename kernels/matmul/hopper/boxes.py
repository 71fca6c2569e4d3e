"""What Hopper's copy engine takes boxes of a matmul's operands by."""

from __future__ import annotations

import math

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.device import hopper_rings as ring

LINE = 128  # bytes that L2 is asked for at once


def copyable(x: torch.Tensor) -> bool:
    """TMA wants neighbours in a row and whole 16 bytes from row to row."""
    return (
        x.stride(1) == 1
        and x.data_ptr() % 16 == 0
        and x.stride(0) >= x.shape[1]
        and x.stride(0) * x.element_size() % 16 == 0
    )


def begins_with_lines(x: torch.Tensor) -> bool:
    """Whether every row does; memory that torch allocates on a GPU begins with one."""
    return (x.stride(0) | int(x.storage_offset())) * x.element_size() % LINE == 0


def classes_of(x: torch.Tensor) -> int:
    """At how many places of a line the rows of x begin."""
    return LINE // math.gcd(x.stride(0) * x.element_size(), LINE)


def phase_and_pitch(x: torch.Tensor) -> tuple[int, int]:
    """How many values behind the start of a line the first row of x begins, and how many further
    each next one: kernels multiply that by 32 bits, so it is without whole lines."""
    of_line = LINE // x.element_size()
    return x.data_ptr() % LINE // x.element_size(), x.stride(0) % of_line


def descriptor(x: torch.Tensor, rows: int, columns: int, classes: int = 0) -> TensorDescriptor:
    """What the copy engine takes boxes of rows and columns of x by, or of one matrix of many, or of
    every so-many-th row where there are ``classes``."""
    if not classes:
        return ring.boxes(x, (*[1] * (x.dim() - 2), rows, columns))
    shape, pitch = (x.shape[0] // classes, classes, x.shape[1]), x.stride(0)
    return ring.boxes(x, (rows, 1, columns), shape, (classes * pitch, pitch, 1))


def along_either(x: torch.Tensor, rows: int, columns: int, classes: int = 0) -> TensorDescriptor:
    """Of x, or of its transpose where it is that which the copy engine takes."""
    if copyable(x):
        return descriptor(x, rows, columns, classes)
    return descriptor(x.t(), columns, rows)
