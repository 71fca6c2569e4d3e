"""What asv's classes are called."""

from __future__ import annotations

import re


def class_name(kernel: str) -> str:
    """Name the class of a kernel's benchmarks.

    Args:
        kernel: A name below the package; dots and colons separate its parts.

    Returns:
        The parts in capitals, joined: published series are called so.

    Example:
        >>> class_name("flash_attention"), class_name("ops.norm:rms_norm"), class_name("")
        ('FlashAttention', 'OpsNormRmsNorm', 'Workloads')
    """
    parts = [part for part in re.split(r"[_.:]", kernel) if part]
    return "".join(part.capitalize() for part in parts) or "Workloads"
