"""Which kernels serve attention on Hopper: its own, or the portable ones."""

from __future__ import annotations

import pytest
import torch

from kernels import flash_attention
from kernels.attention.hopper import descriptors
from tests.hopper.recorded import (
    SM_90,
    attention,
    only_kernel,
    packed,
)
from warpwatch.instruments.compiled.record.call import record


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128, "longest": 64}, id="few-rows"),
        pytest.param({"head_dim": 128, "dtype": torch.float32}, id="fp32"),
        pytest.param({"head_dim": 64, "columns": 68}, id="unaligned"),
        pytest.param({"head_dim": 128, "softcap": 2.0}, id="softcap"),
        pytest.param({"head_dim": 100}, id="D100"),
    ],
)
def test_portable_attention_serves_packed_sequences_that_hoppers_does_not_take(options) -> None:
    recording = packed(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["clear_behind", "attention_forward"]


def test_portable_attention_serves_strides_the_copy_engine_does_not_take() -> None:
    def call() -> None:
        q, k, v = (torch.empty((1, 128, 2, 68), dtype=torch.float16)[..., 2:66] for _ in range(3))
        flash_attention(q, k, v)

    assert only_kernel(record(call, SM_90)).name == "attention_forward"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64, "causal": True, "window": 500}, id="D64"),
        pytest.param({"head_dim": 128, "causal": True, "window": 100}, id="narrow"),
        pytest.param({"head_dim": 128, "window": 500}, id="left-limit-alone"),
        pytest.param(
            {"head_dim": 128, "causal": True, "window": 500, "seqlen_q": 64}, id="few-queries"
        ),
    ],
)
def test_portable_attention_serves_windows_where_it_is_as_fast(options) -> None:
    assert only_kernel(attention(**options)).name == "attention_forward"


@pytest.mark.parametrize(
    ("head_dim", "causal", "columns"),
    [
        (8, False, (16, 0, False)),
        (24, False, (32, 0, False)),
        (48, True, (64, 16, True)),
        (56, True, (64, 0, False)),
        (80, False, (128, 16, True)),
        (96, False, (128, 32, False)),
        (96, True, (128, 32, True)),
        (104, True, (128, 0, False)),
        (136, False, (256, 16, True)),
        (192, False, (256, 64, True)),
        (200, False, (256, 0, False)),
    ],
    ids=str,
)
def test_head_dims_between_powers_of_two_multiply_fewer_columns(
    head_dim: int, causal: bool, columns: tuple[int, int, bool]
) -> None:

    assert descriptors.columns(head_dim, causal) == columns


@pytest.mark.parametrize(
    ("rows", "n_heads", "options", "consumers", "block_n", "pairs"),
    [
        pytest.param(512, 8, {"causal": True}, 1, 128, False, id="few-rows"),
        pytest.param(256, 32, {"causal": True, "seqlen_k": 8192}, 1, 128, False, id="long-keys"),
        pytest.param(512, 32, {"causal": True, "seqlen_k": 8192}, 2, 128, False, id="no-pairs"),
        pytest.param(1024, 16, {"causal": True}, 1, 128, False, id="as-many-keys"),
        pytest.param(1024, 16, {}, 2, 128, False, id="full"),
        pytest.param(1024, 32, {"causal": True}, 2, 128, True, id="pairs"),
        pytest.param(512, 8, {"causal": True, "window": 256}, 1, 128, False, id="window"),
        pytest.param(8192, 32, {"causal": True, "window": 256}, 2, 64, False, id="narrow-window"),
        pytest.param(512, 8, {"causal": True, "packed": True}, 2, 128, True, id="packed"),
        pytest.param(256, 768, {"head_dim": 64}, 2, 256, False, id="one-block"),
        pytest.param(256, 768, {"head_dim": 64, "causal": True}, 2, 64, False, id="short-causal"),
        pytest.param(512, 8, {"head_dim": 256}, 1, 64, False, id="D256"),
        pytest.param(1024, 512, {"head_dim": 64, "causal": True}, 2, 128, False, id="D64-causal"),
        pytest.param(8192, 32, {"causal": True, "window": 4096}, 2, 128, False, id="wide-window"),
        pytest.param(1024, 128, {"head_dim": 256, "causal": True}, 2, 64, True, id="D256-short"),
        pytest.param(2048, 64, {"head_dim": 256, "causal": True}, 2, 64, False, id="D256-long"),
        pytest.param(
            2048,
            64,
            {"head_dim": 256, "causal": True, "window": 512},
            2,
            64,
            True,
            id="D256-window",
        ),
        pytest.param(
            8192,
            16,
            {"head_dim": 256, "causal": True, "window": 4096, "sharing": 4},
            2,
            64,
            False,
            id="D256-far-window-of-shared-keys",
        ),
    ],
)
def test_the_forward_pass_is_cut_as_was_timed(
    rows: int, n_heads: int, options: dict, consumers: int, block_n: int, pairs: bool
) -> None:
    """By the times of docs/log/kernels/hopper/forward.md."""
    from kernels.attention.hopper.forward import launch as forward

    given = {"head_dim": 128, "causal": False, "seqlen_k": rows} | options
    cut = forward.choose(seqlen_q=rows, n_heads=n_heads, multiprocessors=132, **given)
    assert (cut.consumers, cut.block_n, cut.pairs) == (consumers, block_n, pairs)


