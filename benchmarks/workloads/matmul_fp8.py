"""Workloads of fp8 products: e4m3 in the flavour the hardware has, one or many scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from warpwatch.workload.base import Inputs, Values
from warpwatch.workload.fp8 import fp8_flavour

from .matmul import BYTES, MatmulWorkload

BLOCK = 128
Scales = Literal["tensor", "rows", "blocks"]


@dataclass(frozen=True, kw_only=True)
class Fp8MatmulWorkload(MatmulWorkload):
    """Inputs drawn from a normal distribution and quantised so that 4 sigma are the flavour's
    largest value; ``rows`` are those of a and the columns of b, ``blocks`` 1 x 128 of a and 128 x
    128 of b. The output is bf16."""

    dtype: str = "fp8"
    layout: str = "nt"  # both along K: what every fp8 matrix unit takes
    scales: Scales = "tensor"

    @property
    def name(self) -> str:
        return f"{super().name}-{self.scales}"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("a_scale", *super().needs)

    @property
    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the scales of a and b."""
        if self.scales == "tensor":
            return (), ()
        if self.scales == "rows":
            return (self.M,), (self.N,)
        blocks = -(-self.K // BLOCK)
        return (self.M, blocks), (blocks, -(-self.N // BLOCK))

    @property
    def bytes_moved(self) -> int:
        scales = sum(4 * math.prod(shape) for shape in self._shapes if shape)
        values = self.M * self.N * (1 + self.residual) + self.N * self.bias
        return (self.M + self.N) * self.K + values * BYTES["bf16"] + scales

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        flavour = fp8_flavour()
        scale = 4.0 / torch.finfo(flavour).max
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(*shape: int, quantised: bool = True) -> torch.Tensor:
            kind = flavour if quantised else torch.bfloat16
            if values == "none":
                return torch.empty(shape, dtype=kind, device=device)
            drawn = torch.randn(shape, generator=generator, device=device).clamp(-4.0, 4.0)
            return (drawn / scale).to(kind) if quantised else drawn.to(kind)

        a = make(self.M, self.K) if self.layout[0] == "n" else make(self.K, self.M).t()
        b = make(self.K, self.N) if self.layout[1] == "n" else make(self.N, self.K).t()
        made: dict[str, Any] = {"a": a, "b": b, "bias": None}
        for name, shape in zip(("a_scale", "b_scale"), self._shapes, strict=True):
            made[name] = torch.full(shape, scale, device=device)
            if values != "none":
                made[name] *= 0.5 + torch.rand(shape, generator=generator, device=device)
        if self.bias:
            made["bias"] = make(self.N, quantised=False)
        if self.residual:
            made["residual"] = make(self.M, self.N, quantised=False)
        return made

    def call(self, inputs: Inputs) -> Any:
        import kernels

        options: dict[str, Any] = {"activation": self.activation} if self.activation else {}
        options |= {
            name: inputs[name]
            for name in ("bias", "residual", "a_scale", "b_scale")
            if inputs.get(name) is not None
        }
        return kernels.matmul(inputs["a"], inputs["b"], **options)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        """Of the dequantised inputs; by default in bf16, the output's dtype."""
        import torch

        kind = torch.float64 if dtype == "float64" else torch.float32
        a, b = inputs["a"].to(kind), inputs["b"].to(kind)
        a_scale, b_scale = inputs["a_scale"].to(kind), inputs["b_scale"].to(kind)
        if self.scales == "rows":
            a_scale = a_scale[:, None]
        if self.scales == "blocks":
            a_scale = a_scale.repeat_interleave(BLOCK, 1)[:, : self.K]
            b_scale = b_scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            b_scale = b_scale[: self.K, : self.N]
        dequantised = {**inputs, "a": a * a_scale, "b": b * b_scale}
        return super().reference(dequantised, dtype or "bfloat16")


def workloads() -> tuple[Fp8MatmulWorkload, ...]:
    # Square, Llama-3 8B's decode and its first projection of the MLP, DeepSeek-V3's projections.
    shapes: tuple[tuple[int, int, int, Scales], ...] = (
        (4096, 4096, 4096, "tensor"),
        (8192, 8192, 8192, "tensor"),
        (16, 4096, 4096, "tensor"),
        (4096, 14336, 4096, "rows"),
        (4096, 7168, 2048, "blocks"),
        (4096, 4096, 7168, "blocks"),
        (64, 7168, 2048, "blocks"),
    )
    return tuple(
        Fp8MatmulWorkload(group="gemm", M=M, N=N, K=K, scales=scales) for M, N, K, scales in shapes
    )


FIXED = ("matmul-fp8-4096x7168x2048-nt-blocks",)
