"""Which tensors the tensor memory accelerator (TMA) can fetch tiles of."""

from __future__ import annotations

import torch
from triton.tools.ragged_tma import create_ragged_descriptor, load_ragged
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["TensorDescriptor", "create_ragged_descriptor", "describable", "load_ragged"]


def describable(tensor: torch.Tensor) -> bool:
    """Whether a TMA descriptor can hold this view: rows of stride 1, all else 16-byte steps."""
    size = tensor.element_size()
    return (
        tensor.numel() > 0
        and tensor.stride(-1) == 1
        and tensor.data_ptr() % 16 == 0
        and all(stride > 0 and stride * size % 16 == 0 for stride in tensor.stride()[:-1])
    )
