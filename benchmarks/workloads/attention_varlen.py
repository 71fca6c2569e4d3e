"""Workloads of attention over packed sequences, forward and their gradients, and their formula."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from warpwatch.workload.base import Inputs, Values, Workload

from .formula import plain_attention
from .matmul import BYTES, DTYPE_NAMES

# Lengths of the sequences by name, 16,384 tokens each: alike, and as prompts come.
PACKS: dict[str, tuple[int, ...]] = {
    "even": (2048,) * 8,
    "mixed": (8192, 4096, 2048, 1024, 512, 256, 128, 100, 20, 7, 1),
}


@dataclass(frozen=True, kw_only=True)
class VarlenWorkload(Workload):
    """Self-attention of the sequences of ``pack``; with ``backward`` their gradients alone, from a
    finished forward pass."""

    kernel: str = "flash_attention_varlen"
    pack: str
    H: int
    G: int
    D: int
    causal: bool = True
    backward: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return PACKS[self.pack]

    @property
    def name(self) -> str:
        prefix = "attention-varlen-backward" if self.backward else "attention-varlen"
        shape = f"{self.pack}-H{self.H}-G{self.G}-D{self.D}"
        return f"{prefix}-{self.dtype}-{shape}" + "-causal" * self.causal

    @property
    def flops(self) -> int:
        scores = sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)
        return (10 if self.backward else 4) * self.H * self.D * scores

    @property
    def bytes_moved(self) -> int:
        tokens = sum(self.lengths)
        moved = 2 * tokens * (self.H + self.G) * self.D * BYTES[self.dtype]
        return 2 * moved + 4 * tokens * self.H if self.backward else moved

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        kind = getattr(torch, DTYPE_NAMES[self.dtype])
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(heads: int) -> torch.Tensor:
            shape = (sum(self.lengths), heads, self.D)
            if values == "none":
                return torch.empty(shape, dtype=kind, device=device)
            return torch.randn(shape, generator=generator, device=device).to(kind)

        ends = [sum(self.lengths[:i]) for i in range(len(self.lengths) + 1)]
        cu = torch.tensor(ends, dtype=torch.int32, device=device)
        made: dict[str, Any] = {"q": make(self.H), "k": make(self.G), "v": make(self.G), "cu": cu}
        if not self.backward:
            return made
        made["dout"] = make(self.H)
        if values == "none":
            made["out"] = torch.empty_like(made["q"])
            made["lse"] = torch.empty((self.H, sum(self.lengths)), device=device)
        else:
            made["out"], lse = self._plain(made["q"], made["k"], made["v"])
            made["lse"] = lse.float()
        return made

    def call(self, inputs: Inputs) -> Any:
        import torch

        import kernels

        q, k, v, cu = (inputs[name] for name in ("q", "k", "v", "cu"))
        longest = max(self.lengths)
        forward = kernels.flash_attention_varlen  # looked up, it adds the operators to torch
        if not self.backward:
            return forward(q, k, v, cu, cu, longest, longest, causal=self.causal)
        done = (inputs["out"], inputs["lse"], cu, cu, longest, longest)
        return torch.ops.warpwatch.flash_attention_varlen_backward(
            inputs["dout"], None, q, k, v, *done, self.causal, 0, None, self.D**-0.5
        )

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        if not self.backward:
            return self._plain(inputs["q"], inputs["k"], inputs["v"], dtype)[0]
        kind = getattr(torch, dtype) if dtype else inputs["q"].dtype
        leaves = [inputs[name].detach().to(kind).requires_grad_() for name in "qkv"]
        q, k, v = leaves
        out, _ = self._plain(q, k, v, dtype)
        return torch.autograd.grad(out, leaves, inputs["dout"].to(kind))

    def _plain(self, q: Any, k: Any, v: Any, dtype: str | None = None) -> tuple[Any, Any]:
        import torch

        ends = [sum(self.lengths[:i]) for i in range(len(self.lengths) + 1)]
        parts = [
            plain_attention(
                *(one[None, first:end] for one in (q, k, v)),
                causal_offset=0 if self.causal else None,
                dtype=dtype,
            )
            for first, end in pairwise(ends)
        ]
        return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)


def workloads() -> tuple[VarlenWorkload, ...]:
    return tuple(
        VarlenWorkload(group="llm", dtype="bf16", pack=pack, H=32, G=8, D=128, backward=backward)
        for pack in PACKS
        for backward in (False, True)
    )
