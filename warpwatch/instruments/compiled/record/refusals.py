"""Launches that every card of a target refuses, with the reason in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpwatch import devices
from warpwatch.config.targets import Target

from .arguments import tensor_of
from .known_values import Known

_TENSOR_MEMORY_COLUMNS = 512  # of an SM of sm_100; a block can have all of them
_MOST_CHARACTERS = 160  # of a configuration: an error is one line


def over_limit(metadata: Any, target: Target) -> str:
    """What of a block the device cannot hold, with the numbers; empty where it fits."""
    device = devices.load(target.device)
    asked = (
        (metadata.shared, device.shared_bytes_per_block, "bytes of shared memory"),
        (metadata.num_warps * device.warp_size, device.max_threads_per_block, "threads"),
        (
            getattr(metadata, "tmem_size", None) or 0,
            _TENSOR_MEMORY_COLUMNS,
            "columns of tensor memory",
        ),
    )
    return "; ".join(
        f"{needed} {what} a block, {target.device} has {limit}"
        for needed, limit, what in asked
        if needed > limit
    )


def of_launch(
    metadata: Any, target: Target, arguments: Mapping[str, Any], known: Known | None
) -> str:
    """Why one launch of a kernel that fits is refused; empty where it is not."""
    needed = getattr(metadata, "global_scratch_size", 0) or 0
    # Triton's launcher for AMD asks for none.
    if needed and target.backend == "cuda" and not _has_allocator():
        return (
            f"{needed} bytes of global memory a program are needed, and no allocator is set: "
            "call triton.set_allocator"
        )
    tensors = {name: tensor_of(value) for name, value in arguments.items()}
    lost = [
        name
        for name, one in tensors.items()
        if known is not None and one is not None and known.is_on_host(one)
    ]
    if lost:
        return f"{', '.join(lost)} {'lies' if len(lost) == 1 else 'lie'} on the host"
    return ""


def _has_allocator() -> bool:
    from triton.runtime import _allocation

    return not isinstance(_allocation._allocator.get(), _allocation.NullAllocator)


def configuration(kernel: Any) -> str:
    """What the code of a kernel was chosen by: its constants, warps and stages, as text."""
    source, metadata = kernel.src, kernel.metadata
    names = list(getattr(source.fn, "arg_names", ()))
    found = []
    for path, value in dict(getattr(source, "constants", {})).items():
        place = path[0] if isinstance(path, tuple) else path
        name = names[place] if isinstance(place, int) and place < len(names) else str(place)
        value = getattr(value, "value", value)
        if isinstance(value, bool | int | float | str):
            found.append(f"{name}={value}")
    for option in ("num_warps", "num_stages"):
        if hasattr(metadata, option):
            found.append(f"{option}={getattr(metadata, option)}")
    return ", ".join(found)[:_MOST_CHARACTERS]
