"""Which matmuls of several tiles a program have rows of a by class on Hopper, and how."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from .boxes import classes_of, copyable
from .choose import WIDE, HopperConfig, tiles, widest


@dataclass(frozen=True)
class LinesConfig(HopperConfig):
    """Of rows of one class, and the time of a step along K, in a unit that only compares."""

    step: int = 0


TALL = LinesConfig(consumers=2, block_n=128, group_m=4, rows=128, step=15)
BROAD = LinesConfig(consumers=2, block_n=256, step=17)
# A step of 128 x 256 of rows as they come, by the classes of a; b's rows begin anywhere.
AS_THEY_COME = {1: 16, 8: 19}
WORTH = 0.96


def choose(a: torch.Tensor, b: torch.Tensor, multiprocessors: int) -> LinesConfig | None:
    """How to cut a product whose programs have several tiles; None for rows as they come, in tiles
    of 128 x 256. docs/log/kernels/hopper/matmul.md measures it.

    A row that begins within a sector of 32 bytes costs time: there are eight classes then. A
    step takes as long as the lines it requests until products bind, and rows that a class lacks for
    whole tiles as long again as those there are.
    """
    rows_of_b = b if copyable(b) else b.t()
    M, N = a.shape[0], b.shape[1]
    if not (widest(M, N, multiprocessors) and copyable(a)):
        return None
    if classes_of(rows_of_b) != max(AS_THEY_COME):
        return None
    classes = classes_of(a)
    if classes not in AS_THEY_COME or M % classes:
        return None

    def cost(tiles: int, step: int) -> float:
        # A last turn that few programs have leaves the others' share of L2 to them.
        return (triton.cdiv(tiles, multiprocessors) + tiles / multiprocessors) * step

    def cut(config: LinesConfig) -> float:
        rows = config.consumers * config.rows
        whole = triton.cdiv(M // classes, rows) * rows * classes
        return cost(tiles(config, M, N, classes), config.step) * (2 - M / whole)

    best = min((TALL, BROAD), key=cut)
    now = cost(tiles(WIDE, M, N), AS_THEY_COME[classes])
    return best if cut(best) <= WORTH * now else None
