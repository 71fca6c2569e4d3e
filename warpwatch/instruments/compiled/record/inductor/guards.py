"""A device guard for builds of torch that have none for CUDA.

Torch's tracing asks for the guard of a tensor's device, to find its stream, and ends the process
where the build has none. A build with CUDA on a machine without a card gets one of torch's that
does nothing, from torch itself. Here a build without CUDA gets such a guard for as long as calls
are recorded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

# c10::impl::device_guard_impl_registry holds one pointer for each kind of device.
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CPU, _CUDA = 0, 1


@contextmanager
def for_cuda() -> Iterator[None]:
    """Inside, ``cuda:0`` has a guard that does nothing, where it has no other: that of the CPU.

    Raises:
        ImportError: Torch keeps its guards elsewhere.
    """
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        guards = (ctypes.c_void_p * 2).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        raise ImportError(f"{library.name} names no device guards") from error
    if guards[_CUDA]:
        yield
        return
    guards[_CUDA] = guards[_CPU]
    try:
        yield
    finally:
        guards[_CUDA] = None
