"""Which values of a recorded call are real, and which nobody computed.

Only small operations on real values are computed while a call is recorded. Memory that was never
written, results of large operations and whatever a kernel stores are unknown: a loop bound must not
be read from them. Small pieces of memory are followed byte by byte, because tables are often made
in parts (``cu_seqlens[1:] = lengths.cumsum(0)``); large ones as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Lengths, offsets and block tables are this small.
FOLLOWED_BYTES = 1 << 20


class Known:
    """Tensors that were not made under the recorder are known: someone made them on purpose."""

    def __init__(self) -> None:
        # A weak reference keeps the number of a storage from being used again.
        self._storages: dict[int, tuple[object, np.ndarray | bool]] = {}
        self._on_host: dict[int, object] = {}
        # Of inputs and of what stands at module level nobody knows where it is meant to lie.
        self.follows_host = False

    def put(self, tensor: torch.Tensor, *, on_host: bool) -> None:
        """From now on ``tensor`` lies in memory that no kernel reaches, or it does not."""
        storage = _storage(tensor)
        if on_host:
            reference: Any = StorageWeakRef
            self._on_host[storage._cdata] = reference(storage)
        else:
            self._on_host.pop(storage._cdata, None)

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Whether host code made ``tensor`` without a word of a device."""
        return _storage(tensor)._cdata in self._on_host

    def __call__(self, tensor: torch.Tensor) -> bool:
        """Whether all of ``tensor`` is known."""
        state = self._state(tensor)
        return state if isinstance(state, bool) else bool(_bytes_of(tensor, state).all())

    def mark(self, tensor: torch.Tensor, known: bool) -> None:
        """From now on all of ``tensor`` is known, or is not."""
        state = self._state(tensor)
        if isinstance(state, bool):
            if state == known:
                return
            storage = _storage(tensor)
            if storage.nbytes() > FOLLOWED_BYTES:
                if known and not _is_whole(tensor, storage.nbytes()):
                    return  # the rest is not
                self._keep(storage, known)
                return
            state = np.full(storage.nbytes(), state)
            self._keep(storage, state)
        _bytes_of(tensor, state)[...] = known

    def table(self, tensor: torch.Tensor) -> np.ndarray | None:
        """The memory from where ``tensor`` starts to the end of its storage, in its elements, those
        that are unknown masked; ``None`` where all of it is, or where it is too large to be a table
        of lengths. A kernel reaches elements by its own strides, not by the tensor's."""
        storage = _storage(tensor)
        start, size = tensor.storage_offset() * tensor.element_size(), tensor.element_size()
        count = (storage.nbytes() - start) // size
        if not 0 < count <= FOLLOWED_BYTES // size or tensor.device.type != "cpu":
            return None
        state = self._state(tensor)
        if state is False:
            return None
        values: np.ndarray = tensor.detach().as_strided((count,), (1,)).numpy().copy()
        if state is True:
            return values
        unknown = ~state[start : start + count * size].reshape(count, size).all(1)
        if unknown.all():
            return None
        masked: Any = np.ma.masked_array
        return masked(values, unknown) if unknown.any() else values

    def numbers(self, tensor: torch.Tensor) -> list[int]:
        """All of ``tensor``, which is known and lies in one piece."""
        found: list[int] = _elements(tensor).tolist()
        return found

    def fill(self, tensor: torch.Tensor, table: list[int]) -> None:
        """``tensor``, in one piece, holds ``table`` and zeros behind it."""
        elements = _elements(tensor)
        elements[: len(table)] = table
        elements[len(table) :] = 0
        self.mark(tensor, True)

    def _state(self, tensor: torch.Tensor) -> np.ndarray | bool:
        storage = _storage(tensor)
        found = self._storages.get(storage._cdata)
        if found is None:
            return True
        state = found[1]
        if not isinstance(state, bool) and state.size < storage.nbytes():  # it was resized
            state = np.append(state, np.zeros(storage.nbytes() - state.size, dtype=bool))
            self._keep(storage, state)
        return state

    def _keep(self, storage: Any, state: np.ndarray | bool) -> None:
        reference: Any = StorageWeakRef
        self._storages[storage._cdata] = (reference(storage), state)


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()


def _elements(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor, in its elements, to read and to write."""
    elements: np.ndarray = tensor.detach().as_strided((tensor.numel(),), (1,)).numpy()
    return elements


def _is_whole(tensor: torch.Tensor, nbytes: int) -> bool:
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() == nbytes


def _bytes_of(tensor: torch.Tensor, state: np.ndarray) -> np.ndarray:
    """The part of a storage's ``state`` that belongs to ``tensor``."""
    size = tensor.element_size()
    return np.lib.stride_tricks.as_strided(
        state[tensor.storage_offset() * size :],
        (*tensor.shape, size),
        (*(stride * size for stride in tensor.stride()), 1),
    )
