"""The forward pass in fp8 (e4m3): both products on the fp8 tensor cores, the softmax in fp32.

Weights are rounded to e4m3 before they meet the values. They lie between 0 and 1, where e4m3 has
few steps, so they are computed 2^OFFSET times as large: the largest is then the largest power of
two the flavour holds, and what rounds to zero is at most 2^-18 of it. The row sum carries the same
factor, so that it cancels in the output and costs one subtraction in the log-sum-exp.
"""

from __future__ import annotations

import torch

from kernels.runtime.targets import Target


def refuse_other_flavours(q: torch.Tensor, target: Target) -> None:
    """A ``NotImplementedError`` of one sentence where ``target`` has no tensor cores for fp8, a
    ``ValueError`` where it has some for another flavour of it than the dtype of ``q``."""
    name = str(q.dtype).removeprefix("torch.")
    if not target.fp8_dtypes:
        raise NotImplementedError(
            f"q: expected fp16, bf16 or fp32 on {target.name}, which has no fp8 tensor cores, got "
            f"{name}; multiply by the scales and convert with q.to(torch.bfloat16)"
        )
    if q.dtype not in target.fp8_dtypes:
        known = " or ".join(str(one).removeprefix("torch.") for one in target.fp8_dtypes)
        raise ValueError(
            f"q: expected dtype {known}, the fp8 that {target.name} has, got {name}; convert from "
            f"the unquantised tensor with .to(torch.{known}), with scales for its range"
        )
