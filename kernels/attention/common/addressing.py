"""Which views tiles of rows can be read from with offsets of 32 bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton

from kernels.runtime.addressing import LIMIT, SMALL, wide

# No tile of the portable kernels has more rows, nor does a loop advance by more.
MOST_ROWS = 128


class Strides(NamedTuple):
    """Of (batch, rows, heads, dim), as ``stride()`` has them; one argument of a kernel."""

    batch: Any = None
    row: Any = None
    head: Any = None
    column: Any = None


class HeadStrides(NamedTuple):
    """Of what is one of each head: a number, a list (row), or a matrix (row, column)."""

    batch: Any
    head: Any
    row: Any = None
    column: Any = None


class Layout(NamedTuple):
    """The ``Strides`` of every tensor that a kernel takes, as one argument of it.

    Triton 3.6 forgets constants of a tuple within a tuple, such as a stride of 1, where a kernel
    hands the outer one on, unless a constant of the outer one comes after them: ``end`` is that.
    """

    q: Any = None
    qv: Any = None
    k: Any = None
    v: Any = None
    dout: Any = None
    out: Any = None
    end: Any = None

    @classmethod
    def of(cls, **tensors: torch.Tensor | None) -> Layout:
        """Those of ``tensors``, by name; of three axes without a batch."""
        found = {}
        for name, one in tensors.items():
            if one is not None:
                found[name] = Strides(*(None,) * (4 - one.dim()), *one.stride())
        return cls(**found)


@triton.jit
def wide_columns(strides):
    """With a stride of columns whose products with offsets have 64 bits."""
    return Strides(strides.batch, strides.row, strides.head, wide(strides.column))


@triton.jit
def wide_rows(strides):
    """The same, and of rows."""
    return Strides(strides.batch, wide(strides.row), strides.head, wide(strides.column))


def spans(tensor: torch.Tensor, rows: int = MOST_ROWS) -> bool:
    """Whether so many rows of (batch, rows, heads, dim), and one, span more than 32 bits count."""
    _, by_row, _, by_column = tensor.stride()
    if by_row < SMALL and by_column < SMALL:
        return False
    rows = min(tensor.shape[1] - 1, rows)
    return rows * by_row + (tensor.shape[3] - 1) * by_column >= LIMIT


def near(tensor: torch.Tensor) -> torch.Tensor:
    """(batch, rows, heads, dim), or a contiguous copy where a tile of rows would span more than
    32 bits count: rows 34 million elements apart, as of one layer of many, or of a batch that lies
    within the rows. Batch entries and heads are found by 64 bits wherever they are."""
    if not spans(tensor):
        return tensor
    if tensor.stride(0) == 0:  # packed sequences are the same rows to each entry
        return tensor[:1].contiguous().expand(tensor.shape)
    return tensor.contiguous()


def near_bias(bias: torch.Tensor, scores: tuple[int, int, int, int]) -> torch.Tensor:
    """A bias that expands to ``scores``, or a contiguous copy where 32 bits do not count a tile of
    it; a ``NotImplementedError`` where they do not count one of the copy."""
    if _spans(bias.expand(scores)):
        bias = bias.contiguous()
        if _spans(bias.expand(scores)):
            refuse_wide("a bias", scores)
    return bias


def _spans(bias: torch.Tensor) -> bool:
    rows, keys = (min(size - 1, MOST_ROWS) for size in bias.shape[2:])
    return bool(rows * bias.stride(2) + keys * bias.stride(3) >= LIMIT)


def refuse_wide(what: str, scores: tuple[int, int, int, int]) -> None:
    """``what`` has a value for each of ``scores``, contiguous: rows so long that 32 bits do not
    count a tile of them end in a ``NotImplementedError``."""
    queries, keys = scores[2:]
    most = (LIMIT - MOST_ROWS) // max(keys, 1)
    if min(queries - 1, MOST_ROWS) > most:
        raise NotImplementedError(
            f"bias: expected at most {LIMIT // MOST_ROWS - 1} keys where {what} has a value for "
            f"each of {queries} queries, got {keys}; pass at most {most + 1} queries at a time"
        )
