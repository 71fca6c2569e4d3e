"""Which e4m3 the current target multiplies."""

from __future__ import annotations

from typing import Any


def fp8_flavour() -> Any:
    """The e4m3 of the current target, a torch.dtype: OCP's where it has none, or there is no GPU.

    A commit before fp8 has no list of flavours: its kernel then says that it knows no scales.
    """
    import torch

    from kernels.runtime import targets

    try:
        flavours = getattr(targets.current(), "fp8_dtypes", ())
    except RuntimeError:  # no GPU: the inputs of a reference
        flavours = ()
    return (*flavours, torch.float8_e4m3fn)[0]
