"""Which e4m3 the current target multiplies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# CDNA 3 multiplies the e4m3 without a negative zero; every other target with fp8 takes OCP's.
_FNUZ = ("gfx940", "gfx941", "gfx942")


def fp8_flavour() -> torch.dtype:
    """Return the e4m3 of the target that Triton compiles for now.

    Returns:
        ``torch.float8_e4m3fnuz`` on CDNA 3, else ``torch.float8_e4m3fn``: also without a GPU, where
        the inputs of a reference are made.

    Example:
        >>> fp8_flavour()  # on a machine without a GPU
        torch.float8_e4m3fn
    """
    import torch
    from triton.runtime import driver

    try:
        target = driver.active.get_current_target()
    except RuntimeError:  # there is no GPU
        return torch.float8_e4m3fn
    is_fnuz = target.backend == "hip" and str(target.arch).split(":")[0] in _FNUZ
    return torch.float8_e4m3fnuz if is_fnuz else torch.float8_e4m3fn
