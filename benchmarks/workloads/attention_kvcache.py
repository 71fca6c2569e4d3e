"""Workloads of decoding over a key-value cache, paged and contiguous, and their formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from warpwatch.workload.base import Inputs, Values, Workload
from warpwatch.workload.fp8 import fp8_flavour

from .formula import plain_attention
from .matmul import BYTES, DTYPE_NAMES


@dataclass(frozen=True, kw_only=True)
class KvcacheWorkload(Workload):
    """``B`` sequences of ``KV`` keys each, ``S`` new queries a sequence that come after them.

    ``page`` rows a page, in shuffled order, or 0 for a contiguous cache. With ``append`` the keys
    and values of the queries' own tokens come with the call, which turns queries and keys to their
    positions and writes the keys into the cache. ``kv`` "fp8" is a cache of e4m3 in the flavour the
    hardware has, 4 sigma being its largest value.
    """

    kernel: str = "flash_attention_kvcache"
    B: int
    KV: int
    H: int
    G: int
    D: int
    S: int = 1
    page: int = 0
    append: bool = False
    kv: str = ""
    causal: bool = True

    @property
    def name(self) -> str:
        shape = f"B{self.B}-S{self.S}-KV{self.KV}-H{self.H}-G{self.G}-D{self.D}"
        paged = f"-page{self.page}" if self.page else ""
        paged += f"-{self.kv}kv" if self.kv else ""
        suffix = "-append" * self.append + "-causal" * self.causal
        return f"attention-kvcache-{self.dtype}-{shape}{paged}{suffix}"

    @property
    def flops(self) -> int:
        hidden = self.S * (self.S - 1) // 2 if self.causal else 0
        return 4 * self.B * self.H * self.D * (self.S * self.KV - hidden)

    @property
    def bytes_moved(self) -> int:
        new = self.S * (self.H + self.append * self.G) * BYTES[self.dtype]
        return 2 * self.B * self.D * (self.KV * self.G * BYTES[self.kv or self.dtype] + new)

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        kind = getattr(torch, DTYPE_NAMES[self.dtype])
        generator = torch.Generator(device=device).manual_seed(seed)

        def make(*shape: int) -> torch.Tensor:
            if values == "none":
                return torch.empty(shape, dtype=kind, device=device)
            return torch.randn(shape, generator=generator, device=device).to(kind)

        made: dict[str, Any] = {"q": make(self.B, self.S, self.H, self.D), "table": None}
        rows = (self.B, self.KV)
        if self.page:
            pages = math.ceil(self.KV / self.page)
            rows = (self.B * pages, self.page)
            # On the CPU, so that the order is known wherever the tensors are.
            order = torch.randperm(self.B * pages, generator=torch.Generator().manual_seed(seed))
            made["table"] = order.reshape(self.B, pages).to(device, torch.int32)
        for name in ("k", "v"):
            if self.kv and values == "none":
                made[name] = torch.empty(
                    (*rows, self.G, self.D), dtype=fp8_flavour(), device=device
                )
                made[f"{name}_scale"] = torch.empty((), device=device)
                continue
            made[name] = make(*rows, self.G, self.D)
            if self.kv:
                made[name], made[f"{name}_scale"] = _quantised(made[name])
        before = self.KV - self.S if self.append else self.KV
        made["seqlens"] = torch.full((self.B,), before, dtype=torch.int32, device=device)
        if self.append:
            for name in ("k_new", "v_new"):
                made[name] = make(self.B, self.S, self.G, self.D)
            positions = torch.arange(math.ceil(self.KV / max(self.page, 1)) * max(self.page, 1))
            rates = 5e5 ** -(torch.arange(0, self.D, 2) / self.D)  # Llama-3's base
            angles = positions[:, None] * rates
            made["cos"], made["sin"] = angles.cos().to(device), angles.sin().to(device)
        return made

    @property
    def needs(self) -> tuple[str, ...]:
        return ("k", "v") * self.append + ("k_scale",) * bool(self.kv)

    def call(self, inputs: Inputs) -> Any:
        import kernels

        return kernels.flash_attention_kvcache(
            inputs["q"],
            inputs["k"],
            inputs["v"],
            cache_seqlens=inputs["seqlens"],
            block_table=inputs["table"],
            causal=self.causal,
            **self._options(inputs),
        )

    def _options(self, inputs: Inputs) -> dict[str, Any]:
        scales = {name: inputs[name] for name in ("k_scale", "v_scale") if self.kv}
        if not self.append:
            return scales
        return scales | {
            "k": inputs["k_new"],
            "v": inputs["v_new"],
            "rotary_cos": inputs["cos"],
            "rotary_sin": inputs["sin"],
            "rotary_interleaved": False,
        }

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        table, outs = inputs["table"], []
        for b in range(self.B):  # one sequence at a time, so that the copies fit in memory
            k, v = (
                inputs[name][b]
                if table is None
                else inputs[name][table[b].long()].flatten(0, 1)[: self.KV]
                for name in ("k", "v")
            )
            q = inputs["q"][b : b + 1]
            if self.kv:
                wide = torch.float64 if dtype == "float64" else torch.float32
                k, v = (
                    one.to(wide) * inputs[f"{name}_scale"].to(wide)
                    for name, one in (("k", k), ("v", v))
                )
            if self.append:
                new = (_turned(inputs["k_new"][b], inputs, self.KV, dtype), inputs["v_new"][b])
                k, v = (
                    torch.cat((one[: self.KV - self.S].to(last.dtype), last))
                    for one, last in zip((k, v), new, strict=True)
                )
                q = _turned(q[0], inputs, self.KV, dtype)[None]
            offset = self.KV - self.S if self.causal else None
            outs.append(plain_attention(q, k[None], v[None], causal_offset=offset, dtype=dtype)[0])
        return torch.cat(outs)


def _quantised(rows: Any) -> tuple[Any, Any]:
    import torch

    flavour = fp8_flavour()
    scale = 4.0 / torch.finfo(flavour).max
    return (rows.clamp(-4.0, 4.0) / scale).to(flavour), torch.full((), scale, device=rows.device)


def _turned(rows: Any, inputs: Inputs, end: int, dtype: str | None) -> Any:
    """``rows`` (tokens, heads, dim) as the last ones before position ``end``."""
    import torch

    kind = getattr(torch, dtype) if dtype else rows.dtype
    wide = torch.promote_types(kind, torch.float32)
    cos, sin = (inputs[name][end - len(rows) : end, None].to(wide) for name in ("cos", "sin"))
    x, y = rows.to(wide).chunk(2, -1)
    return torch.cat((x * cos - y * sin, y * cos + x * sin), -1).to(kind)


def workloads() -> tuple[KvcacheWorkload, ...]:
    llama_8b: dict[str, Any] = {"group": "llm", "dtype": "bf16", "H": 32, "G": 8, "D": 128}
    return (
        # 64 and 256 MB of keys and values, then the long contexts of one sequence.
        KvcacheWorkload(**llama_8b, B=8, KV=2048),
        KvcacheWorkload(**llama_8b, B=16, KV=4096),
        KvcacheWorkload(**llama_8b, B=8, KV=2048, page=64),
        KvcacheWorkload(**llama_8b, B=16, KV=4096, page=64),
        KvcacheWorkload(**llama_8b, B=16, KV=4096, page=16),
        KvcacheWorkload(**llama_8b, B=16, KV=4096, S=4, page=64),
        KvcacheWorkload(**llama_8b, B=16, KV=4096, page=64, append=True),
        KvcacheWorkload(**llama_8b, B=16, KV=4096, page=64, kv="fp8"),
        *(KvcacheWorkload(**llama_8b, B=1, KV=k << 10, page=64) for k in (16, 32, 64, 128)),
        KvcacheWorkload(**llama_8b | {"H": 64}, B=16, KV=4096, page=64),
        # Tokens guessed ahead, beside the four above: for ``peers``.
        *(
            KvcacheWorkload(**llama_8b, B=16, KV=4096, S=S, page=64, every_commit=False)
            for S in (2, 8, 16)
        ),
        KvcacheWorkload(**llama_8b, B=1, KV=65536, S=8, page=64, every_commit=False),
    )


FIXED = ("attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal",)
