"""Exact attention that never writes the score matrix to memory."""

from .interface import flash_attention, flash_attention_backward
from .kvcache import flash_attention_kvcache
from .sdpa import scaled_dot_product_attention
from .varlen import flash_attention_varlen

__all__ = [
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_kvcache",
    "flash_attention_varlen",
    "scaled_dot_product_attention",
]
