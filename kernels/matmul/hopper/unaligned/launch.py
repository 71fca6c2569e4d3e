"""Which matmuls of several tiles a program have rows of a by class on Hopper, and their launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from kernels.matmul.common.product import Product
from kernels.matmul.hopper.boxes import (
    along_either,
    by_class,
    classes_of,
    copyable,
    phase_and_pitch,
)
from kernels.matmul.hopper.choose import programs_in_step
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .kernel import matmul_hopper_lines


@dataclass(frozen=True)
class LinesConfig:
    """A tile of twice ``rows`` rows of one class and ``block_n`` columns, the ring that feeds it,
    and the time of a step along K, in a unit that only compares."""

    rows: int
    block_n: int
    group_m: int
    step: int
    block_k: int = 64
    stages: int = 4
    store_n: int = 64

    def tiles(self, M: int, N: int, classes: int) -> int:
        return classes * triton.cdiv(M // classes, 2 * self.rows) * triton.cdiv(N, self.block_n)


TALL = LinesConfig(128, 128, group_m=4, step=15)
BROAD = LinesConfig(64, 256, group_m=8, step=17)
# A step of 128 x 256 of rows as they come, by the classes of a; b's rows begin anywhere.
AS_THEY_COME = {1: 16, 8: 19}
WORTH = 0.96


def choose(a: torch.Tensor, b: torch.Tensor, now: int, multiprocessors: int) -> LinesConfig | None:
    """How to cut a product that rows as they come take ``now`` tiles of 128 x 256 for; None leaves
    it to them. docs/log/kernels/hopper/matmul.md measures it.

    What costs is a row that begins within a sector of 32 bytes: there are eight classes then. A
    step takes as long as the lines it asks for until products bind, and rows that a class lacks for
    whole tiles as long again as those there are.
    """
    rows_of_b = b if copyable(b) else b.t()
    if not copyable(a) or classes_of(rows_of_b) != max(AS_THEY_COME):
        return None
    M, N = a.shape[0], b.shape[1]
    classes = classes_of(a)
    if classes not in AS_THEY_COME or M % classes:
        return None

    def cost(tiles: int, step: int) -> float:
        # A last turn that few programs have leaves the others' share of L2 to them.
        return (triton.cdiv(tiles, multiprocessors) + tiles / multiprocessors) * step

    def cut(config: LinesConfig) -> float:
        rows = triton.cdiv(M // classes, 2 * config.rows) * 2 * config.rows * classes
        return cost(config.tiles(M, N, classes), config.step) * (2 - M / rows)

    best = min((TALL, BROAD), key=cut)
    return best if cut(best) <= WORTH * cost(now, AS_THEY_COME[classes]) else None


def launch(product: Product, config: LinesConfig) -> None:
    """Fill the ``out`` of a product whose rows of a lie along K, their number a multiple of their
    classes."""
    (M, N, K), a, b = product.sizes, product.a, product.b
    classes = classes_of(a)
    programs = programs_in_step(config.tiles(M, N, classes), targets.multiprocessors())
    noted(matmul_hopper_lines, (programs,))(
        by_class(a, classes, config.rows, config.block_k),
        along_either(b, config.block_k, config.block_n),
        by_class(product.out, classes, config.rows, config.store_n),
        product.bias,
        M,
        N,
        K,
        *phase_and_pitch(a),
        STAGES=config.stages,
        CLASSES=classes,
        GROUP_M=config.group_m,
        B_MAJOR_N=copyable(b),
        ACTIVATION=product.activation or "none",
        num_warps=4,
    )
