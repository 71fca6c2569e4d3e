"""What the compiler makes of attention on Hopper: wgmma, TMA, nothing spilled or serialised."""

from __future__ import annotations

import pytest
import torch

from tests.hopper.recorded import (
    attention,
    check_specialised,
    named_barriers,
    only_kernel,
    packed,
)
from warpwatch.instruments.compiled.measure.reading import read_code

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(lambda: attention(64, causal=True), id="attention-D64-causal-one-tile"),
        pytest.param(lambda: attention(64), id="attention-D64-one-tile"),
        pytest.param(
            lambda: attention(64, causal=True, seqlen_q=1100), id="attention-D64-causal-groups"
        ),
        pytest.param(
            lambda: attention(128, causal=True, seqlen_q=2100), id="attention-D128-causal-pairs"
        ),
        pytest.param(lambda: attention(64, seqlen_q=1100), id="attention-D64"),
        pytest.param(
            lambda: attention(64, seqlen_q=1100, seqlen_k=256), id="attention-D64-one-block"
        ),
        pytest.param(
            lambda: attention(64, causal=True, seqlen_q=512, batch=8), id="attention-D64-causal"
        ),
        pytest.param(lambda: attention(64, seqlen_q=512), id="attention-D64-one-warpgroup"),
        pytest.param(lambda: attention(48, seqlen_q=2100), id="attention-D48"),
        pytest.param(lambda: attention(128, dtype=torch.float16), id="attention-D128-fp16"),
        pytest.param(lambda: attention(96, causal=True), id="attention-D96-causal"),
        pytest.param(
            lambda: attention(256, causal=True, seqlen_q=1100), id="attention-D256-causal"
        ),
        pytest.param(
            lambda: attention(128, causal=True, window=500), id="attention-D128-causal-window"
        ),
    ],
)
def test_warp_specialised_code_without_spills_or_advisories(recorded) -> None:
    check_specialised(only_kernel(recorded()), "attention_forward_hopper")


@pytest.mark.parametrize(
    ("options", "triton", "ours"),
    [
        pytest.param({"head_dim": 128}, {0, 1, 2}, {8, 9}, id="two-warpgroups"),
        pytest.param(
            {"head_dim": 64, "seqlen_q": 1100}, {0, 1, 2, 3}, {8, 9, 10}, id="three-warpgroups"
        ),
    ],
)
def test_turns_have_barriers_that_triton_does_not_use(options, triton, ours) -> None:
    assert named_barriers(only_kernel(attention(**options))) == triton | ours


@pytest.mark.parametrize(
    ("options", "grid"),
    [
        pytest.param({}, (8, 8, 2), id="two-warpgroups"),
        pytest.param({"seqlen_q": 500, "causal": True}, (8, 8, 2), id="one-warpgroup"),
        pytest.param({"seqlen_q": 1100}, (132, 1, 1), id="more-tiles-than-multiprocessors"),
    ],
)
def test_few_tiles_are_a_grid(options, grid) -> None:
    assert attention(64, **options).launches[0].grid == grid


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64}, id="D64"),
        pytest.param({"head_dim": 64, "causal": True}, id="D64-causal"),
        pytest.param({"head_dim": 64, "causal": True, "longest": 4096}, id="D64-causal-long"),
        pytest.param({"head_dim": 80, "causal": True}, id="D80-causal"),
        pytest.param({"head_dim": 128, "dtype": torch.float16}, id="D128-fp16"),
        pytest.param({"head_dim": 256}, id="D256"),
        pytest.param({"head_dim": 256, "causal": True, "longest": 64}, id="D256-causal-short"),
        pytest.param(
            {"head_dim": 128, "causal": True, "window_size": (500, -1)}, id="D128-causal-window"
        ),
    ],
)
def test_packed_sequences_are_listed_and_then_as_good(options) -> None:
    recording = packed(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["clear_behind", "list_tiles", "attention_forward_hopper"]
    code = read_code(recording.launches[2].kernel)
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()


def test_inner_loop_of_attention_carries_p_packed() -> None:
    """The reason is told in hopper_pairs.py: unpacked, PRMT joins every pair again."""
    kernel = only_kernel(attention(128, causal=True))
    program = read_code(kernel).program
    for loop in program.hot_loops:
        opcodes = [program.instructions[i].opcode for i in loop.indices]
        assert not any(opcode.startswith("PRMT") for opcode in opcodes)
