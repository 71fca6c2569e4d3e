"""What the compiler makes of attention's gradients on Hopper: nothing spilled or serialised."""

from __future__ import annotations

import pytest
import torch

from tests.hopper.recorded import backward, named_barriers, packed_backward
from warpwatch.instruments.compiled.measure.reading import read_code, read_codes

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128, "causal": True, "seqlen_k": 4096}, id="D128-causal"),
        pytest.param({"head_dim": 128, "dtype": torch.float16, "seqlen_k": 4096}, id="D128-fp16"),
        pytest.param({"head_dim": 80, "causal": True, "seqlen_k": 4096}, id="D80-causal"),
        pytest.param({"head_dim": 64}, id="D64"),
        pytest.param(
            {"head_dim": 64, "causal": True, "dtype": torch.float16}, id="D64-fp16-causal"
        ),
        pytest.param({"head_dim": 128, "seqlen_k": 4096}, id="D128"),
        pytest.param({"head_dim": 40, "causal": True, "seqlen_k": 1000}, id="D40-causal-K1000"),
        pytest.param(
            {"head_dim": 128, "causal": True, "window": 2000, "seqlen_k": 4000}, id="D128-window"
        ),
        pytest.param({"head_dim": 64, "causal": True, "window": 700}, id="D64-window"),
        pytest.param({"packed": True, "head_dim": 128, "causal": True}, id="packed-D128-causal"),
        pytest.param(
            {"packed": True, "head_dim": 64, "dtype": torch.float16}, id="packed-D64-fp16"
        ),
    ],
)
def test_backward_without_spills_or_advisories(options) -> None:
    options = dict(options)
    packed = options.pop("packed", False)
    recording = packed_backward(**options) if packed else backward(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    if packed:
        assert [names.pop(0), names.pop()] == ["list_tiles", "attention_backward_few"]
    names_wanted = [
        f"attention_backward_{part}" for part in ("hopper_prepare", "hopper", "hopper_convert")
    ]
    assert names == names_wanted
    codes = read_codes([launch.kernel for launch in recording.launches])
    for launch, code in zip(recording.launches, codes, strict=True):
        # Of packed sequences two numbers are spilled from block to block of keys, none in steps.
        assert code.spilled_bytes <= (8 if packed else 0)
        steps = [
            code.program.instructions[i] for loop in code.program.hot_loops for i in loop.indices
        ]
        assert steps or launch.kernel.name != "attention_backward_hopper"
        assert not any(one.opcode.startswith(("STL", "LDL")) for one in steps)
        assert code.advisories == ()
    ((kernel, code),) = (
        (launch.kernel, code)
        for launch, code in zip(recording.launches, codes, strict=True)
        if launch.kernel.name == "attention_backward_hopper"
    )
    assert code.tensor_level == 2  # wgmma
    # Triton's; our own, from 4 on, have registers.
    assert named_barriers(kernel) == {0, 1, 2}
    assert "mul.rn.bf16x2" not in kernel.texts["ptx"]  # weights times differences: in fp32
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128, "seqlen_k": 768}, id="D128"),
        pytest.param({"head_dim": 128, "causal": True}, id="D128-causal"),
        pytest.param({"head_dim": 128, "causal": True, "batch": 100}, id="D128-causal-many"),
        pytest.param({"head_dim": 128, "dtype": torch.float16, "seqlen_k": 700}, id="D128-fp16"),
        pytest.param(
            {"head_dim": 128, "dtype": torch.float16, "causal": True}, id="D128-fp16-causal"
        ),
        pytest.param({"head_dim": 72, "dtype": torch.float16, "seqlen_k": 600}, id="D72-fp16"),
        pytest.param({"head_dim": 96, "causal": True}, id="D96-causal"),
        pytest.param({"head_dim": 128, "causal": True, "window": 300}, id="D128-window"),
    ],
)
def test_backward_of_short_sequences_is_two_kernels_that_spill_nothing(options) -> None:
    recording = backward(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == [f"attention_backward_hopper_short_{part}" for part in ("q", "kv")]
    codes = read_codes([launch.kernel for launch in recording.launches])
    for launch, code, products in zip(recording.launches, codes, (20, 24), strict=True):
        assert code.spilled_bytes == 0
        assert code.advisories == ()
        assert code.tensor_level == 2  # wgmma
        loops = [
            [code.program.instructions[i].opcode for i in loop.indices]
            for loop in code.program.hot_loops
        ]
        # A product of 64 x 64 scores is 8 instructions, one of 64 x 128 is 4.
        counts = [sum(one.startswith("HGMMA") for one in loop) for loop in loops]
        assert set(counts) == {0, products}
        for absent in ("cp.reduce.async", "mul.rn.bf16x2"):
            assert absent not in launch.kernel.texts["ptx"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 256, "causal": True}, id="D256-causal"),
        pytest.param({"head_dim": 256, "dtype": torch.float16}, id="D256-fp16"),
        pytest.param({"head_dim": 136, "causal": True, "seqlen_k": 1000}, id="D136-causal-K1000"),
        pytest.param({"head_dim": 256, "causal": True, "window": 300}, id="D256-window"),
    ],
)
def test_backward_of_wide_heads_is_two_kernels_that_spill_nothing_in_their_loops(options) -> None:
    recording = backward(**options)
    assert recording.failures == ()
    parts = ("prepare", "kv", "q")
    names = [launch.kernel.name for launch in recording.launches]
    assert names == [f"attention_backward_hopper_{part}" for part in parts]
    codes = read_codes([launch.kernel for launch in recording.launches])
    for launch, code in zip(recording.launches, codes, strict=True):
        assert code.spilled_bytes <= 4  # ahead of a loop of dq: Triton 3.6 causal, 3.7 in a window
        assert code.advisories == ()
        loops = [
            [code.program.instructions[i].opcode for i in loop.indices]
            for loop in code.program.hot_loops
        ]
        assert not any(one.startswith(("STL", "LDL")) for loop in loops for one in loop)
        if launch is not recording.launches[0]:
            assert code.tensor_level == 2  # wgmma
            # A product of 64 x 64 scores is 16 instructions, one of 64 x 256 is 4.
            counts = {sum(one.startswith("HGMMA") for one in loop) for loop in loops}
            assert counts == ({0, 20} if launch.kernel.name.endswith("_kv") else {0, 36})
            ours = {8, 9} if launch.kernel.name.endswith("_kv") else set()
            assert named_barriers(launch.kernel) == {0, 1, 2} | ours


def test_nothing_of_backwards_steps_is_spilled_behind_an_incomplete_block() -> None:
    recording = backward(128, seqlen_k=4000)
    program = read_code(recording.launches[1].kernel).program
    opcodes = [program.instructions[i].opcode for loop in program.hot_loops for i in loop.indices]
    assert opcodes.count("UTMAREDG.2D.ADD") == 2  # each consumer adds its half of dq
    assert not any(opcode.startswith(("STL", "LDL")) for opcode in opcodes)
