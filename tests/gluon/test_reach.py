"""Hopper's kernels on views of which a tile of rows spans more elements than 32 bits count."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch

import kernels
from kernels.attention.common.addressing import Strides
from kernels.attention.common.numerics.fp8_scales import Scales
from kernels.attention.hopper.fp8 import prepare as hopper_fp8_prepare
from kernels.matmul.hopper.unaligned import TALL
from tests.gluon import matmul_cases
from tests.gluon.interpreter import hopper_on_the_cpu
from tests.gpu import far_rows
from tests.kernels.interpreted import Worker
from tests.kernels.test_reach import NO_RESERVE

SPECIAL = [name for name, case in far_rows.CASES.items() if case.special]


def sparse(tensor: torch.Tensor, axis: int, apart: int) -> torch.Tensor:
    """The same values, those along ``axis`` ``apart`` elements apart; memory that nobody touches is
    not there, and of what lies beside it all is 0."""
    entries = tensor.movedim(axis, 0).contiguous()
    size = ((entries.shape[0] - 1) * apart + entries[0].numel()) * tensor.element_size()
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    flat = torch.frombuffer(room, dtype=torch.uint8).view(tensor.dtype)
    view = flat.as_strided(entries.shape, (apart, *entries.stride()[1:]))
    return view.copy_(entries).movedim(0, axis)


def run(name: str) -> tuple[list[str], list[str]]:
    """Outputs that are not as those of near copies, and the kernels that ran."""
    case = far_rows.CASES[name]
    given = case.draw()
    near = {key: one.clone() for key, one in given.items()}
    far = near | {key: sparse(given[key], axis, case.apart) for key, axis in case.axes.items()}
    with hopper_on_the_cpu() as launches:
        beside = case.call(near)
        n_near = len(launches.kernels)
        found = case.call(far)
    for key in case.written:
        found[key], beside[key] = far[key].contiguous(), near[key]
    most = max(float(one.double().abs().max()) for one in beside.values())
    close = {"rtol": 0.0, "atol": 0.02 * most}  # another kernel may have served the near copies
    wrong = [
        key
        for key, one in found.items()
        if one.isnan().any() or not torch.allclose(one.double(), beside[key].double(), **close)
    ]
    return wrong, launches.kernels[n_near:]


@pytest.mark.parametrize("name", SPECIAL)
def test_far_rows_are_as_near_ones(worker: Worker, name: str) -> None:
    wrong, kernels = worker.run(run, name)
    assert kernels and not wrong


SCALE_APART = 9_000_000


def run_scales(which: str, shape: tuple[int, int, int]) -> tuple[bool, list[str]]:
    """Whether the scales that ``which`` names give the same product where their entries lie so far
    apart that 32 bits do not count them all, and the kernels that ran."""
    M, N, K = shape
    a, b = (torch.randn(rows, K).to(torch.float8_e4m3fn) for rows in (M, N))
    scales = {"rows of a": torch.rand(M), "columns of b": torch.rand(N)}
    scales |= {"blocks of a": torch.rand(M, -(-K // 128))}
    scales |= {"blocks of b": torch.rand(-(-K // 128), -(-N // 128))}
    by = {which: scales[which]}
    if which == "blocks of a":
        by["blocks of b"] = scales["blocks of b"]
    far = by | {which: sparse(by[which], 0, SCALE_APART)}

    def product(scales: dict[str, torch.Tensor]) -> torch.Tensor:
        named = {f"{key[-1]}_scale": one for key, one in scales.items()}
        return kernels.matmul(a, b.t(), out_dtype=torch.float32, **named)

    with hopper_on_the_cpu(multiprocessors=2 if M * N > 128 * 128 else 8) as launches:
        same = torch.equal(product(far), product(by))
    return same, launches.kernels


@pytest.mark.parametrize(
    ("which", "shape", "kernel"),
    [
        ("rows of a", (256, 128, 128), "matmul_hopper_fp8"),
        ("columns of b", (128, 256, 128), "matmul_hopper_fp8"),
        ("blocks of a", (256, 256, 256), "matmul_hopper_fp8"),
        ("rows of a", (256, 64, 128), "matmul_hopper_fp8_once"),
        ("columns of b", (64, 256, 128), "matmul_hopper_fp8_once"),
    ],
)
def test_scales_may_lie_any_distance_apart(
    worker: Worker, which: str, shape: tuple[int, int, int], kernel: str
) -> None:
    same, ran = worker.run(run_scales, which, shape)
    assert same and ran == [kernel] * 2


# Seven times as many elements are more than 2^31, and rows begin at eight places of their lines.
PITCH = 320_000_008


def run_classes(config: Any, shape: tuple[int, int, int], multiprocessors: int) -> tuple[bool, Any]:
    """Whether a's rows so far apart give the product that they give near one another, and what was
    launched."""
    M, N, K = shape
    a, b = torch.randn(M, K).bfloat16(), torch.randn(K, N).bfloat16()
    with hopper_on_the_cpu(multiprocessors) as launches, matmul_cases.choosing(config):
        same = torch.equal(*(kernels.matmul(sparse(a, 0, pitch), b) for pitch in (PITCH, K)))
    named = zip(launches.kernels, launches.named, strict=True)
    return same, [(name, given["CLASSES"]) for name, given in named]


@pytest.mark.parametrize(
    ("config", "shape", "multiprocessors", "kernel"),
    [
        (None, (1000, 136, 200), 32, "matmul_hopper_once"),
        (TALL, (520, 264, 200), 1, "matmul_hopper"),
    ],
    ids=["one-tile", "several-tiles"],
)
def test_rows_that_go_by_class_may_lie_any_distance_apart(
    worker: Worker, config: Any, shape: tuple[int, int, int], multiprocessors: int, kernel: str
) -> None:
    same, launched = worker.run(run_classes, config, shape, multiprocessors)
    assert same and launched == [(kernel, 8)] * 2


def run_values(far: int) -> bool:
    """Whether the first keys of two heads are turned around alike where ``far`` words lie from one
    column to the next as where these keys alone do."""
    head_dim, heads, keys = 256, 2, 100
    none = Scales(None, None, None)
    v = torch.randn(1, keys, heads, head_dim).to(torch.float8_e4m3fn).view(torch.int32)
    found = []
    with hopper_on_the_cpu():
        for words in (hopper_fp8_prepare.KEYS // 4, far):
            to = sparse(torch.zeros(heads * head_dim, 32, dtype=torch.int32), 0, words)
            factors = torch.empty(2, heads)
            hopper_fp8_prepare.attention_forward_fp8_hopper_prepare[(heads,)](
                v, to, none, factors, none.strides(), Strides(*v.stride()), heads, 1, keys, words,
                1.0, WORDS=head_dim // 4, BLOCK_W=head_dim // 4, BLOCK_N=hopper_fp8_prepare.KEYS,
                BY_SEQUENCE=False,
            )  # fmt: skip
            found.append(to.contiguous())
    return bool(found[0].any()) and torch.equal(*found)


def test_values_in_fp8_of_any_number_of_keys_are_turned_around(worker: Worker) -> None:
    assert worker.run(run_values, 8_600_000)  # of 34 million keys: 2^31 words a head and more
