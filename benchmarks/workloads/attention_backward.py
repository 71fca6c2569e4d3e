"""Workloads of attention's gradients, alone from a finished forward pass or as autograd takes them,
and their formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Values

from .attention import AttentionWorkload
from .formula import plain_attention
from .matmul import BYTES

if TYPE_CHECKING:
    import torch


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
    def _formula_rows(self) -> int:
        # Of dv, next to the gradients of scores and weights: the weights that a forward pass kept
        # are inputs there, as the log-sum-exp is to ours.
        return self.keys * self.kv_heads

    @property
    def bytes_moved(self) -> int:
        # q, k, v, out and dout are read, dq, dk and dv written; a log-sum-exp a row is read.
        rows = 2 * self.S * self.H + 2 * self.keys * self.kv_heads
        columns = self.D + self.value_dim
        return self.B * (rows * columns * BYTES[self.dtype] + 4 * self.S * self.H)

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        made = super().inputs(device, seed, values)
        dout = self._dout(made["q"], seed, values)
        if values == "none":
            lse = torch.empty((self.B, self.H, self.S), device=device)
            return {**made, "dout": dout, "out": torch.empty_like(dout), "lse": lse}
        out, lse = plain_attention(made["q"], made["k"], made["v"], **self._masks)
        return {**made, "dout": dout, "out": out, "lse": lse.float()}

    def _dout(self, q: torch.Tensor, seed: int, values: Values) -> torch.Tensor:
        import torch

        shape = (*q.shape[:3], self.value_dim)
        if values == "none":
            return torch.empty(shape, dtype=q.dtype, device=q.device)
        generator = torch.Generator(device=q.device).manual_seed(seed + 1)
        return torch.randn(shape, generator=generator, device=q.device).to(q.dtype)

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


@dataclass(frozen=True, kw_only=True)
class TrainingWorkload(BackwardWorkload):
    """The forward pass and through autograd the gradients of q, k and v, without the rounding of
    the output. With ``sink`` key 0 has some nine tenths of the last rows, and more of causal ones
    before, as the first token of trained models has in many heads."""

    kernel: str = "flash_attention"
    sink: bool = False

    @property
    def _prefix(self) -> str:
        return "attention-training"

    @property
    def name(self) -> str:
        return super().name + "-sink" * self.sink

    @property
    def _options(self) -> dict[str, Any]:
        return {**super()._options, "exact_gradients": True}

    @property
    def flops(self) -> int:
        """Seven matmuls."""
        columns = 4 * self.D + 3 * self.value_dim
        return 2 * self.B * self.H * columns * self.visible_scores

    @property
    def formula_bytes(self) -> int | None:
        return None  # of both passes it depends on what is kept

    @property
    def bytes_moved(self) -> int:
        # q, k, v and dout are read, dq, dk and dv written.
        of_queries = self.S * self.H * (2 * self.D + self.value_dim)
        of_keys = 2 * self.keys * self.kv_heads * (self.D + self.value_dim)
        return self.B * (of_queries + of_keys) * BYTES[self.dtype]

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        made = AttentionWorkload.inputs(self, device, seed, values)
        if self.sink and values != "none":
            q, k = made["q"], made["k"]
            # One column is every query's and key 0's alone: its score is log(9 S) at every query,
            # other keys' scores add up to about S e^(1/2).
            q[..., 0] = 4.0
            k[..., 0] = 0.0
            k[:, 0] = 0.0
            k[:, 0, :, 0] = (math.log(9 * self.keys) + 0.5) * math.sqrt(self.D) / 4.0
        return {**made, "dout": self._dout(made["q"], seed, values)}

    def call(self, inputs: Inputs) -> Any:
        import torch

        import kernels

        leaves = [inputs[name].detach().requires_grad_() for name in "qkv"]
        # In this thread: who measures it watches what it launches.
        with torch.autograd.set_multithreading_enabled(False):
            out = kernels.flash_attention(*leaves, causal=self.causal, **self._options)
            return torch.autograd.grad(out, leaves, inputs["dout"])


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
        *(
            TrainingWorkload(
                group="training",
                dtype="bf16",
                B=4,
                S=4096,
                H=2048 // D,
                D=D,
                causal=True,
                sink=sink,
            )
            for D in (64, 128)
            for sink in (False, True)
        ),
    )


FIXED = (
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-backward-bf16-B4-S4096-H32-D64",
)
