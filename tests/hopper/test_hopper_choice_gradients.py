"""Which kernels serve gradients of attention on Hopper: its own, one or two, or the portable."""

from __future__ import annotations

import heapq
from itertools import product as every

import pytest
import torch

from kernels.attention.common.numerics import exactness
from kernels.attention.hopper.backward.wide.launch import heads_together
from tests.hopper.recorded import (
    SM_90,
    backward,
)
from tests.problems import problem_of


@pytest.mark.sampled
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 32}, id="D32"),
        pytest.param({"head_dim": 64, "seqlen_q": 48}, id="D64-few-queries"),
        pytest.param({"head_dim": 256, "seqlen_q": 31}, id="D256-few-queries"),
        pytest.param({"head_dim": 128, "window": 300}, id="left-limit-alone"),
        pytest.param({"head_dim": 128, "seqlen_k": 16}, id="few-keys"),
        pytest.param({"head_dim": 128, "seqlen_k": 40, "causal": True}, id="few-keys-causal"),
        pytest.param({"head_dim": 128, "seqlen_q": 16}, id="few-queries"),
        pytest.param({"head_dim": 100}, id="D100"),
        pytest.param({"head_dim": 128, "dtype": torch.float32}, id="fp32"),
        pytest.param(
            {"head_dim": 128, "dout_like": lambda x: x[:1, :1].expand_as(x)}, id="dout-expanded"
        ),
        pytest.param(
            {"head_dim": 72, "dout_like": lambda x: torch.cat((x, x), 3)[..., 4:76]},
            id="dout-unaligned",
        ),
    ],
)
def test_portable_backward_serves_what_hoppers_does_not_take(options) -> None:
    names = {launch.kernel.name for launch in backward(**options).launches}
    assert {"attention_backward_kv", "attention_backward_q"} <= names


@pytest.mark.parametrize(
    ("head_dim", "length", "causal", "batch", "kv_heads", "portable"),
    [
        pytest.param(64, 384, False, 16, 8, True, id="D64-384"),
        pytest.param(64, 512, False, 16, 8, False, id="D64-512"),
        pytest.param(64, 640, True, 16, 8, True, id="D64-640-causal"),
        pytest.param(64, 1024, True, 16, 8, False, id="D64-1024-causal"),
        pytest.param(64, 384, False, 8, 8, False, id="D64-384-few-programs"),
        pytest.param(64, 384, False, 64, 2, False, id="D64-384-grouped"),
        pytest.param(96, 256, True, 32, 8, False, id="D96-256-causal"),
        pytest.param(128, 256, False, 32, 8, False, id="D128-256"),
        pytest.param(128, 256, True, 32, 8, False, id="D128-256-causal"),
        pytest.param(256, 256, True, 32, 8, False, id="D256-256-causal"),
    ],
)
def test_portable_backward_serves_short_sequences_of_many_programs(
    head_dim: int, length: int, causal: bool, batch: int, kv_heads: int, portable: bool
) -> None:
    """By the times of docs/log/kernels/hopper/backward.md."""
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from warpwatch.instruments.compiled.record import driver

    q = torch.empty((batch, length, 8, head_dim), dtype=torch.bfloat16, device="meta")
    k = torch.empty((batch, length, kv_heads, head_dim), dtype=torch.bfloat16, device="meta")
    with driver.active(SM_90):
        faster = hopper_backward_launch.faster(problem_of(q, k, k, causal=causal))
    assert faster is not portable


@pytest.mark.parametrize(
    ("head_dim", "length", "causal", "two_kernels"),
    [
        pytest.param(128, 768, False, True, id="D128-768"),
        pytest.param(128, 1024, False, False, id="D128-1024"),
        pytest.param(72, 1408, True, True, id="D72-1408-causal"),
        pytest.param(72, 2048, True, False, id="D72-2048-causal"),
        pytest.param(64, 1024, False, False, id="D64"),
        pytest.param(256, 4096, False, True, id="D256"),
    ],
)
def test_two_kernels_serve_short_sequences_and_wide_heads(
    head_dim: int, length: int, causal: bool, two_kernels: bool
) -> None:
    """By the times of docs/log/kernels/hopper/backward-two-kernels.md."""
    from kernels.attention.hopper.backward import launch as hopper_backward_launch

    seen = exactness.keys_seen(length, causal, 0, None, length)
    assert hopper_backward_launch.choose(head_dim, seen).two_kernels is two_kernels


