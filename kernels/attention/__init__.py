"""Exact attention that never writes the score matrix to memory."""

from kernels.attention.api.dense import flash_attention, flash_attention_backward
from kernels.attention.api.kvcache import flash_attention_kvcache
from kernels.attention.api.sdpa import scaled_dot_product_attention
from kernels.attention.api.varlen import flash_attention_varlen
from kernels.runtime import targets

targets.mend_interpreter()

__all__ = [
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_kvcache",
    "flash_attention_varlen",
    "scaled_dot_product_attention",
]
