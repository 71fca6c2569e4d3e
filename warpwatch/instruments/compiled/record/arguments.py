"""What a kernel was given, described without keeping tensors alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from warpwatch.instruments.compiled.formats.recording import (
    Argument,
    DescriptorArgument,
    TensorArgument,
)

if TYPE_CHECKING:
    import torch

    from .known_values import Known


def describe(value: Any, known: Known | None) -> Argument:
    """A frozen description of one launch argument; without ``known``, of no tensor's values."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(describe(one, known) for one in value)
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        base = describe(value.base, known)
        assert isinstance(base, TensorArgument)
        return DescriptorArgument(
            base=base,
            shape=_ints(value.shape),
            strides=_ints(value.strides),
            block_shape=_ints(value.block_shape),
        )
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _tensor(value, known)
    if hasattr(value, "value"):  # a constexpr
        return describe(value.value, known)
    return str(value)


def tensor_of(value: Any) -> torch.Tensor | None:
    """The tensor behind an argument (a pointer, Triton's own wrapper, a descriptor), if any."""
    import torch

    while not isinstance(value, torch.Tensor):
        if not hasattr(value, "base"):
            return None
        value = value.base
    return value


def _tensor(value: Any, known: Known | None) -> TensorArgument:
    import torch

    from warpwatch.instruments.compiled.record.torch.traffic import distinct_bytes

    dtype = str(value.dtype).removeprefix("torch.")
    with torch._C.DisableTorchFunction():
        tensor = tensor_of(value)
        if tensor is None:
            return TensorArgument(dtype, (), (), 0, int(value.data_ptr()))
        # Triton's own wrapper reinterprets the dtype.
        whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor is value
        return TensorArgument(
            dtype=dtype,
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            nbytes=distinct_bytes(tensor),
            address=tensor.data_ptr(),
            values=known.table(tensor) if known is not None and whole else None,
        )


def _ints(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(one) for one in values)


def flatten_attributes(
    names: Sequence[str], attributes: Mapping[Any, Any]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Triton's ``{(index, ...): [[name, value], ...]}`` by argument name."""
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for path, pairs in attributes.items():
        index, *inner = path if isinstance(path, tuple) else (path,)
        name = ".".join([names[index], *map(str, inner)])
        if pairs:
            found[name] = tuple((str(key), int(value)) for key, value in pairs)
    return found
