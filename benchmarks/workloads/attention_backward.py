"""Workloads of attention's gradients alone, from a finished forward pass, and their formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .attention import AttentionWorkload, plain_attention
from .base import Inputs, Values
from .matmul import BYTES


@dataclass(frozen=True, kw_only=True)
class BackwardWorkload(AttentionWorkload):
    """Gradients of q, k and v from a finished forward pass."""

    kernel: str = "flash_attention_backward"

    @property
    def _prefix(self) -> str:
        return "attention-backward"

    @property
    def flops(self) -> int:
        """Five matmuls where the forward pass has two: the scores are computed again."""
        columns = 3 * self.D + 2 * self.value_dim
        return 2 * self.B * self.H * columns * self.visible_scores

    @property
    def bytes_moved(self) -> int:
        # q, k, v, out and dout are read, dq, dk and dv written; a log-sum-exp a row is read.
        rows = 2 * self.S * self.H + 2 * self.keys * self.kv_heads
        columns = self.D + self.value_dim
        return self.B * (rows * columns * BYTES[self.dtype] + 4 * self.S * self.H)

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        made = super().inputs(device, seed, values)
        q = made["q"]
        if values == "none":
            lse = torch.empty((self.B, self.H, self.S), device=device)
            out = torch.empty((*q.shape[:3], self.value_dim), dtype=q.dtype, device=device)
            return {**made, "dout": torch.empty_like(out), "out": out, "lse": lse}
        generator = torch.Generator(device=device).manual_seed(seed + 1)
        dout = torch.randn((*q.shape[:3], self.value_dim), generator=generator, device=device).to(
            q.dtype
        )
        out, lse = plain_attention(q, made["k"], made["v"], **self._masks)
        return {**made, "dout": dout, "out": out, "lse": lse.float()}

    def call(self, inputs: Inputs) -> Any:
        import kernels

        names = ("dout", "q", "k", "v", "out", "lse")
        tensors = (inputs[name] for name in names)
        return kernels.flash_attention_backward(*tensors, causal=self.causal, **self._options)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        kind = getattr(torch, dtype) if dtype else inputs["q"].dtype
        leaves = [inputs[name].detach().to(kind).requires_grad_() for name in "qkv"]
        group = self.H // self.kv_heads
        # A pair of query and key head at a time: PyTorch keeps every score for the gradients.
        gradients = [torch.zeros_like(leaf) for leaf in leaves]
        for h in range(self.H):
            g = h // group
            q, k, v = leaves[0][:, :, h, None], leaves[1][:, :, g, None], leaves[2][:, :, g, None]
            out, _ = plain_attention(q, k, v, **self._masks, dtype=dtype)
            parts = torch.autograd.grad(out, (q, k, v), inputs["dout"][:, :, h, None].to(kind))
            for whole, part, i_h in zip(gradients, parts, (h, g, g), strict=True):
                whole[:, :, i_h, None] += part
        return tuple(gradients)


def workloads() -> tuple[BackwardWorkload, ...]:
    return (
        *(
            BackwardWorkload(
                group="fa3", dtype="bf16", B=16384 // S, H=2048 // D, S=S, D=D, causal=causal
            )
            for D in (64, 128, 256)
            for S in (512, 1024, 2048, 4096, 8192, 16384)
            for causal in (False, True)
        ),
        BackwardWorkload(group="llm", dtype="bf16", B=1, S=8192, H=32, G=8, D=128, causal=True),
        BackwardWorkload(
            group="llm", dtype="bf16", B=1, S=8192, H=32, G=8, D=128, causal=True, window=4096
        ),
    )


FIXED = (
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-backward-bf16-B4-S4096-H32-D64",
)
