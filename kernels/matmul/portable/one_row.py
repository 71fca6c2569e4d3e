"""The matmul of one row: its time is that of reading B, whose columns lie in memory whole.

No matrix unit is asked, which would multiply 64 rows for one. Programs read long runs of a few
columns, which memory gives faster than the short runs of many that its tiles are made of.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.matmul.common.epilogue import Epilogue, Pitch, store_tile
from kernels.matmul.common.product import Product
from kernels.matmul.common.tuning import OneRowConfig
from kernels.runtime.addressing import LIMIT
from kernels.runtime.launch import noted

from . import kernel as portable


@triton.jit
def one_row_kernel(
    a,
    b,
    c,
    bias,
    residual,
    N,
    K,
    stride_ak,
    stride_bn,
    stride_cn,
    stride_rn,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """BLOCK_N values of c, (1, N), from a: (1, K) and b: (K, N), which lies along K."""
    o_first = tl.program_id(0) * BLOCK_N
    o_n = tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    in_n = o_n < N - o_first
    p_a = a + o_k.to(tl.int64) * stride_ak
    p_b = b + o_first.to(tl.int64) * stride_bn
    p_b += o_n.to(tl.int64)[:, None] * stride_bn + o_k[None, :]
    # [BLOCK_N, BLOCK_K]: each thread adds up for itself what it reads.
    b_sum = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float32)
    for i_k in range(0, tl.cdiv(K, BLOCK_K)):
        in_k = o_k < K - i_k * BLOCK_K
        b_b = tl.load(
            p_b, mask=in_n[:, None] & in_k[None, :], other=0.0, eviction_policy="evict_first"
        )
        b_a = tl.load(p_a, mask=in_k, other=0.0)
        b_sum += b_b.to(tl.float32) * b_a.to(tl.float32)[None, :]
        p_a += BLOCK_K * stride_ak
        p_b += BLOCK_K
    epilogue = Epilogue(bias, residual, Pitch(0, stride_cn), Pitch(0, stride_rn))
    b_c = tl.sum(b_sum, 1)[None, :]
    store_tile(c, b_c, o_first, tl.full([1], 1, tl.int1), N, epilogue, ACTIVATION)


def launch(product: Product, config: OneRowConfig) -> None:
    """Fill the ``out`` of a product of one row and of b that lies along K."""
    (_, N, K), a, b, out = product.sizes, product.a, product.b, product.out
    residual = product.residual
    columns = max(out.stride(1), 0 if residual is None else residual.stride(1))
    if max(a.stride(1) * config.block_k, columns * config.block_n) >= LIMIT:
        return portable.launch(product)
    noted(one_row_kernel, (triton.cdiv(N, config.block_n),))(
        a,
        b,
        out,
        product.bias,
        residual,
        N,
        K,
        a.stride(1),
        b.stride(1),
        out.stride(1),
        residual.stride(1) if residual is not None else None,
        BLOCK_N=config.block_n,
        BLOCK_K=min(config.block_k, max(16, triton.next_power_of_2(K))),
        ACTIVATION=product.activation or "none",
        num_warps=config.num_warps,
    )
