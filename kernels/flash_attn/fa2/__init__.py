"""FlashAttention-2's functions, in the order of arguments of its package ``flash_attn``."""
