"""What every public operation asks of its tensors; each failure is one sentence with its remedy."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch.autograd import forward_ad

from . import targets
from .launch import repeated
from .tracing import PLAIN
from .tracing import traced as traced

NO_TANGENT = (
    "expected no tangent, kernels are differentiated backward alone, got a dual tensor; use "
    "torch.autograd.grad"
)


def tensor(name: str, value: Any, *, rank: int, layout: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor of shape {layout}, got {type(value).__name__}"
        )
    dense(name, value)
    if value.dim() != rank:
        raise ValueError(
            f"{name}: expected {rank} dimensions {layout}, got {value.dim()} with shape "
            f"{tuple(value.shape)}; reshape it"
        )


def dense(name: str, value: torch.Tensor) -> None:
    """Refuse what does not lie in memory as it reads."""
    if value.is_nested:
        raise ValueError(
            f"{name}: expected a dense tensor, got a nested one; pad it with "
            f"torch.nested.to_padded_tensor({name}, 0.0), or pass packed sequences to "
            "flash_attention_varlen"
        )
    if value.layout != torch.strided:
        raise ValueError(
            f"{name}: expected a dense tensor, got layout {value.layout}; pass {name}.to_dense()"
        )
    # What imag of a conjugate is. Of operators torch negates it by itself, and in a graph it cannot
    # be asked.
    if not torch.compiler.is_compiling() and value.is_neg():
        raise ValueError(
            f"{name}: expected values as they lie in memory, got a view that torch negates where "
            f"it reads it; pass {name}.resolve_neg()"
        )


def is_fp8(kind: torch.dtype) -> bool:
    return kind.itemsize == 1 and kind.is_floating_point


def dtype(name: str, value: torch.Tensor, allowed: tuple[torch.dtype, ...]) -> None:
    if value.dtype not in allowed:
        known = ", ".join(str(one).removeprefix("torch.") for one in allowed)
        nearest = torch.float32 if torch.float32 in allowed else allowed[0]
        remedy = f"convert it with {name}.to({nearest})"
        if is_fp8(value.dtype):
            remedy = f"multiply it by its scale as {name}.to(torch.bfloat16)"
        raise ValueError(
            f"{name}: expected dtype {known}, got {str(value.dtype).removeprefix('torch.')}; "
            f"{remedy}"
        )


def integers(name: str, value: Any, *, rank: int, layout: str, **lead: torch.Tensor) -> None:
    """Of 32 bits, on the device of ``lead``, by its name."""
    tensor(name, value, rank=rank, layout=layout)
    dtype(name, value, (torch.int32,))
    for first, one in lead.items():
        same_device(first, one, **{name: value})


def shaped(value: torch.Tensor, *shapes: tuple[Any, ...]) -> bool:
    """Whether it has one of these shapes; of symbols dynamo compares tuples, but finds none among
    others."""
    return any(tuple(value.shape) == shape for shape in shapes)


def scale(
    name: str, value: Any, expected: Callable[[], str], *shapes: tuple[Any, ...], **lead: Any
) -> None:
    """Of fp32, of one of these shapes, on the device of ``lead``, by its name. What is expected is
    written where it is said: in a text dynamo makes a constant of a symbol."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected {expected()}, got {type(value).__name__}; torch.tensor({name}, "
            "device=q.device) makes one"
        )
    dense(name, value)
    if value.dtype != torch.float32 or not shaped(value, *shapes):
        got = f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
        raise ValueError(f"{name}: expected {expected()}, got {got}")
    for first, one in lead.items():
        same_device(first, one, **{name: value})


def same_dtype_and_device(first: str, lead: torch.Tensor, **others: torch.Tensor) -> None:
    for name, value in others.items():
        if value.dtype != lead.dtype:
            remedy = f"convert it with {name}.to({first}.dtype)"
            if is_fp8(lead.dtype):
                remedy = f"divide it by a scale for its range and {remedy}"
            raise ValueError(
                f"{name}: expected dtype {lead.dtype} as {first} has, got {value.dtype}; {remedy}"
            )
        same_device(first, lead, **{name: value})


def same_device(first: str, lead: torch.Tensor, **others: torch.Tensor) -> None:
    for name, value in others.items():
        if value.device != lead.device:
            raise ValueError(
                f"{name}: expected device {lead.device} as {first} has, got {value.device}; "
                f"move it with {name}.to({first}.device)"
            )


def writable(name: str, value: torch.Tensor) -> None:
    """Refuse what is written to where several elements share memory: the last writer would win. Of
    strides that is seen by pairs, where so many steps along one axis are as many along another."""
    sizes = [one for one in zip(value.shape, value.stride(), strict=True) if one[0] > 1]
    shared = any(stride == 0 for _, stride in sizes)
    if not shared and not traced(value):  # sizes may be symbols
        pairs = combinations(sizes, 2)
        shared = any(math.lcm(a, b) < min(m * a, n * b) for (m, a), (n, b) in pairs)
    if shared:
        raise ValueError(
            f"{name}: expected memory of its own for each element it is written to, got shape "
            f"{tuple(value.shape)} with strides {value.stride()}; pass {name}.contiguous()"
        )


