"""Calls of public kernels that have tables of tuned configurations, in a configuration by choice.

The kernels themselves are not of this repository: ``source`` names a file that
``prepare`` copied them to. Only torch and Triton are needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

# Options of AMD's compiler, which NVIDIA's refuses.
_OF_AMD = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
_GROUP = 128  # rows and columns that share a scale
# Sends tokens to experts as unevenly as routers do, and the same ones every time.
_MIXED = 2654435761


def block_fp8(*, source: str, M: int, N: int, K: int, config: Mapping[str, Any]) -> None:
    """A product of fp8 whose blocks have scales (``_w8a8_block_fp8_matmul`` of SGLang and vLLM).

    Args:
        source: The file with the kernel.
        M: Rows of A.
        N: Columns of B.
        K: Columns of A.
        config: The configuration.
    """
    prepared_block(source=source, M=M, N=N, K=K)(config)


def block_int8(*, source: str, M: int, N: int, K: int, config: Mapping[str, Any]) -> None:
    """The same of int8 (``_w8a8_block_int8_matmul`` of SGLang)."""
    prepared_block(source=source, M=M, N=N, K=K, dtype="int8")(config)


def fused_moe(
    *, source: str, M: int, N: int, K: int, E: int, top_k: int, config: Mapping[str, Any]
) -> None:
    """The first product of a mixture of experts in bf16 (``fused_moe_kernel`` of vLLM).

    Args:
        source: The file with the kernel.
        M: Tokens.
        N: Columns that an expert makes, gate and up together.
        K: The hidden size.
        E: Experts.
        top_k: Experts of a token.
        config: The configuration.
    """
    prepared_fused_moe(source=source, M=M, N=N, K=K, E=E, top_k=top_k)(config)


def prepared_block(
    *, source: str, M: int, N: int, K: int, dtype: str = "fp8"
) -> Callable[[Mapping[str, Any]], None]:
    """The same with its tensors made: what it returns only launches."""
    import torch
    import triton

    kernel = _kernel(source, KERNELS[f"block_{dtype}"])
    kind = torch.float8_e4m3fn if dtype == "fp8" else torch.int8
    a = _filled((M, K), kind)
    b = _filled((N, K), kind)
    c = torch.empty((M, N), dtype=torch.bfloat16, device="cuda")
    a_scales = _filled((M, K // _GROUP), torch.float32)
    b_scales = _filled((-(-N // _GROUP), K // _GROUP), torch.float32)

    def launch(config: Mapping[str, Any]) -> None:
        grid = triton.cdiv(M, config["BLOCK_SIZE_M"]) * triton.cdiv(N, config["BLOCK_SIZE_N"])
        kernel[(grid,)](
            *(a, b, c, a_scales, b_scales, M, N, K, _GROUP, _GROUP),
            *(a.stride(0), a.stride(1), b.stride(1), b.stride(0), c.stride(0), c.stride(1)),
            *(a_scales.stride(0), a_scales.stride(1), b_scales.stride(1), b_scales.stride(0)),
            **_for_nvidia(config),
        )

    return launch


def prepared_fused_moe(
    *, source: str, M: int, N: int, K: int, E: int, top_k: int
) -> Callable[[Mapping[str, Any]], None]:
    """The same with its tensors made: what it returns only launches."""
    import torch
    import triton
    import triton.language as tl

    kernel = _kernel(source, "fused_moe_kernel")
    a = _filled((M, K), torch.bfloat16)
    b = _filled((E, N, K), torch.bfloat16)
    c = torch.empty((M, top_k, N), dtype=torch.bfloat16, device="cuda")
    weights = _filled((M * top_k,), torch.float32)
    sorted_by: dict[int, tuple[Any, Any, Any]] = {}

    def routed(rows: int) -> tuple[Any, Any, Any]:
        """Tokens by expert, each expert's filled up to whole blocks; the experts; how many."""
        if rows not in sorted_by:
            tokens: list[list[int]] = [[] for _ in range(E)]
            for pair in range(M * top_k):
                tokens[(pair * _MIXED >> 7) % E].append(pair)
            order, experts = [], []
            for expert, own in enumerate(tokens):
                blocks = -(-len(own) // rows)
                order += own + [M * top_k] * (blocks * rows - len(own))
                experts += [expert] * blocks
            sorted_by[rows] = (
                torch.tensor(order, dtype=torch.int32, device="cuda"),
                torch.tensor(experts, dtype=torch.int32, device="cuda"),
                torch.tensor([len(order)], dtype=torch.int32, device="cuda"),
            )
        return sorted_by[rows]

    def launch(config: Mapping[str, Any]) -> None:
        order, experts, count = routed(config["BLOCK_SIZE_M"])
        rows = order.numel()
        grid = triton.cdiv(rows, config["BLOCK_SIZE_M"]) * triton.cdiv(N, config["BLOCK_SIZE_N"])
        kernel[(grid,)](
            *(a, b, c, None, None, None, weights, order, experts, count, N, K, rows, M * top_k),
            *(a.stride(0), a.stride(1), b.stride(0), b.stride(2), b.stride(1)),
            *(c.stride(1), c.stride(2), 0, 0, 0, 0, 0, 0, 0, 0, 0),
            MUL_ROUTED_WEIGHT=False,
            top_k=top_k,
            compute_type=tl.bfloat16,
            use_fp8_w8a8=False,
            use_int8_w8a8=False,
            use_int8_w8a16=False,
            per_channel_quant=False,
            HAS_BIAS=False,
            **_for_nvidia(config),
        )

    return launch


PREPARED: dict[str, Callable[..., Callable[[Mapping[str, Any]], None]]] = {
    "block_fp8": prepared_block,
    "block_int8": partial(prepared_block, dtype="int8"),
    "fused_moe": prepared_fused_moe,
}
KERNELS = {
    "block_fp8": "_w8a8_block_fp8_matmul",
    "block_int8": "_w8a8_block_int8_matmul",
    "fused_moe": "fused_moe_kernel",
}


def _for_nvidia(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _OF_AMD}


def _filled(shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor of random numbers; of any where a call is only recorded."""
    import torch
    from triton.runtime import driver

    if getattr(driver.active, "records_launches", False):
        return torch.empty(shape, dtype=dtype, device="cuda")
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_().to(dtype)


@cache
def _kernel(source: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"tuned_{Path(source).stem}", source)
    if spec is None or spec.loader is None:
        raise ValueError(f"source: expected a Python file, got {source!r}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)
