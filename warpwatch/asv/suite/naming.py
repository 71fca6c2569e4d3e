"""What asv's classes and what they measure are called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from warpwatch.workload.base import Workload

DEFINITIONS = "definitions"
ON_HOST = ("host", "cold start")  # instruments whose values need no GPU


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


def kernel_of(workloads: Sequence[Workload]) -> str:
    """Name what a class measures, for people: reports show it in the place of the class.

    Args:
        workloads: Those of the class.

    Returns:
        The kernel that they share; empty where there are several.
    """
    kernels = {one.kernel for one in workloads}
    return kernels.pop() if len(kernels) == 1 else ""


def definitions(workloads: Sequence[Workload], on_gpu: bool = False) -> dict[str, list[str]]:
    """Say what the values of a benchmark are of: `history` compares it with what it was before.

    Args:
        workloads: Those of the class, in the order of the parameter.
        on_gpu: Whether the values rest on what answers are checked by, and on the operations.

    Returns:
        The attribute of the benchmark; none where no workload says what it calls.
    """
    found = [one.definition for one in workloads]
    if on_gpu:
        found = [
            f"{text}; {one.checked_by}" if text and one.checked_by else text
            for text, one in zip(found, workloads, strict=True)
        ]
    return {DEFINITIONS: found} if any(found) else {}
