"""Workloads of attention in fp8: e4m3 in the flavour the hardware has, one scale a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpwatch.workload.base import Inputs, Values
from warpwatch.workload.fp8 import fp8_flavour

from .attention import AttentionWorkload
from .formula import plain_attention
from .matmul import BYTES


@dataclass(frozen=True, kw_only=True)
class Fp8AttentionWorkload(AttentionWorkload):
    """Inputs drawn from a normal distribution and quantised so that 4 sigma are the flavour's
    largest value; the output is bf16."""

    dtype: str = "fp8"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("q_scale", *super().needs)

    @property
    def bytes_moved(self) -> int:
        queries, keys = self.S * self.H, self.keys * self.kv_heads
        inputs = queries * self.D + keys * (self.D + self.value_dim)
        return self.B * (inputs + queries * self.value_dim * BYTES["bf16"])

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        flavour = fp8_flavour()
        scale = 4.0 / torch.finfo(flavour).max
        generator = torch.Generator(device=device).manual_seed(seed)
        made: dict[str, Any] = {}
        for name, rows, heads, columns in (
            ("q", self.S, self.H, self.D),
            ("k", self.keys, self.kv_heads, self.D),
            ("v", self.keys, self.kv_heads, self.value_dim),
        ):
            shape = (self.B, rows, heads, columns)
            if values == "none":
                made[name] = torch.empty(shape, dtype=flavour, device=device)
            else:
                drawn = torch.randn(shape, generator=generator, device=device).clamp(-4.0, 4.0)
                made[name] = (drawn / scale).to(flavour)
            made[f"{name}_scale"] = torch.full((), scale, device=device)
        return made

    def call(self, inputs: Inputs) -> Any:
        import kernels

        q, k, v = (inputs[name] for name in "qkv")
        scales = {name: inputs[name] for name in ("q_scale", "k_scale", "v_scale")}
        return kernels.flash_attention(q, k, v, causal=self.causal, **scales, **self._options)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        """Of the quantised inputs; by default in bf16, the output's dtype."""
        dtype = dtype or "bfloat16"
        wide = "float64" if dtype == "float64" else "float32"
        import torch

        kind = getattr(torch, wide)
        q, k, v = (inputs[name].to(kind) * inputs[f"{name}_scale"].to(kind) for name in "qkv")
        return plain_attention(q, k, v, **self._masks, dtype=dtype)[0]


def workloads() -> tuple[Fp8AttentionWorkload, ...]:
    return tuple(
        Fp8AttentionWorkload(group="fa3", B=16384 // S, H=16, S=S, D=128, causal=causal)
        for S in (4096, 16384)
        for causal in (False, True)
    )


FIXED = "attention-fp8-B4-S4096-H16-D128-causal"
# Those that have fp8.
FIXED_TARGETS = ("sm_90", "sm_100", "gfx942", "gfx950")
