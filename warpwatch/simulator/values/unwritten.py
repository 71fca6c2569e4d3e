"""Which bytes of global memory somebody wrote, of tensors that were made empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class Unwritten:
    """Notes what host code makes and writes; kernels' stores are noted by their memory."""

    def __init__(self) -> None:
        # By address; the storage is kept, so that no other takes its place.
        self._made: dict[int, tuple[Any, np.ndarray]] = {}

    def watch(self, name: str, given: Any, named: Any, found: Any) -> None:
        """Note what one function of torch did.

        Args:
            name: The function's.
            given: Its arguments.
            named: Those that have names.
            found: Its result.
        """
        if name in _EMPTY and isinstance(found, torch.Tensor):
            storage = found.untyped_storage()
            self._made[storage.data_ptr()] = (storage, np.zeros(storage.nbytes(), np.bool_))
            return
        in_place = name.endswith("_") and not name.endswith("__")
        targets = [named["out"]] if named.get("out") is not None else []
        if in_place or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"):
            targets.append(given[0] if given else named.get("tensor"))
        for one in targets:
            for tensor in one if isinstance(one, tuple | list) else (one,):
                if isinstance(tensor, torch.Tensor):
                    # A part of it may be what is written: the rest counts as written, too.
                    self._made.pop(tensor.untyped_storage().data_ptr(), None)

    def mask(self, address: int) -> np.ndarray | None:
        """The bytes of a storage that were written, if it was made empty.

        Args:
            address: Where it begins.

        Returns:
            A truth value for every byte; nothing if all of it was written.
        """
        found = self._made.get(address)
        return None if found is None else found[1]


watched: list[Unwritten] = []  # the one that notes now, if any
