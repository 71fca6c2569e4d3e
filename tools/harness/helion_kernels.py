"""Kernels written in Helion, for ``tools.harness.third_party_operators`` and its table helion.toml.

Helion's wheel holds no kernels. These are written as users write them: with a configuration, with
the default one, and with none, which Helion would tune on a card.
"""

from __future__ import annotations

import helion  # type: ignore[import-not-found]
import helion.language as hl  # type: ignore[import-not-found]
import torch


@helion.kernel(config=helion.Config(block_sizes=[64, 64, 32]))
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product with a configuration."""
    rows, inner = x.size()
    _, columns = y.size()
    out = torch.empty([rows, columns], dtype=x.dtype, device=x.device)
    for row, column in hl.tile([rows, columns]):
        sums = hl.zeros([row, column], dtype=torch.float32)
        for step in hl.tile(inner):
            sums = torch.addmm(sums, x[row, step], y[step, column])
        out[row, column] = sums
    return out


@helion.kernel(autotune_effort="none")
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A reduction with the default configuration."""
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        values = x[row, :].to(torch.float32)
        scale = torch.rsqrt((values * values).mean(-1, keepdim=True) + 1e-6)
        out[row, :] = (values * scale * weight[:]).to(x.dtype)
    return out


@helion.kernel()
def softmax(x: torch.Tensor) -> torch.Tensor:
    """A softmax of rows, without a word of configurations."""
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        out[row, :] = torch.nn.functional.softmax(x[row, :], dim=1)
    return out


@helion.kernel()
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """A pointwise kernel, without a word of configurations."""
    out = torch.empty_like(gate)
    for at in hl.tile(out.size()):
        out[at] = torch.nn.functional.silu(gate[at].to(torch.float32)).to(out.dtype) * up[at]
    return out
