"""What tests of Hopper's kernels share."""

from __future__ import annotations

import pytest
import torch

from kernels.runtime.targets import current


@pytest.fixture
def on_hopper() -> None:
    """Skips elsewhere; what is drawn does not hang on what ran before."""
    if not current().has_wgmma:
        pytest.skip(f"the kernels are for Hopper, this GPU is {current().name}")
    torch.manual_seed(0)
