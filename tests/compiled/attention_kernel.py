"""A plain attention forward in Triton for the tests of the bound: no tuning, one of everything."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def attend(
    q,
    k,
    v,
    out,
    rows,
    keys,
    scale,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    SKIP: tl.constexpr,
):
    i_m, i_h = tl.program_id(0), tl.program_id(1)
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q += (i_h * rows + i_m * M) * D
    k += i_h * keys * D
    v += i_h * keys * D
    out += (i_h * rows + i_m * M) * D
    b_q = tl.load(q + m[:, None] * D + d[None, :])
    b_max = tl.full([M], float("-inf"), tl.float32)
    b_sum = tl.zeros([M], tl.float32)
    b_out = tl.zeros([M, D], tl.float32)
    last = keys
    if SKIP:  # the causal block structure without the mask
        last = tl.minimum(keys, (i_m + 1) * M)
    for i in range(0, last, N):
        b_k = tl.load(k + (i + n[None, :]) * D + d[:, None])
        b_s = tl.dot(b_q, b_k)
        b_new = tl.maximum(b_max, tl.max(b_s, 1) * scale)
        b_p = tl.math.exp2(b_s * scale - b_new[:, None])
        b_alpha = tl.math.exp2(b_max - b_new)
        b_sum = b_sum * b_alpha + tl.sum(b_p, 1)
        b_max = b_new
        b_v = tl.load(v + (i + n[:, None]) * D + d[None, :])
        b_out = tl.dot(b_p.to(b_v.dtype), b_v, b_out * b_alpha[:, None])
    tl.store(out + m[:, None] * D + d[None, :], (b_out / b_sum[:, None]).to(out.dtype.element_ty))


def forward(
    rows: int,
    keys: int,
    heads: int,
    D: int,
    *,
    M: int = 128,
    N: int = 128,
    warps: int = 8,
    stages: int = 2,
    skip: bool = False,
) -> None:
    q = torch.empty(heads, rows, D, dtype=torch.bfloat16)
    k = torch.empty(heads, keys, D, dtype=torch.bfloat16)
    out = torch.empty_like(q)
    attend[(rows // M, heads)](
        q,
        k,
        torch.empty_like(k),
        out,
        rows,
        keys,
        0.18,
        D=D,
        M=M,
        N=N,
        SKIP=skip,
        num_warps=warps,
        num_stages=stages,
    )
