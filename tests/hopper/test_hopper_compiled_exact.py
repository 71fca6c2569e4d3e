"""What the compiler makes of the kernel that corrects gradients on Hopper: nothing spilled up to
head dim 128."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.attention.hopper.backward.heavy_rows.plan import MOST, SOME
from kernels.runtime import targets
from tests.hopper.recorded import corrected, only_kernel
from warpwatch.instruments.compiled.measure.reading import read_code

pytestmark = pytest.mark.sampled(of=2)

CASES: dict[str, dict[str, Any]] = {
    "D64": {"head_dim": 64, "dlse": True},
    "D64-causal": {"head_dim": 64, "causal": True, "kv_heads": 2},
    "D128-fp16": {"head_dim": 128, "dtype": torch.float16},
    "D96-window": {"head_dim": 96, "causal": True, "left_offset": -300, "kv_heads": 2},
    "D64-packed": {"head_dim": 64, "packed": True},
    "D256-causal": {"head_dim": 256, "causal": True},
    "D128-packed-causal": {"head_dim": 128, "packed": True, "causal": True, "dlse": True},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_specialised_and_spills_nothing(case: str) -> None:
    kernel = only_kernel(corrected(**CASES[case]))
    assert kernel.name == "attention_backward_hopper_marked"
    code = read_code(kernel)
    assert code.spilled_bytes <= (16 if "D256" in case else 0)
    assert code.advisories == ()
    assert code.tensor_level == 2  # wgmma
    for feature in ("setmaxnreg", "cp.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]


def test_no_program_has_more_blocks_than_it_has_numbers_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "multiprocessors", lambda: 1)
    most = SOME.value * MOST.value
    for heads, programs in ((most, 1), (most + 1, 2)):
        (launch,) = corrected(64, heads=heads, tokens=64).launches
        assert launch.grid == (programs, 1, 1)
