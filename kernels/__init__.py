"""FlashAttention and matmul in Triton, for NVIDIA and AMD.

To import this package costs nothing and changes nothing. Operators are added to torch, and Triton's
interpreter is mended, when one of its functions is first looked up.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.runtime.targets import check_hopper_features

    from .attention import (
        flash_attention,
        flash_attention_backward,
        flash_attention_kvcache,
        flash_attention_varlen,
        scaled_dot_product_attention,
    )
    from .matmul import grouped_matmul, matmul
    from .matmul import matmul as triton_matmul  # the name that the guide's users call

__all__ = [
    "check_hopper_features",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_kvcache",
    "flash_attention_varlen",
    "grouped_matmul",
    "matmul",
    "scaled_dot_product_attention",
    "triton_matmul",
]


class _Package(ModuleType):
    """Finds each function when it is first looked up. ``matmul`` is one, and a package too: its
    import does not replace the function."""

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.public"), name)
        vars(self)[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "matmul" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