@pytest.mark.parametrize(("rows", "last_alone"), [(1024, False), (2048, True)])
def test_the_last_pairs_come_apart_where_sequences_are_long(rows: int, last_alone: bool) -> None:
    from kernels.attention.hopper.forward import launch as forward

    given = {"seqlen_k": rows, "n_heads": 128, "multiprocessors": 132}
    cut = forward.choose(128, rows, True, **given)
    assert (cut.pairs, cut.last_alone) == (True, last_alone)


@pytest.mark.parametrize(
    ("rows", "n_heads", "options", "once"),
    [
        pytest.param(1024, 8, {}, True, id="one-warpgroup"),
        pytest.param(512, 32, {}, True, id="two-warpgroups"),
        pytest.param(512, 32, {"causal": True}, True, id="causal"),
        pytest.param(256, 64, {}, True, id="one-block"),
        pytest.param(256, 66, {"causal": True}, True, id="short-causal"),
        pytest.param(256, 67, {"causal": True}, False, id="a-tile-too-many"),
        pytest.param(1024, 32, {}, False, id="walked"),
        pytest.param(2048, 4, {"causal": True}, True, id="long-causal"),
        pytest.param(2048, 8, {"causal": True}, False, id="three-warpgroups"),
        pytest.param(512, 32, {"packed": True}, False, id="packed"),
        pytest.param(512, 8, {"head_dim": 128}, False, id="D128"),
        pytest.param(512, 8, {"head_dim": 128, "causal": True, "window": 256}, False, id="window"),
    ],
)
def test_one_tile_a_program_where_there_are_no_more(
    rows: int, n_heads: int, options: dict, once: bool
) -> None:
    """By the times of docs/log/kernels/hopper/forward.md."""
    from kernels.attention.hopper.forward import launch as forward

    given = {"head_dim": 64, "causal": False, "seqlen_k": rows} | options
    cut = forward.choose(seqlen_q=rows, n_heads=n_heads, multiprocessors=132, **given)
    assert cut.once is once
    assert not (once and (cut.pairs or cut.tails))


@pytest.mark.parametrize(
    ("rows", "n_heads", "options", "ahead"),
    [
        pytest.param(1024, 32, {}, True, id="two-warpgroups"),
        pytest.param(512, 1024, {"causal": True}, True, id="causal"),
        pytest.param(256, 768, {}, True, id="one-block"),
        pytest.param(2048, 32, {}, False, id="three-warpgroups"),
        pytest.param(1024, 64, {"causal": True}, True, id="longer-causal"),
        pytest.param(1024, 64, {"causal": True, "head_dim": 128}, False, id="pairs"),
        pytest.param(256, 768, {"causal": True}, False, id="short-causal"),
        pytest.param(512, 1024, {"packed": True}, False, id="packed"),
        pytest.param(1024, 32, {"head_dim": 128}, False, id="D128"),
    ],
)
def test_the_next_tile_is_found_early_where_that_was_timed(
    rows: int, n_heads: int, options: dict, ahead: bool
) -> None:
    """By the times of docs/log/kernels/hopper/forward.md."""
    from kernels.attention.hopper.forward import launch as forward

    given = {"head_dim": 64, "causal": False, "seqlen_k": rows} | options
    cut = forward.choose(seqlen_q=rows, n_heads=n_heads, multiprocessors=132, **given)
    assert cut.ahead is ahead