@pytest.mark.parametrize(
    ("head_dim", "window", "two_kernels"),
    [
        pytest.param(128, 1024, True, id="D128-1024"),
        pytest.param(72, 2048, False, id="D72-2048"),
        pytest.param(64, 256, False, id="D64-256"),
        pytest.param(256, 4096, True, id="D256-4096"),
    ],
)
def test_two_kernels_serve_narrow_windows_and_wide_heads(
    head_dim: int, window: int, two_kernels: bool
) -> None:
    """By the times of docs/log/kernels/hopper/backward.md."""
    from kernels.attention.hopper.backward import launch as hopper_backward_launch

    seen = exactness.keys_seen(8192, True, 0, -window, 8192)
    found = hopper_backward_launch.choose(head_dim, seen, windowed=True)
    assert found.two_kernels is two_kernels


def test_two_kernels_of_two_stages_are_refused_where_they_would_never_end() -> None:
    """Causal, a warpgroup that holds a stage passes over the next one and waits for a third."""
    from kernels.attention.hopper.backward.launch import HopperBackwardConfig

    with pytest.raises(ValueError, match="stages: two kernels of 128 columns want 3"):
        HopperBackwardConfig(128, two_kernels=True, stages=2)
    HopperBackwardConfig(256, two_kernels=True, stages=2)
    with pytest.raises(ValueError, match="stages: one pass has 2, got 3"):
        HopperBackwardConfig(64, two_kernels=False, stages=3)


@pytest.mark.parametrize(
    ("head_dim", "window", "kv_heads", "portable"),
    [
        pytest.param(64, 512, 32, True, id="D64-512"),
        pytest.param(64, 1024, 32, False, id="D64-1024"),
        pytest.param(64, 256, 8, True, id="D64-256-grouped"),
        pytest.param(64, 512, 8, False, id="D64-512-grouped"),
        pytest.param(128, 128, 32, False, id="D128-128"),
    ],
)
def test_portable_backward_serves_narrow_windows_up_to_head_dim_64(
    head_dim: int, window: int, kv_heads: int, portable: bool
) -> None:
    """By the times of docs/log/kernels/hopper/backward.md."""
    from kernels.attention.hopper.backward import launch as hopper_backward_launch

    q = torch.empty((1, 8192, 32, head_dim), dtype=torch.bfloat16, device="meta")
    k = torch.empty((1, 8192, kv_heads, head_dim), dtype=torch.bfloat16, device="meta")
    problem = problem_of(q, k, k, causal=True, left_offset=-window)
    assert hopper_backward_launch.faster(problem) is not portable


@pytest.mark.parametrize(
    ("batch", "longest", "causal", "portable"),
    [
        pytest.param(64, 256, False, True, id="64-of-256"),
        pytest.param(32, 512, False, True, id="32-of-512"),
        pytest.param(16, 1024, True, True, id="16-of-1024-causal"),
        pytest.param(16, 1024, False, False, id="16-of-1024"),
        pytest.param(8, 2048, True, False, id="8-of-2048-causal"),
        pytest.param(32, 1024, True, True, id="32-up-to-1024-causal"),
        pytest.param(32, 1024, False, False, id="32-up-to-1024"),
        pytest.param(11, 8192, True, False, id="11-up-to-8192-causal"),
    ],
)
def test_portable_backward_serves_packed_sequences_that_are_short(
    batch: int, longest: int, causal: bool, portable: bool
) -> None:
    """By the times of docs/log/kernels/hopper/backward.md, of 16,384 tokens."""
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from warpwatch.instruments.compiled.record import driver

    q = torch.empty((batch, 16384, 16, 128), dtype=torch.bfloat16, device="meta")
    cu = torch.empty(batch + 1, dtype=torch.int32, device="meta")
    packed = Packed(cu, cu, longest, longest)
    with driver.active(SM_90):
        problem = problem_of(q, q, q, causal=causal, packed=packed)
        faster = hopper_backward_launch.faster(problem)
    assert faster is not portable


