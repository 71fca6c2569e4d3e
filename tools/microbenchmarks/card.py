"""Loads machine code onto the card and runs it, through the driver and nothing else."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Sequence
from typing import Any

from .programs.benchmark import Data

_POINTER = 8
_LINE = 128
# Bytes of what each kind of data lies in.
_SIZES: dict[Data, int] = {
    "none": 4096,
    "zeros": 1 << 20,
    "first cache": 16 << 10,
    "L2": 1 << 20,
    "memory": 512 << 20,
    "stream": 512 << 20,
}
_FLUSHED = 256 << 20  # more than L2 holds
_LINKS = 8192  # of the chain through memory; it is never walked to its end
_ATTRIBUTES = {"major": 75, "minor": 76}


class CardError(RuntimeError):
    """The driver refused, or a kernel failed."""


class Card:
    """The first card that the driver shows, with a context of its own."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            CardError: There is no driver, or no card.
        """
        try:
            self._driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CardError(f"no NVIDIA driver: {error}") from None
        self._call("cuInit", 0)
        self._device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._flushed: ctypes.c_uint64 | None = None

    def _call(self, name: str, *arguments: Any) -> None:
        failed = getattr(self._driver, name)(*arguments)
        if failed:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(failed, ctypes.byref(text))
            raise CardError(f"{name}: {(text.value or b'').decode()} ({failed})")

    @property
    def name(self) -> str:
        """As the driver spells it."""
        found = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", found, 256, self._device)
        return found.value.decode()

    @property
    def architecture(self) -> int:
        """Such as 90."""
        return 10 * self._attribute("major") + self._attribute("minor")

    def _attribute(self, name: str) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), _ATTRIBUTES[name], self._device)
        return value.value

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """Load a module.

        Args:
            cubin: Its machine code.

        Returns:
            Its handle.

        Raises:
            CardError: It is not for this card.
        """
        found = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(found), cubin)
        return found

    def allocate(self, nbytes: int) -> ctypes.c_uint64:
        """Take device memory, all zeros.

        Args:
            nbytes: How much.

        Returns:
            Its address.

        Raises:
            CardError: There is none left.
        """
        found = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(nbytes))
        self._call("cuMemsetD8_v2", found, 0, ctypes.c_size_t(nbytes))
        return found

    def free(self, place: ctypes.c_uint64) -> None:
        """Give device memory back.

        Args:
            place: Its address.

        Raises:
            CardError: It was none of ours.
        """
        self._call("cuMemFree_v2", place)

    def prepare(self, data: Data) -> ctypes.c_uint64:
        """Make what a benchmark finds in device memory.

        Args:
            data: Its kind.

        Returns:
            Its address.

        Raises:
            CardError: There is no room.
        """
        place = self.allocate(_SIZES[data])
        for at, pointer in chain(data, place.value):
            cell = struct.pack("<Q", pointer)
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(at), cell, ctypes.c_size_t(_POINTER))
        return place

    def flush(self) -> None:
        """Fill L2 with something else.

        Raises:
            CardError: There is no room.
        """
        if self._flushed is None:
            self._flushed = self.allocate(_FLUSHED)
        self._call("cuMemsetD8_v2", self._flushed, 0, ctypes.c_size_t(_FLUSHED))
        self._call("cuCtxSynchronize")

    def run(
        self,
        loaded: ctypes.c_void_p,
        count: int,
        threads: int,
        data: ctypes.c_uint64,
        rounds: int,
        blocks: int = 1,
    ) -> list[tuple[int, int]]:
        """Run a kernel.

        Args:
            loaded: The module.
            count: Steps of the kernel.
            threads: Of its block.
            data: What :meth:`prepare` made.
            rounds: How often it runs its steps.
            blocks: More than one only to warm the card up.

        Returns:
            The clock before and after the last round, of each warp.

        Raises:
            CardError: It failed, or gave up waiting.
        """
        kernel = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(kernel), loaded, b"steps_%d" % count)
        warps = -(-threads // 32)
        out = self.allocate(2 * _POINTER * warps)
        values = (out, data, ctypes.c_uint32(rounds), ctypes.c_uint32(0))
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in values)
        )
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        self._call("cuLaunchKernel", kernel, *grid, *block, 0, None, pointers, None)
        self._call("cuCtxSynchronize")
        read = (ctypes.c_uint64 * (2 * warps))()
        self._call("cuMemcpyDtoH_v2", read, out, ctypes.c_size_t(ctypes.sizeof(read)))
        self.free(out)
        found = list(zip(read[::2], read[1::2], strict=True))
        if not all(start and end for start, end in found):
            raise CardError("the kernel gave up waiting")
        return found


def chain(data: Data, start: int) -> Sequence[tuple[int, int]]:
    """Order pointers so that no prefetcher foresees them.

    Args:
        data: A kind that is a chain; others have no pointers.
        start: The address of the first.

    Returns:
        Addresses, and the address that is written there.
    """
    if data not in ("first cache", "L2", "memory"):
        return []
    lines = _SIZES[data] // _LINE
    order = random.Random(1).sample(range(1, lines), min(lines, _LINKS) - 1)
    places = [start + _LINE * one for one in (0, *order)]
    return list(zip(places, [*places[1:], start], strict=True))


def rounds(data: Data, count: int) -> int:
    """Say how often a kernel runs its steps before the round that is kept, and with it.

    Args:
        data: What it reads.
        count: Its steps.

    Returns:
        At least two: the first brings the code. A chain that a cache holds is walked once before.
    """
    if data in ("memory", "stream"):
        return 2
    walked = _SIZES[data] // _LINE if data in ("first cache", "L2") else 0
    return 3 + -(-walked // max(count, 1))
