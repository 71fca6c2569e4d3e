"""What the cases of many_launches launch, told without a GPU."""

from __future__ import annotations

import pytest
import torch

import kernels
from kernels.attention.common.addressing import Layout
from tests.hopper.recorded import SM_90
from tools.kernels.many_launches import CASES
from warpwatch.instruments.compiled.record.call import record


@pytest.mark.parametrize(
    ("name", "causal"),
    [("backward-D64-packed", False), ("backward-D128-packed-causal", True)],
)
def test_ten_thousand_launches_have_gradients_of_packed_sequences(name: str, causal: bool) -> None:
    recording = record(lambda: CASES[name]("cpu")[0](), SM_90)
    assert recording.failures == ()
    first, *passes = recording.launches[-4:]
    assert first.kernel.name == "list_tiles"
    names = ("prepare", "", "convert")
    assert [one.kernel.name for one in passes] == [
        f"attention_backward_hopper_{name}".removesuffix("_") for name in names
    ]
    assert passes[1].arguments["tiles"] is not None
    assert passes[1].arguments["CAUSAL"] is causal


@pytest.mark.parametrize("name", [one for one in CASES if one.startswith("forward-fp8-")])
def test_ten_thousand_launches_have_hoppers_attention_in_fp8(name: str) -> None:
    recording = record(lambda: CASES[name]("cpu")[0](), SM_90)
    assert recording.failures == ()
    names = [one.kernel.name for one in recording.launches]
    listed = ["clear_behind", "list_tiles"] if "packed" in name else []
    ours = ["attention_forward_fp8_hopper_prepare", "attention_forward_fp8_hopper"]
    assert names == [*listed, *ours]


def test_any_number_may_be_told_as_the_longest_sequence() -> None:
    def gradients(longest: int) -> list[tuple[str, object]]:
        def call() -> None:
            q, k, v = (torch.empty(801, 4, 64, dtype=torch.bfloat16) for _ in range(3))
            leaves = [one.requires_grad_() for one in (q, k, v)]
            ends = torch.empty(4, dtype=torch.int32)
            out = kernels.flash_attention_varlen(*leaves, ends, ends, longest, longest)
            torch.autograd.grad(out, leaves, torch.empty_like(out))

        recording = record(call, SM_90)
        assert recording.failures == ()
        return [(one.kernel.name, one.arguments.get("BLOCKS")) for one in recording.launches]

    found = gradients(2**31 - 1)
    assert found == gradients(801)
    assert ("attention_backward_hopper", None) in [(name, None) for name, _ in found]


def test_an_output_whose_columns_lie_far_apart_is_copied_before_hoppers_gradients() -> None:
    def call() -> None:
        q, k, v, dout = (torch.empty(1, 4096, 4, 128, dtype=torch.bfloat16) for _ in range(4))
        # 32 bits do not count 128 columns that are 17.8 million numbers apart; few are touched.
        out = torch.empty_strided(q.shape, (0, 4, 1, 17_800_000), dtype=q.dtype)
        kernels.flash_attention_backward(dout, q, k, v, out, torch.empty(1, 4, 4096))

    recording = record(call, SM_90)
    assert recording.failures == ()
    (first,) = [one for one in recording.launches if "prepare" in one.kernel.name]
    assert Layout(*first.arguments["strides"]).out[3] == 1
