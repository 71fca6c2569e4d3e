"""Matmul workloads: the projection, MLP and square shapes the tables compare, and their formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Values, Workload

if TYPE_CHECKING:
    import torch

DTYPE_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp8": 1}


@dataclass(frozen=True, kw_only=True)
class MatmulWorkload(Workload):
    """``activation(a @ b + bias) + residual``.

    ``layout`` gives a and b a letter each as BLAS does: ``n`` for rows in memory one after the
    other, ``t`` for a transposed view.
    """

    kernel: str = "matmul"
    M: int
    N: int
    K: int
    layout: str = "nn"
    bias: bool = False
    activation: str | None = None
    residual: bool = False
    tf32: bool = False

    @property
    def name(self) -> str:
        parts = [f"matmul-{self.dtype}-{self.M}x{self.N}x{self.K}"]
        if self.layout != "nn":
            parts.append(self.layout)
        if self.tf32:
            parts.append("tf32")
        if self.bias:
            parts.append("bias")
        if self.activation:
            parts.append(self.activation)
        if self.residual:
            parts.append("residual")
        return "-".join(parts)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("residual",) if self.residual else ()

    @property
    def flops(self) -> int:
        return 2 * self.M * self.N * self.K

    @property
    def bytes_moved(self) -> int:
        values = self.M * self.K + self.K * self.N + self.M * self.N + self.N * self.bias
        values += self.M * self.N * self.residual
        return values * BYTES[self.dtype]

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        kind = getattr(torch, DTYPE_NAMES[self.dtype])
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(*shape: int) -> torch.Tensor:
            if values == "none":
                return torch.empty(shape, dtype=kind, device=device)
            # The generator draws fp32: 16-bit values are the same on every device then.
            drawn = torch.randn(shape, generator=generator, device=device)
            return drawn.to(kind)

        a = make(self.M, self.K) if self.layout[0] == "n" else make(self.K, self.M).t()
        b = make(self.K, self.N) if self.layout[1] == "n" else make(self.N, self.K).t()
        made = {"a": a, "b": b, "bias": make(self.N) if self.bias else None}
        return made | {"residual": make(self.M, self.N)} if self.residual else made

    def call(self, inputs: Inputs) -> Any:
        import kernels

        # Only what the workload asks for is passed: a commit without an option can still be
        # measured on the workloads that do not need it.
        options: dict[str, Any] = {}
        if self.bias:
            options["bias"] = inputs["bias"]
        if self.activation:
            options["activation"] = self.activation
        if self.residual:
            options["residual"] = inputs["residual"]
        if self.tf32:
            options["allow_tf32"] = True
        return kernels.matmul(inputs["a"], inputs["b"], **options)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        kind = getattr(torch, dtype) if dtype else inputs["a"].dtype
        out = inputs["a"].to(kind) @ inputs["b"].to(kind)
        if inputs["bias"] is not None:
            out = out + inputs["bias"].to(kind)
        if self.activation is not None:
            out = getattr(torch.nn.functional, self.activation)(out)
        return out + inputs["residual"].to(kind) if self.residual else out


def _cube(size: int) -> tuple[int, int, int]:
    return size, size, size


def _make(group: str, dtype: str, shape: tuple[int, int, int], **options: Any) -> MatmulWorkload:
    M, N, K = shape
    return MatmulWorkload(group=group, dtype=dtype, M=M, N=N, K=K, **options)


def workloads() -> tuple[MatmulWorkload, ...]:
    guide = [_make("guide", "fp16", _cube(size)) for size in (1024, 2048, 4096, 8192)]
    # Llama-3 8B and 70B: the weight is stored (out, in), so b is a transposed view.
    gemm = [
        _make("gemm", "bf16", shape, layout="nt")
        for shape in (
            (4096, 6144, 4096),
            (4096, 28672, 4096),
            (4096, 4096, 14336),
            (4096, 10240, 8192),
            (4096, 8192, 28672),
        )
    ]
    gemm += [_make("gemm", "bf16", (M, 4096, 4096), layout="nt") for M in (1, 16, 64)]
    gemm += [
        _make("gemm", "bf16", _cube(4096)),
        _make("gemm", "bf16", _cube(4096), layout="tn"),
        _make("gemm", "bf16", (4096, 14336, 4096), layout="nt", bias=True, activation="silu"),
        _make("gemm", "fp16", _cube(2048), bias=True, activation="gelu"),
        # The projection back onto the residual stream.
        _make("gemm", "bf16", (4096, 4096, 14336), layout="nt", residual=True),
        _make("gemm", "fp16", (1000, 1000, 1000)),
        _make("gemm", "fp32", _cube(1024)),
        _make("gemm", "fp32", _cube(2048), tf32=True),
    ]
    return (*guide, *gemm)


FIXED = (
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-4096x4096x4096",
    "matmul-fp16-2048x2048x2048-bias-gelu",
    "matmul-fp16-1000x1000x1000",
    "matmul-bf16-4096x6144x4096-nt",
    "matmul-bf16-4096x4096x4096-tn",
    "matmul-bf16-16x4096x4096-nt",
    "matmul-fp32-2048x2048x2048-tf32",
)
