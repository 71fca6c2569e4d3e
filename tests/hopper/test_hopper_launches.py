"""What the cases of many_launches launch, told without a GPU."""

from __future__ import annotations

import pytest

from benchmarks.instruments.compiled import record
from tests.hopper.many_launches import CASES
from tests.hopper.recorded import SM_90


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
