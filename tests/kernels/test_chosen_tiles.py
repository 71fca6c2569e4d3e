"""Which tiles of the tables problems take, and in which order programs take them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.attention.common.options import Options
from kernels.attention.common.program_order import MOST_TOGETHER, taken, together
from kernels.attention.portable.tuning.choose import Asked, choose_backward, choose_forward
from kernels.attention.portable.tuning.plain import (
    BACKWARD,
    GROUPED_KV,
    NARROW,
    PACKED_KV,
    POINTERS_BACKWARD,
    POINTERS_FORWARD,
)
from kernels.attention.portable.tuning.scored import (
    ALONE_BACKWARD,
    CROWDED_FORWARD,
    SCORED_BACKWARD,
    UNEVEN_FORWARD,
)
from kernels.runtime.targets import Target

SM_80 = Target("sm_80", "cuda", 80)
SM_90 = Target("sm_90", "cuda", 90)


def test_a_narrow_window_and_packed_sequences_take_smaller_tiles() -> None:
    for kind in (torch.float16, torch.bfloat16):
        wide = choose_forward(SM_90, 64, kind, Asked(windowed=True))
        narrow = choose_forward(SM_90, 64, kind, Asked(windowed=True, narrow=True))
        assert (wide.block_n, narrow.block_n) == (128, 64)
        gradients = choose_backward(SM_90, 128, kind, Asked(narrow=True))
        assert (gradients.q.block_m, gradients.q.num_warps) == (64, 4)
    # A window of 1024 counts: a row sees itself besides.
    assert NARROW == 1024 + 1


@pytest.mark.parametrize("head_dim", [64, 128])
def test_heads_that_share_keys_are_walked_in_one_loop(head_dim: int) -> None:
    plain, packed = (
        choose_backward(SM_90, head_dim, torch.bfloat16, Asked(grouped=True, packed=packed)).kv
        for packed in (False, True)
    )
    alone = choose_backward(SM_90, head_dim, torch.bfloat16, Asked()).kv
    assert plain == GROUPED_KV["sm_90"][head_dim]
    assert packed == PACKED_KV["sm_90"][head_dim]
    assert plain.flat and packed.flat and not alone.flat


def test_gradients_of_one_option_take_tiles_of_their_own_where_these_were_compiled() -> None:
    def chosen(**asked: Any) -> Any:
        return choose_backward(SM_90, 128, torch.bfloat16, Asked(scored=True, **asked))

    for kind, rows in ALONE_BACKWARD.items():
        assert chosen(alone=kind) == rows["sm_90"][128]
    assert chosen(alone="sinks") == BACKWARD["sm_90"][128]
    assert chosen(alone=None) == SCORED_BACKWARD["sm_90"][128]
    # The loop over heads that share keys takes registers of its own.
    assert chosen(alone="sinks", grouped=True).kv.block_m == 32
    assert chosen(alone="sinks", grouped=True).q == BACKWARD["sm_90"][128].q
    # Packed sequences, head dims or memory with which they were not.
    for why in ("packed", "other"):
        assert chosen(alone="sinks", **{why: True}) == SCORED_BACKWARD["sm_90"][128]
    assert chosen(alone="sinks", describable=False) == SCORED_BACKWARD["sm_90"][128]


def test_gradients_of_a_bias_take_small_tiles_where_loads_of_16_bytes_do_not_fetch_it() -> None:
    def kind(bias: torch.Tensor, keys: int = 64) -> str | None:
        return Options(bias=bias).alone_in_gradients((2, 2, 32, keys))

    whole = torch.zeros(2, 2, 32, 64, dtype=torch.bfloat16)
    assert kind(whole) == kind(whole[:1, :, :1]) == kind(whole.bool()) == "bias"
    assert kind(whole.mT.contiguous().mT) == "bias"
    assert kind(whole.float()) == "bias_fp32"
    assert kind(whole[..., :1, :1]) == kind(whole[..., :60], 60) == "bias_uneven"
    assert kind(torch.zeros(2, 2, 32, 65)[..., 1:]) == "bias_uneven"
    assert Options(softcap=30.0).alone_in_gradients((2, 2, 32, 64)) == "softcap"
    # Beside other options it is no less uneven.
    scores = (2, 2, 32, 64)
    assert Options(softcap=30.0, bias=whole[..., :1, :1]).uneven(scores) == "row"
    assert Options(bias=torch.zeros(2, 2, 32, 65).bool()[..., 1:]).uneven(scores) == "short"
    assert Options(bias=torch.zeros(2, 2, 32, 65)[..., 1:]).uneven(scores) == "fp32"
    assert Options(bias=torch.zeros(2, 2, 32, 1)).uneven(scores) == "row"
    assert not Options(softcap=30.0, bias=whole).uneven(scores)
    assert not Options(softcap=30.0).uneven(scores)


def test_on_sm_80_an_uneven_bias_takes_tiles_of_its_own_beside_other_options_too() -> None:
    for D in (64, 128):
        even, uneven, crowded = (
            choose_forward(SM_80, D, torch.bfloat16, Asked(scored=True, **asked))
            for asked in ({}, {"uneven": "short"}, {"uneven": "fp32", "crowded": True})
        )
        assert uneven == UNEVEN_FORWARD["sm_80"][D] != even
        assert uneven.branch and not even.branch
        # Dropout and lists of blocks need more.
        assert crowded == CROWDED_FORWARD["sm_80"][D]
    shared = Asked(scored=True, uneven="short", grouped=True)
    assert choose_backward(SM_80, 64, torch.bfloat16, shared).kv.num_warps == 8


def test_on_sm_80_heads_that_share_keys_are_walked_in_one_loop() -> None:
    def chosen(D: int, **asked: Any) -> bool:
        return choose_backward(SM_80, D, torch.bfloat16, Asked(grouped=True, **asked)).kv.flat

    assert chosen(64) and chosen(64, packed=True) and chosen(64, windowed=True)
    assert chosen(128, windowed=True) and not chosen(128)
    assert not chosen(64, scored=True)
    # Full attention over keys that 16 does not divide.
    ragged = choose_forward(SM_80, 128, torch.bfloat16, Asked(ragged=True))
    assert ragged.branch and not choose_forward(SM_80, 128, torch.bfloat16, Asked()).branch


@pytest.mark.parametrize("D", [64, 128])
def test_keys_in_rows_of_no_16_bytes_have_tiles_of_their_own_on_sm_80(D: int) -> None:
    def forward(**asked: Any) -> Any:
        return choose_forward(SM_80, D, torch.bfloat16, Asked(describable=False, **asked))

    assert forward() == forward(windowed=True) == POINTERS_FORWARD["sm_80"][D]
    # What is asked of scores, and head dims between, take registers that these were not found with.
    assert forward(scored=True) != forward() != forward(other=True)
    shared = Asked(describable=False, grouped=True)
    found = choose_backward(SM_80, D, torch.bfloat16, shared)
    assert found == POINTERS_BACKWARD["sm_80"][D] != BACKWARD["sm_80"][D]
    small = choose_forward(SM_80, 256, torch.bfloat16, Asked(describable=False))
    assert small == choose_forward(SM_80, 256, torch.bfloat16, Asked())


@pytest.mark.parametrize("heads", [1, 3, 8, 11, 12, 32])
def test_every_block_of_every_head_is_taken_once(heads: int) -> None:
    n_blocks, side = 5, together(heads)
    assert heads % side == 0
    assert side <= MOST_TOGETHER
    for of_order in (0, side):
        order = [taken.fn(i, n_blocks, of_order) for i in range(n_blocks * heads)]
        assert sorted(order) == [(i, h) for i in range(n_blocks) for h in range(heads)]
    # Those of ``side`` heads by the block, the longest of causal attention first.
    first = [i_block for i_block, _ in order[: n_blocks * side]]
    assert first == sorted(first)
    assert {i_head for _, i_head in order[: n_blocks * side]} == set(range(side))
