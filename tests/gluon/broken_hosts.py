"""Host code that goes wrong in ways that are no faults of a kernel, for the command to run."""

import sys

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


@triton.jit
def spins(x, ENDS: tl.constexpr):
    i = 0
    while i >= 0:
        i = (i + 1) % 7
        if ENDS:
            i = -1
    tl.store(x, i)


@triton.jit
def counts(x, n):
    total = 0
    for i in range(n):
        total += i
    tl.store(x, total)


def _made() -> torch.Tensor:
    return torch.empty(8, device="cuda")


def an_argument_too_few() -> None:
    fill[(1,)](_made(), BLOCK=8)


def an_argument_too_many() -> None:
    fill[(1,)](_made(), 8, 8, 9)


def a_wrong_keyword() -> None:
    fill[(1,)](_made(), 8, BLOCK=8, BLOCKS=8)


def a_grid_of_none() -> None:
    fill[(None,)](_made(), 8, BLOCK=8)


def a_complex_tensor() -> None:
    fill[(1,)](_made().to(torch.complex64), 8, BLOCK=8)


def skips() -> None:
    pytest.skip("no such card")


def exits() -> None:
    sys.exit(3)


def endless() -> None:
    spins[(1,)](_made(), ENDS=False)


def ends() -> None:
    spins[(1,)](_made(), ENDS=True)


def long(n: int) -> None:
    counts[(1,)](torch.empty(1, device="cuda", dtype=torch.int32), n)


def wants(one: int, other: int) -> None:
    """It takes two arguments."""
