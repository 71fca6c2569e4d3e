"""What functions of a program take together: constants of its tiles, and where these lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton


@dataclass(frozen=True)
class Tile:
    """Constants of a kernel as one argument of a function: columns of queries and keys and of
    values, rows of a tile of queries and of one of keys, columns of both tiles, and CAUSAL."""

    HEAD_DIM: int
    HEAD_DIM_V: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_D: int
    BLOCK_DV: int
    CAUSAL: bool


@triton.constexpr_function
def tile_of(*constants: Any) -> Tile:
    """``Tile`` within a kernel, where a tuple would make tensors of constants."""
    return Tile(*constants)


class Place(NamedTuple):
    """Of which entry of the batch, or packed row, and of which head rows are that a program walks,
    with which row its own begin, and how far queries see."""

    i_b: Any
    i_h: Any
    o_own: Any
    causal_offset: Any
    left_offset: Any
