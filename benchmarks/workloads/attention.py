"""Attention workloads: the shapes the tables compare, and the plain formula in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Values, Workload

from .formula import plain_attention
from .matmul import BYTES, DTYPE_NAMES

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AttentionWorkload(Workload):
    """One attention call. ``S`` counts queries, ``KV`` keys (as many by default), ``H`` query
    heads, ``G`` key heads (as many by default), ``D`` the head dim.

    ``bhsd`` stores heads before rows and passes transposed views, as models that were written for
    torch's own attention do. ``window`` counts the keys a query sees before its own, 0 for all,
    ``DV`` the values' head dim, that of the keys by default.
    """

    kernel: str = "flash_attention"
    B: int
    S: int
    H: int
    D: int
    KV: int = 0
    G: int = 0
    causal: bool = False
    bhsd: bool = False
    window: int = 0
    DV: int = 0

    @property
    def keys(self) -> int:
        return self.KV or self.S

    @property
    def kv_heads(self) -> int:
        return self.G or self.H

    @property
    def value_dim(self) -> int:
        return self.DV or self.D

    @property
    def _prefix(self) -> str:
        return "attention"

    @property
    def name(self) -> str:
        parts = [self._prefix, self.dtype, f"B{self.B}", f"S{self.S}"]
        if self.KV:
            parts.append(f"KV{self.KV}")
        parts.append(f"H{self.H}")
        if self.G:
            parts.append(f"G{self.G}")
        parts.append(f"D{self.D}")
        if self.DV:
            parts.append(f"DV{self.DV}")
        if self.causal:
            parts.append("causal")
        if self.bhsd:
            parts.append("bhsd")
        if self.window:
            parts.append(f"window{self.window}")
        return "-".join(parts)

    @property
    def causal_offset(self) -> int:
        """Query i sees key j when j <= i + this: bottom-right."""
        return self.keys - self.S

    @property
    def visible_scores(self) -> int:
        """Query-key pairs of one head that are not masked."""
        ends = self._rows_ends(self.causal_offset + 1) if self.causal else self.S * self.keys
        firsts = self._rows_ends(self.causal_offset - self.window) if self.window else 0
        return ends - firsts

    def _rows_ends(self, shift: int) -> int:
        """The sum over queries i of i + ``shift``, none less than 0 or more than all keys: a
        formula, as asv asks for it of each value when it imports the suite."""
        first = min(max(-shift, 0), self.S)  # rows before it give 0
        last = min(max(self.keys - shift, 0), self.S)  # and from it on all keys
        return (first + last - 1 + 2 * shift) * (last - first) // 2 + (self.S - last) * self.keys

    @property
    def _masks(self) -> dict[str, Any]:
        """As ``plain_attention`` takes them."""
        return {
            "causal_offset": self.causal_offset if self.causal else None,
            "left_offset": self.causal_offset - self.window if self.window else None,
        }

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """Only what the workload asks for: a commit without an option can still be measured on the
        workloads that do not need it."""
        return {"window_size": (self.window, -1)} if self.window else {}

    @property
    def flops(self) -> int:
        return 2 * self.B * self.H * (self.D + self.value_dim) * self.visible_scores

    @property
    def formula_bytes(self) -> int | None:
        """The formula holds the scores before and after scaling, later they and their weights, and
        the output. Masks and repeated heads would come on top; fp8 would be multiplied as bf16."""
        size = BYTES["bf16" if self.dtype == "fp8" else self.dtype]
        scores = self.H * self.S * self.keys
        return self.B * size * (2 * scores + self._formula_rows * self.value_dim)

    @property
    def _formula_rows(self) -> int:
        return self.S * self.H

    @property
    def bytes_moved(self) -> int:
        rows = self.S * self.H + self.keys * self.kv_heads
        return self.B * rows * (self.D + self.value_dim) * BYTES[self.dtype]

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        kind = getattr(torch, DTYPE_NAMES[self.dtype])
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(rows: int, heads: int, columns: int) -> torch.Tensor:
            shape = (self.B, rows, heads, columns)
            if self.bhsd:
                shape = (self.B, heads, rows, columns)
            if values == "none":
                made = torch.empty(shape, dtype=kind, device=device)
            else:
                made = torch.randn(shape, generator=generator, device=device).to(kind)
            return made.transpose(1, 2) if self.bhsd else made

        return {
            "q": make(self.S, self.H, self.D),
            "k": make(self.keys, self.kv_heads, self.D),
            "v": make(self.keys, self.kv_heads, self.value_dim),
        }

    def call(self, inputs: Inputs) -> Any:
        import kernels

        return kernels.flash_attention(
            inputs["q"], inputs["k"], inputs["v"], causal=self.causal, **self._options
        )

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        return plain_attention(
            inputs["q"],
            inputs["k"],
            inputs["v"],
            **self._masks,
            dtype=dtype,
        )[0]


@dataclass(frozen=True, kw_only=True)
class SdpaWorkload(AttentionWorkload):
    """The same through torch's own signature, tensors (batch, heads, seqlen, head_dim)."""

    kernel: str = "scaled_dot_product_attention"

    @property
    def _prefix(self) -> str:
        return "sdpa"

    @property
    def causal_offset(self) -> int:
        """Top-left, as torch's ``is_causal``."""
        return 0

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        made = super().inputs(device, seed, values)
        return {name: value.transpose(1, 2).contiguous() for name, value in made.items()}

    def call(self, inputs: Inputs) -> Any:
        import kernels

        options: dict[str, Any] = {"is_causal": True} if self.causal else {}
        if self.kv_heads != self.H:
            options["enable_gqa"] = True
        return kernels.scaled_dot_product_attention(
            inputs["q"], inputs["k"], inputs["v"], **options
        )

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        views = {name: value.transpose(1, 2) for name, value in inputs.items()}
        return super().reference(views, dtype).transpose(1, 2)


