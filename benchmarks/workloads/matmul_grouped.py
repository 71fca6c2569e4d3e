"""Workloads of grouped products, as a mixture of experts asks for them, and their formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpwatch.workload.base import Inputs, Values, Workload

from .matmul import BYTES, DTYPE_NAMES


@dataclass(frozen=True, kw_only=True)
class GroupedMatmulWorkload(Workload):
    """``total`` rows over ``groups`` matrices (K, N), stored (N, K) as a layer's weights are. The
    groups' sizes fall evenly from twice the mean to none, so that one is empty. With ``weights``
    the gradient of the matrices alone."""

    kernel: str = "grouped_matmul"
    total: int
    groups: int
    N: int
    K: int
    weights: bool = False

    @property
    def name(self) -> str:
        prefix = "matmul-grouped-weights" if self.weights else "matmul-grouped"
        return f"{prefix}-{self.dtype}-{self.total}x{self.N}x{self.K}-G{self.groups}"

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each group begins, and the end."""
        last = self.groups - 1
        if last == 0:
            return (0, self.total)
        before = [self.total * g * (2 * last - g + 1) // (last * (last + 1)) for g in range(last)]
        return (*before, self.total, self.total)

    @property
    def flops(self) -> int:
        return 2 * self.total * self.N * self.K

    @property
    def bytes_moved(self) -> int:
        used = self.groups if self.weights or self.groups == 1 else self.groups - 1
        values = self.total * (self.K + self.N) + used * self.K * self.N
        return values * BYTES[self.dtype] + 4 * (self.groups + 1)

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        kind = getattr(torch, DTYPE_NAMES[self.dtype])
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(*shape: int) -> torch.Tensor:
            if values == "none":
                return torch.empty(shape, dtype=kind, device=device)
            return torch.randn(shape, generator=generator, device=device).to(kind)

        made = {"a": make(self.total, self.K)}
        if self.weights:
            made["dout"] = make(self.total, self.N)
        else:
            made["b"] = make(self.groups, self.N, self.K).transpose(1, 2)
        made["offsets"] = torch.tensor(self.offsets, dtype=torch.int32, device=device)
        return made

    def call(self, inputs: Inputs) -> Any:
        import torch

        import kernels

        a, offsets = inputs["a"], inputs["offsets"]
        product = kernels.grouped_matmul  # looked up, it adds the operators to torch
        if self.weights:
            return torch.ops.warpwatch.grouped_matmul_weights(a, inputs["dout"], offsets)
        return product(a, inputs["b"], offsets)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        kind = getattr(torch, dtype) if dtype else inputs["a"].dtype
        parts = [slice(*self.offsets[g : g + 2]) for g in range(self.groups)]
        a = inputs["a"].to(kind)
        if self.weights:
            dout = inputs["dout"].to(kind)
            return torch.stack([a[rows].t() @ dout[rows] for rows in parts])
        b = inputs["b"].to(kind)
        return torch.cat([a[rows] @ b[g] for g, rows in enumerate(parts)])


def workloads() -> tuple[GroupedMatmulWorkload, ...]:
    # Mixtral 8x7B's up-projection of 4096 tokens to 2 of 8 experts, DeepSeek-V3's of 512 tokens to
    # 8 of 256, of which a GPU holds 32.
    return (
        GroupedMatmulWorkload(group="moe", dtype="bf16", total=8192, groups=8, N=14336, K=4096),
        GroupedMatmulWorkload(group="moe", dtype="bf16", total=512, groups=32, N=2048, K=7168),
        GroupedMatmulWorkload(
            group="moe", dtype="bf16", total=8192, groups=8, N=14336, K=4096, weights=True
        ),
    )


FIXED = ("matmul-grouped-bf16-8192x14336x4096-G8",)
