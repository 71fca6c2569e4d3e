"""Memory at the same addresses in every process, for compilers that order by address."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# Of Linux' personality(2), which belongs to a thread and what it starts.
_ASK = 0xFFFFFFFF
_NOT_RANDOM = 0x0040000


@contextmanager
def fixed() -> Iterator[None]:
    """What this thread starts finds its memory at the same addresses every time.

    The ptxas of CUDA 13.1 chooses registers by where its memory lies: of one PTX it makes either of
    two codes. Where the system cannot or may not do so (Docker's default seccomp profile forbids
    it) nothing changes.
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is None:
        yield
        return
    personality.argtypes = (ctypes.c_ulong,)
    before = personality(_ASK)
    changed = before != -1 and personality(before | _NOT_RANDOM) != -1
    try:
        yield
    finally:
        if changed:
            personality(before)
