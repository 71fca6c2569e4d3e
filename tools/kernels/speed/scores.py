"""What softcap, ALiBi, sinks, a bias, dropout and block masks cost attention, on one GPU.

    python -m tools.kernels.speed.scores

Forward pass and gradients over 4 x 4096 tokens, 16 heads, head dim 128, bf16, causal, by turns as
in ``portable.py``: against attention without options by the portable kernel, which serves all of
them, and as it serves on this card. Half of a block mask's blocks are open, those of the diagonal
among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

from tests.kernels.on_card import portable
from tools.kernels.speed.portable import DEVICE, Clock

B, S, H, D = 4, 4096, 16, 128


def options() -> dict[str, dict[str, Any]]:
    """The arguments each of them adds."""
    each = S // 128
    mask = torch.rand(B, H, each, each, device=DEVICE) < 0.5
    mask |= torch.eye(each, dtype=torch.bool, device=DEVICE)
    return {
        "softcap": {"softcap": 30.0},
        "ALiBi": {"alibi_slopes": torch.rand(H, device=DEVICE)},
        "sinks": {"sinks": torch.randn(H, device=DEVICE)},
        "bias of heads": {"bias": torch.randn(1, H, S, S, device=DEVICE).bfloat16()},
        "dropout": {"dropout_p": 0.1, "dropout_seed": 7},
        "block mask, half open": {"block_mask": mask},
    }


def calls_of(only_portable: bool, more: dict[str, Any]) -> tuple[Callable[[], Any], ...]:
    """The forward pass, and the gradients of q, k and v of one such."""
    import kernels

    q, k, v = (torch.randn(B, S, H, D, device=DEVICE).bfloat16().requires_grad_() for _ in range(3))
    dout = torch.randn(B, S, H, D, device=DEVICE).bfloat16()
    with portable(only_portable):
        out: Any = kernels.flash_attention(q, k, v, causal=True, **more)

    def forward() -> None:
        with torch.no_grad(), portable(only_portable):
            kernels.flash_attention(q, k, v, causal=True, **more)

    def backward() -> None:
        with portable(only_portable):
            torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return forward, backward


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.speed.scores")
    parser.add_argument("--rounds", type=int, default=9)
    clock = Clock(parser.parse_args(given).rounds)
    cases = {"as it serves": calls_of(False, {}), "portable": calls_of(True, {})}
    cases |= {name: calls_of(True, more) for name, more in options().items()}
    for which, kind in enumerate(("forward", "backward")):
        times = clock.medians(*(calls[which] for calls in cases.values()))
        for name, us in zip(cases, times, strict=True):
            print(
                f"{kind:<9}{name:<24}{us:9.1f} us  {us / times[1]:5.2f} of the portable kernel "
                f"without options, {us / times[0]:5.2f} of what serves without",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
