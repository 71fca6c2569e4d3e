"""Every public function, with what it needs of torch in place."""

from kernels.runtime.targets import check_hopper_features

from .attention import (
    flash_attention,
    flash_attention_backward,
    flash_attention_kvcache,
    flash_attention_varlen,
    scaled_dot_product_attention,
)
from .matmul import grouped_matmul, matmul
from .runtime import flops

flops.register()

triton_matmul = matmul  # the name that the guide's users call

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
