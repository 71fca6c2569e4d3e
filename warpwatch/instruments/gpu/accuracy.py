"""Whether a kernel's answer is right: its error against the same formula in fp64.

A kernel must not get faster by getting worse, so a workload is timed only between two checks on
fresh inputs, and the error is recorded beside the time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from warpwatch.instruments.method import method_hash, version

if TYPE_CHECKING:
    import torch

    from warpwatch.workload.base import Inputs, Workload

# Norm of the error over the norm of the truth. Rounding the inputs' dtype once costs about a
# quarter of these; tf32 products of fp32 inputs cost ten bits of mantissa.
TOLERANCE = {"fp16": 2e-3, "bf16": 1.2e-2, "fp32": 1e-5, "tf32": 2e-3, "fp8": 1e-1}


class WrongAnswerError(ValueError):
    """The kernel's output is not the formula's."""


def tolerance(workload: Workload) -> float:
    """The workload's own, else that of its dtype."""
    own = getattr(workload, "tolerance", None)
    if own is not None:
        return float(own)
    from warpwatch.devices import canonical_dtype

    tf32 = getattr(workload, "tf32", False)
    return TOLERANCE["tf32" if tf32 else canonical_dtype(workload.dtype)]


def relative_error(output: Any, truth: Any) -> float:
    """The largest of the outputs' errors (gradients come as a tuple); NaN stays NaN."""
    outputs, truths = _tensors(output), _tensors(truth)
    if len(outputs) != len(truths):
        raise WrongAnswerError(f"expected {len(truths)} outputs, got {len(outputs)}")
    worst = 0.0
    for ours, expected in zip(outputs, truths, strict=True):
        if ours.shape != expected.shape:
            raise WrongAnswerError(
                f"expected shape {tuple(expected.shape)}, got {tuple(ours.shape)}"
            )
        error = _norm_of_difference(ours, expected) / max(float(expected.norm()), 1e-30)
        if math.isnan(error):
            return error
        worst = max(worst, error)
    return worst


def check(workload: Workload, inputs: Inputs, output: Any, truth: Any = None) -> float:
    """The relative error of ``output``; ``WrongAnswerError`` beyond the workload's tolerance."""
    truth = workload.reference(inputs, "float64") if truth is None else truth
    error = relative_error(output, truth)
    allowed = tolerance(workload)
    if not error <= allowed:  # a NaN is wrong
        raise WrongAnswerError(
            f"{workload.name}: relative error {error:.2g} against fp64, allowed {allowed:.2g}"
        )
    return error


def _tensors(value: Any) -> list[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value if item is not None for tensor in _tensors(item)]
    raise WrongAnswerError(f"expected tensors, got {type(value).__name__}")


def _norm_of_difference(ours: torch.Tensor, truth: torch.Tensor) -> float:
    import torch

    # Slice by slice: the truth alone may fill a good part of the memory.
    total = 0.0
    for mine, right in zip(ours, truth, strict=True):
        difference = (mine.to(right.dtype) - right).double()
        total += float(torch.linalg.vector_norm(difference)) ** 2
    return math.sqrt(total)


METHOD_VERSION = version("accuracy-afaef5fcb2c0", "bd7f28b78898", method_hash(__file__))
