"""Makes the arguments of a call from what the configuration or the command line says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpwatch.config.arguments import TensorSpec

if TYPE_CHECKING:
    import torch


def made(
    value: Any, device: str, *, backward: bool = False, generator: torch.Generator | None = None
) -> Any:
    """Make one argument.

    Args:
        value: A specification, a list of them, or a plain value that stays as it is.
        device: Where tensors lie.
        backward: Whether tensors with floating-point values require a gradient.
        generator: Draws values; without one memory is not written, and integers are 0.

    Returns:
        The argument.
    """
    if isinstance(value, list | tuple):
        return type(value)(
            made(one, device, backward=backward, generator=generator) for one in value
        )
    if not isinstance(value, TensorSpec):
        return value
    import torch

    dtype = getattr(torch, value.dtype)
    if value.values is not None:
        return torch.tensor(value.values, dtype=dtype, device=device)
    if not (dtype.is_floating_point or dtype.is_complex):
        if value.below and generator is not None:
            drawn = torch.randint(value.below, value.shape, generator=generator, device=device)
            return drawn.to(dtype)
        return torch.zeros(value.shape, dtype=dtype, device=device)
    if generator is None:
        tensor = torch.empty(value.shape, dtype=dtype, device=device)
    else:
        tensor = torch.randn(value.shape, generator=generator, device=device).to(dtype)
    return tensor.requires_grad_() if backward and value.gradient else tensor