def workloads() -> tuple[AttentionWorkload, ...]:
    return (
        *_sdpa(),
        *_guide(),
        *_tensor_core(),
        *_amd(),
        *_fa3(),
        *_llm(),
        *_shapes(),
    )


def _sdpa() -> list[AttentionWorkload]:
    return [
        SdpaWorkload(group="sdpa", dtype="fp16", B=12, H=64, S=256, D=64),
        SdpaWorkload(group="sdpa", dtype="fp16", B=16, H=128, S=784, D=128),
    ]


def _guide() -> list[AttentionWorkload]:
    return [
        AttentionWorkload(group="guide", dtype="fp16", B=4, H=8, S=S, D=64)
        for S in (512, 1024, 2048, 4096, 8192)
    ]


def _tokens_16k(group: str, S: int, D: int, causal: bool) -> AttentionWorkload:
    """16,384 tokens, heads x head dim 2048, bf16: FlashAttention-3's grid."""
    return AttentionWorkload(
        group=group, dtype="bf16", B=16384 // S, H=2048 // D, S=S, D=D, causal=causal
    )


def _tensor_core() -> list[AttentionWorkload]:
    # Heads x head dim 4096, so that the names stay apart from those of the fa3 grid.
    return [
        AttentionWorkload(group="tensor-core", dtype="bf16", B=2, H=4096 // D, S=4096, D=D)
        for D in (64, 128, 256)
    ]


def _amd() -> list[AttentionWorkload]:
    return [
        AttentionWorkload(group="amd", dtype="bf16", B=8, H=32, S=S, D=128)
        for S in (1024, 2048, 4096)
    ]


def _fa3() -> list[AttentionWorkload]:
    return [
        _tokens_16k("fa3", S, D, causal)
        for D in (64, 128, 256)
        for S in (512, 1024, 2048, 4096, 8192, 16384)
        for causal in (False, True)
    ]


def _llm() -> list[AttentionWorkload]:
    shape: dict[str, Any] = {"group": "llm", "dtype": "bf16", "B": 1, "G": 8, "D": 128}
    return [
        *(
            AttentionWorkload(**shape, S=S, H=H, causal=True)
            for H in (32, 64)
            for S in (2048, 8192)
        ),
        # Mistral 7B's: as many keys as the window holds, whatever the length.
        *(AttentionWorkload(**shape, S=S, H=32, causal=True, window=4096) for S in (8192, 16384)),
    ]


def _shapes() -> list[AttentionWorkload]:
    """What the named groups leave out: lengths that fit no tile, views, unlike lengths."""
    return [
        AttentionWorkload(group="shapes", dtype="bf16", B=2, S=1000, H=16, D=64, causal=True),
        AttentionWorkload(
            group="shapes", dtype="fp16", B=2, S=512, KV=4096, H=16, D=128, causal=True
        ),
        AttentionWorkload(group="shapes", dtype="bf16", B=4, S=2048, H=16, D=128, bhsd=True),
    ]


FIXED = (
    "sdpa-fp16-B12-S256-H64-D64",
    "attention-fp16-B4-S2048-H8-D64",
    "attention-bf16-B4-S4096-H16-D128",
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-bf16-B4-S4096-H32-D64-causal",
    "attention-bf16-B4-S4096-H8-D256-causal",
    "attention-bf16-B1-S8192-H32-G8-D128-causal",
    "attention-fp16-B2-S512-KV4096-H16-D128-causal",
)
