"""What the plain formula of a workload holds in memory where it is written out in PyTorch."""

from __future__ import annotations

from .attention import AttentionWorkload
from .attention_backward import BackwardWorkload, TrainingWorkload
from .base import Workload
from .matmul import BYTES


def formula_bytes(workload: Workload) -> int | None:
    """Bytes alive at once beyond the inputs, at least: masks and repeated heads would come on top.
    ``None`` where that is no figure to compare with.

    Forward these are the scores before and after scaling, later they and their weights, and the
    output; of gradients those of scores and weights, and dv. The weights that a forward pass kept
    are inputs there, as the log-sum-exp is to ours; of both passes it depends on what is kept. fp8
    would be multiplied as bf16.
    """
    if not isinstance(workload, AttentionWorkload) or isinstance(workload, TrainingWorkload):
        return None
    size = BYTES["bf16" if workload.dtype == "fp8" else workload.dtype]
    scores = workload.H * workload.S * workload.keys
    rows = workload.S * workload.H
    if isinstance(workload, BackwardWorkload):
        rows = workload.keys * workload.kv_heads
    return workload.B * size * (2 * scores + rows * workload.value_dim)
