"""The functions of FlashAttention-3's module ``flash_attn_interface``, in its order of arguments.

``pack_gqa``, ``sm_margin``, ``scheduler_metadata`` and, but for decoding, ``num_splits`` choose how
FlashAttention-3 works and not what it gives: they are accepted, and decide nothing here.
"""

from .attention import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from .decoding import flash_attn_combine, flash_attn_with_kvcache, get_scheduler_metadata

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]
