"""What the compiler makes of the kernel that corrects gradients on Hopper: nothing spilled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.instruments.compiled.reading import read_code
from tests.hopper.recorded import corrected, only_kernel

CASES: dict[str, dict[str, Any]] = {
    "D64": {"head_dim": 64, "dlse": True},
    "D64-causal": {"head_dim": 64, "causal": True, "kv_heads": 2},
    "D128-fp16": {"head_dim": 128, "dtype": torch.float16},
    "D96-window": {"head_dim": 96, "causal": True, "left_offset": -300, "kv_heads": 2},
    "D64-packed": {"head_dim": 64, "packed": True},
    "D128-packed-causal": {"head_dim": 128, "packed": True, "causal": True, "dlse": True},
}


@pytest.mark.parametrize("case", CASES)
def test_it_spills_nothing(case: str) -> None:
    kernel = only_kernel(corrected(**CASES[case]))
    assert kernel.name == "attention_backward_hopper_marked"
    code = read_code(kernel)
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    assert code.tensor_level == 2  # wgmma
    for feature in ("setmaxnreg", "cp.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]
