"""Keys, values and biases that no loads of 16 bytes fetch: nothing spills."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels
from tests.kernels.on_card import portable
from warpwatch.config.targets import get
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.record import driver

pytestmark = pytest.mark.sampled

BF16 = torch.bfloat16
TOKENS = 1000


def attended(
    head_dim: int,
    *,
    odd: bool = False,
    kv_heads: int = 2,
    window: int = -1,
    backward: bool = True,
    tokens: int = TOKENS,
    **options: Any,
) -> None:
    """Two causal sequences of eight heads; with ``odd`` rows of keys and values lie an odd number
    of elements apart."""
    q = torch.empty(2, tokens, 8, head_dim, dtype=BF16)
    k, v = torch.empty(2, 2, tokens, kv_heads, head_dim + odd, dtype=BF16).unbind()
    leaves = [one.requires_grad_(backward) for one in (q, k[..., :head_dim], v[..., odd:])]
    limits = {"window_size": (window, 0)} if window >= 0 else {}
    out = kernels.flash_attention(*leaves, causal=True, **limits, **options)
    if backward:
        torch.autograd.grad(out, leaves, torch.empty_like(out))


# Before they had tiles of their own up to 1496 bytes were spilled, under Triton 3.6.0 or 3.7.1.
@pytest.mark.parametrize(
    ("target", "head_dim", "options"),
    [
        ("sm_80", 64, {"odd": True}),
        ("sm_80", 128, {"odd": True, "window": 200}),
        ("sm_90", 128, {"odd": True}),
        ("sm_100", 64, {"odd": True, "window": 200, "backward": False}),
        ("sm_100", 128, {"odd": True, "window": 200, "backward": False}),
        ("gfx950", 128, {"odd": True, "window": 200, "backward": False}),
        ("sm_100", 128, {"bias": torch.empty(8, 1024, 1, dtype=BF16), "tokens": 1024}),
        ("sm_90", 64, {"bias": torch.empty(8, TOKENS, TOKENS)}),
        ("sm_80", 64, {"bias": torch.empty(8, TOKENS, TOKENS, dtype=BF16), "dropout_p": 0.1}),
    ],
    ids=[
        "sm_80-64",
        "sm_80-128-window",
        "sm_90-128",
        "sm_100-64",
        "sm_100-128",
        "gfx950",
        "sm_100-by-row",
        "sm_90-fp32",
        "sm_80-dropout",
    ],
)
def test_what_no_loads_of_16_bytes_fetch_spills_nothing(
    target: str, head_dim: int, options: dict[str, Any]
) -> None:
    with portable(), driver.active(get(target)) as recorder:
        attended(head_dim, **options)
    assert recorder.failures == []
    ours = [one.kernel for one in recorder.launches if one.kernel.name.startswith("attention_")]
    assert len(ours) >= (3 if options.get("backward", True) else 1)
    for kernel, code in zip(ours, reading.read_codes(ours), strict=True):
        assert code.spilled_bytes == 0, kernel.name
        assert code.advisories == (), kernel.name