@pytest.mark.parametrize(
    ("head_dim", "dtype", "window", "taken"),
    [
        pytest.param(128, torch.bfloat16, None, True, id="D128"),
        pytest.param(40, torch.float16, None, True, id="D40"),
        pytest.param(256, torch.bfloat16, None, False, id="D256"),
        pytest.param(128, torch.bfloat16, 1000, False, id="window"),
        pytest.param(128, torch.float32, None, False, id="fp32"),
    ],
)
def test_gradients_of_packed_sequences_that_hopper_takes(
    head_dim: int, dtype: torch.dtype, window: int | None, taken: bool
) -> None:
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from warpwatch.instruments.compiled.record import driver

    cu = torch.empty(9, dtype=torch.int32)
    packed = Packed(cu, cu, 2048, 2048)
    q = packed.spread(torch.empty((4096, 2, head_dim), dtype=dtype))
    left = None if window is None else -window
    with driver.active(SM_90):
        problem = problem_of(q, q, q, causal=True, left_offset=left, packed=packed)
        assert taken is hopper_backward_launch.supported(problem, q)


@pytest.mark.parametrize(
    ("tokens", "batch", "head_dim", "taken"),
    [
        pytest.param(16384, 11, 64, True, id="up-to-8192"),
        pytest.param(16384, 256, 64, True, id="256-of-64"),
        pytest.param(8192 + 6000 * 20, 6001, 128, True, id="6000-of-20-beside-8192"),
        pytest.param(8192 + 10_000 * 2, 10_001, 128, False, id="10000-of-2-beside-8192"),
        pytest.param(8192 + 1000 * 2, 1001, 64, False, id="1000-of-2-beside-8192"),
        pytest.param(1000 + 100 * 2, 101, 64, False, id="100-of-2-beside-1000"),
        pytest.param(700 + 20 * 2, 21, 64, True, id="small"),
    ],
)
def test_packed_gradients_have_no_workspace_many_times_the_size_of_the_queries(
    tokens: int, batch: int, head_dim: int, taken: bool
) -> None:
    """Every sequence has whole blocks of rows there, however short it is."""
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from warpwatch.instruments.compiled.record import driver

    cu = torch.empty(batch + 1, dtype=torch.int32)
    packed = Packed(cu, cu, 8192, 8192)
    q = packed.spread(torch.empty((tokens, 32, head_dim), dtype=torch.bfloat16))
    with driver.active(SM_90):
        problem = problem_of(q, q, q, causal=True, packed=packed)
        assert taken is hopper_backward_launch.supported(problem, q)


def test_gradients_ask_which_kernels_are_faster() -> None:
    many = {"batch": 34, "kv_heads": 8, "seqlen_q": 64, "seqlen_k": 64}
    names = [launch.kernel.name for launch in backward(64, **many).launches]
    assert names == [f"attention_backward_{part}" for part in ("q", "kv")]


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_causal_gradients_of_grouped_heads_end_together(columns: int) -> None:
    """A program takes the next place as one ends; of a chunk of heads the longest come first. In
    the order of heads alone 4096 x 64 heads, 8 of keys, took 1.58 times the least."""
    shapes = every((1, 2, 3, 8), (2048, 4096, 8192), (16, 32, 64), (1, 2, 4, 8, 16))
    for batch, length, heads, kv_heads in shapes:
        block = 64 if columns == 256 else 128
        blocks, group = length // block, heads // kv_heads
        a_head = length * columns * (4 if columns == 256 else 8)
        width = heads_together(batch * kv_heads, a_head, causal=True)
        ends = [0] * 132
        work = [group * (blocks - i) for i in range(blocks)]
        for first in range(0, batch * kv_heads, width):
            for steps in work:
                for _ in range(min(width, batch * kv_heads - first)):
                    heapq.heapreplace(ends, ends[0] + steps)
        least = batch * kv_heads * sum(work) / len(ends)
        assert max(ends) <= 1.15 * max(least, work[0])