def apart(
    name: str, value: torch.Tensor, *, in_place: str = "", **others: torch.Tensor | None
) -> None:
    """Refuse what is written to where one of ``others`` lies, which is read meanwhile: where that
    begins, of matrices with rows as far apart where those meet or, of tensors without gaps,
    anywhere. ``in_place`` names the one that may be ``value`` itself, each element read where it is
    written."""
    if not traced(value):
        repeated(_apart, name, value, in_place=in_place, **others)


def _apart(name: str, value: torch.Tensor, *, in_place: str, **others: torch.Tensor | None) -> None:
    first = value.data_ptr()
    for other, tensor in others.items():
        if tensor is None or type(tensor) not in PLAIN:
            continue
        if not tensor.numel() or not value.numel():
            continue
        start = tensor.data_ptr()
        if other == in_place and start == first and tensor.stride() == value.stride():
            continue
        meet = start < first + value.nbytes and first < start + tensor.nbytes
        meet = meet and _without_gaps(tensor) and _without_gaps(value)
        if start == first or meet or _rows_meet(value, tensor):
            raise ValueError(
                f"{name}: expected memory of its own, got that of {other}, which is read while "
                f"{name} is written; pass another tensor as {name}{', or none' * (name == 'out')}"
            )


def written(*values: torch.Tensor) -> None:
    """Tell autograd of what a launch it does not know of wrote in place: it may have kept it."""
    repeated(torch.autograd.graph.increment_version, values)


def _without_gaps(value: torch.Tensor) -> bool:
    return value.is_contiguous() or value.mT.is_contiguous() if value.dim() > 1 else True


def _rows_meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of matrices, along rows or along columns, whose rows lie as far apart: whether any two share
    memory."""
    if not one.dim() == other.dim() == 2:
        return False
    a, b = one.itemsize, other.itemsize
    for i, j in ((0, 1), (1, 0)):
        pitch = one.stride(i) * a
        if not (one.stride(j) == other.stride(j) == 1 and pitch == other.stride(i) * b > 0):
            continue
        rows, rest = divmod(other.data_ptr() - one.data_ptr(), pitch)
        # The other's first row begins within one's row of this number and ends within the next.
        for up, at in ((rows, rest), (rows + 1, rest - pitch)):
            near = -other.shape[j] * b < at < one.shape[j] * a
            if near and -other.shape[i] < up < one.shape[i]:
                return True
    return False


def no_tangent(**values: Any) -> None:
    """Refuse forward-mode differentiation, whose tangents a launch would drop."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    for name, value in values.items():
        followed = isinstance(value, torch.Tensor) and value.is_floating_point()
        if followed and forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(f"{name}: {NO_TANGENT}")


def number(name: str, value: Any, expected: str) -> float:
    """Of a tensor float() would wait for the GPU; of True it would be 1."""
    if not isinstance(value, (bool, str, torch.Tensor)):
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    got = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
    raise TypeError(f"{name}: expected {expected}, got {got}")


def softmax_scale(value: Any, head_dim: int, name: str = "softmax_scale") -> float:
    """``value``, or where it is None the usual one for ``head_dim``."""
    if value is None:
        return 1.0 / math.sqrt(head_dim)
    expected = "a finite number, or None for 1 / sqrt(head_dim)"
    scale = number(name, value, expected)
    # By comparing, which dynamo traces of a scale that changes; math.isfinite it does not.
    if not -math.inf < scale < math.inf:
        raise ValueError(f"{name}: expected {expected}, got {scale}")
    return scale


def flag(name: str, value: Any) -> bool:
    """Of a tensor bool() would wait for the GPU; of "no" it would be True."""
    if isinstance(value, (str, list, tuple, torch.Tensor)):
        got = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
        raise TypeError(f"{name}: expected True or False, got {got}")
    return bool(value)


def whole(value: Any) -> Any:
    """The int that ``value`` is or, as numpy's, stands for; what torch.export traces of a length as
    it is. None of anything else: True is no number, and of a tensor index() would wait for the
    GPU."""
    if isinstance(value, (int, torch.SymInt)):
        return None if isinstance(value, bool) else value
    # Dynamo of torch 2.11 does not get over index(None).
    if value is None or isinstance(value, torch.Tensor):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def negative(value: int) -> bool:
    """Of what ``whole`` gives. What a graph reads from a tensor (``item()``) nobody knows while it
    is made: the graph asserts it."""
    if torch.compiler.is_compiling():
        torch._check(value >= 0)
        return False
    return value < 0


def launchable(name: str, value: torch.Tensor) -> None:
    """Refuse tensors no kernel can reach. On the meta device results are there without values, as
    those of torch's operators are. A graph may be compiled of tensors elsewhere: where it runs,
    ``targets.on_device_of`` refuses them."""
    if value.is_cuda or torch.compiler.is_compiling() or value.is_meta:
        return
    if value.device.type == "cpu" and targets.accepts_cpu_tensors():
        return
    raise targets.unreachable(name, value)
