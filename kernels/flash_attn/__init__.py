"""FlashAttention's own functions: a model switches with one import.

Names, order of arguments and defaults are those of the package ``flash_attn``, version 2. Those of
FlashAttention-3, whose module is ``flash_attn_interface``, are in ``kernels.flash_attn.fa3``.
"""

import kernels.public  # noqa: F401  (it says how many operations ours take)

from .fa2.decoding import flash_attn_with_kvcache
from .fa2.dense import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from .fa2.varlen import (
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
