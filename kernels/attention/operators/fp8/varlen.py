"""Attention in fp8 over packed sequences: the operator behind flash_attention_varlen."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.numerics import fp8_scales
from kernels.attention.common.options import Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.packed.tail import clear
from kernels.attention.common.problem import Mask, Problem
from kernels.attention.dispatch import fp8 as dispatch_fp8
from kernels.attention.operators.outputs import unwritten
from kernels.attention.operators.schemas import IN_SEQUENCES, QKV, SCALES, SEQUENCES, operator
from kernels.runtime.addressing import near
from kernels.runtime.launch import prepared

from . import dense as fp8_interface


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *others: Any,
    **given: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments: mask, scale and used rows are ``others``."""
    named = {"q": q, "k": k, "v": v, "cu_q": cu_q, "cu_k": cu_k, "max_q": max_q, "max_k": max_k}
    op, batch = flash_attention_varlen_fp8_op, cu_q.numel() - 1
    return fp8_interface.served(op, _forward, named, batch, *others, **given)


@prepared
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments of layout (tokens, heads, head_dim)."""
    cu_q, _, max_q, _, q_scale, k_scale, v_scale, *mask, scale = arguments[:11]
    *used, softcap, out_dtype = arguments[11:]
    out, lse = unwritten(q, k, v, out_dtype)
    packed = Packed.of(q, k, *arguments[:4], *used)
    if out.numel():
        clear(out, packed.queries, lse=lse)
    if out.numel() and max_q and cu_q.numel() > 1:
        scales = fp8_scales.Scales(near(q_scale), near(k_scale), near(v_scale))
        q, k, v = map(packed.spread, (q, k, v))
        problem = Problem(q, k, v, Mask(*mask), scale, packed, Options(softcap))
        dispatch_fp8.launch(problem, packed.spread(out), lse, scales)
    return out, lse


flash_attention_varlen_fp8_op = operator(
    "warpwatch::flash_attention_varlen_fp8",
    *(QKV, SEQUENCES, SCALES, IN_SEQUENCES, "Tensor? used_q, Tensor? used_k", fp8_interface.LAST),
)(_forward)
flash_attention_varlen_fp8_op.register_fake(unwritten)
