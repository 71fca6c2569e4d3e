"""Attention in fp8, also of packed sequences: what it accepts, and the operators torch knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.common.numerics import fp8_scales
from kernels.attention.common.options import Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.packed.tail import clear
from kernels.attention.common.problem import Mask, Problem
from kernels.attention.dispatch.forward import launch_fp8
from kernels.attention.operators import schemas
from kernels.attention.operators.outputs import unwritten
from kernels.attention.operators.schemas import IN_SEQUENCES, MASK, QKV, SEQUENCES, operator
from kernels.runtime import autograd, checks
from kernels.runtime.addressing import near
from kernels.runtime.launch import prepared

DTYPES = tuple(fp8_scales.OFFSET)
ALL_DTYPES = shapes.DTYPES + DTYPES
SCALES = ("q_scale", "k_scale", "v_scale")
PACKED = ("cu_q", "cu_k", "max_q", "max_k")
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
NO_GRADIENT = (
    "expected no gradient where q is fp8, which has only a forward pass, got a backward pass; "
    "call it within torch.no_grad(), or on bf16 tensors"
)


def asked(q: Any, **options: Any) -> bool:
    """Whether ``q`` is fp8; a ``ValueError`` where it is not and ``options`` of fp8 are given."""
    if isinstance(q, torch.Tensor) and q.dtype in DTYPES:
        checks.no_tangent(**options)
        return True
    for name, value in options.items():
        if value is not None:
            kind = q.dtype if isinstance(q, torch.Tensor) else type(q).__name__
            remedy = "convert the result" if name == "out_dtype" else "fold scales into the tensors"
            raise ValueError(
                f"{name}: expected None unless q, k and v are float8_e4m3fn or float8_e4m3fnuz, "
                f"and q is {str(kind).removeprefix('torch.')}; {remedy}"
            )
    return False


def check_options(q: torch.Tensor, options: Options) -> None:
    """Refuse more than a mask and a softcap."""
    if not replace(options, softcap=None).plain:
        raise NotImplementedError(
            "q: expected float16, bfloat16 or float32 where more is asked of scores than a mask "
            f"and a softcap, got {q.dtype}; convert q, k and v with .bfloat16()"
        )


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *others: Any,
    sequences: tuple[Any, ...] = (),
    softcap: float | None = None,
    **given: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for tensors whose shapes are checked: mask and scale are ``others``, of
    packed ``sequences`` (``cu_q``, ``cu_k`` and the longest of both) also the used rows. ``given``,
    scales and ``out_dtype``, is checked here."""
    batch = sequences[0].numel() - 1 if sequences else q.shape[0]
    scales, out_dtype = checked(q, k, v, batch, **given)
    named = {"q": q, "k": k, "v": v} | dict(zip(PACKED, sequences, strict=False))
    named |= dict(zip(SCALES, scales, strict=True))
    op, body = flash_attention_fp8_op, _forward
    if sequences:
        op, body = flash_attention_varlen_fp8_op, _forward_packed
    run = op if checks.traced(*named.values(), *others) else body
    outputs: tuple[torch.Tensor, torch.Tensor]
    outputs = autograd.forward_only(run, NO_GRADIENT, named, *others, softcap, out_dtype)
    return outputs


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    batch: int,
    *,
    q_scale: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> tuple[fp8_scales.Scales, torch.dtype]:
    """The scales, that of q by heads of q, and the output's dtype, beside ``batch`` sequences."""
    heads, kv_heads = q.shape[-2], k.shape[-2]
    _check_scale("q_scale", q_scale, q, batch, heads, kv_heads)
    _check_scale("k_scale", k_scale, k, batch, kv_heads, kv_heads)
    _check_scale("v_scale", v_scale, v, batch, kv_heads, kv_heads)
    if out_dtype not in (None, *OUT_DTYPES):
        known = ", ".join(str(one).removeprefix("torch.") for one in OUT_DTYPES)
        raise ValueError(f"out_dtype: expected {known} or None for bfloat16, got {out_dtype}")
    if q_scale is not None and q_scale.dim() == 2 and q_scale.shape[1] != heads:
        q_scale = q_scale.repeat_interleave(heads // kv_heads, 1)
    return fp8_scales.Scales(q_scale, k_scale, v_scale), out_dtype or torch.bfloat16


def _check_scale(
    name: str, value: Any, lead: torch.Tensor, batch: int, heads: int, kv_heads: int
) -> None:
    def expected() -> str:
        found = f"a float32 tensor of shape (), ({heads},) or ({batch}, {heads}), one value a head "
        shared = f", or ({batch}, {kv_heads}), one a head of k" if kv_heads != heads else ""
        return f"{found}of {name[0]}{shared}"

    if value is not None:
        known = ((), (1,), (heads,), (batch, heads), (batch, kv_heads))
        checks.scale(name, value, expected, *known, **{name[0]: lead})


@prepared
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments of layout (batch, seqlen, heads, head_dim)."""
    *mask, scale, softcap, out_dtype = arguments[3:]
    out, lse = unwritten(q, k, v, out_dtype)
    if out.numel():
        problem = Problem(q, k, v, Mask(*mask), scale, None, Options(softcap))
        launch_fp8(problem, out, lse, fp8_scales.Scales(*map(near, arguments[:3])))
    return out, lse


@prepared
def _forward_packed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments of layout (tokens, heads, head_dim)."""
    cu_q, _, max_q, _ = arguments[:4]
    *mask, scale, used_q, used_k, softcap, out_dtype = arguments[7:]
    out, lse = unwritten(q, k, v, out_dtype)
    packed = Packed.of(q, k, *arguments[:4], used_q, used_k)
    if out.numel():
        clear(out, packed.queries, lse=lse)
    if out.numel() and max_q and cu_q.numel() > 1:
        q, k, v = map(packed.spread, (q, k, v))
        problem = Problem(q, k, v, Mask(*mask), scale, packed, Options(softcap))
        launch_fp8(problem, packed.spread(out), lse, fp8_scales.Scales(*map(near, arguments[4:7])))
    return out, lse


LAST = "float? softcap, ScalarType out_dtype"
flash_attention_fp8_op = operator(
    "warpwatch::flash_attention_fp8", QKV, schemas.SCALES, MASK, LAST
)(_forward)
flash_attention_fp8_op.register_fake(unwritten)
flash_attention_varlen_fp8_op = operator(
    "warpwatch::flash_attention_varlen_fp8",
    *(QKV, SEQUENCES, schemas.SCALES, IN_SEQUENCES, "Tensor? used_q, Tensor? used_k", LAST),
)(_forward_packed)
flash_attention_varlen_fp8_op.register_fake(unwritten)
