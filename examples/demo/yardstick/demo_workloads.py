"""The yardstick of ``demokernels``: shapes, plain PyTorch references, what is compiled where."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warpwatch.workload.base import Inputs, Values, Workload

Shapes = dict[str, tuple[int, ...]]
_BYTES = 2  # all inputs are bf16


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _linear(x: Any, w: Any, bias: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x @ w + bias)


def _logits(x: Any, head: Any) -> Any:
    return x @ head


def _gated_mlp(x: Any, gate: Any, up: Any) -> Any:
    import torch

    return torch.nn.functional.silu(x @ gate) * (x @ up)


def _rms_norm(x: Any, weight: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def _softmax(x: Any) -> Any:
    return x.softmax(-1)


def _attention(q: Any, k: Any, v: Any) -> Any:
    import torch

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2)


@dataclass(frozen=True, kw_only=True)
class DemoWorkload(Workload):
    """One kernel of ``demokernels`` at one shape, and the targets it is compiled for."""

    label: str
    shapes: Shapes
    targets: tuple[str, ...]
    formula: Callable[..., Any]
    work: int
    written: int
    group: str = "demo"
    dtype: str = "bfloat16"

    @property
    def name(self) -> str:
        return self.label

    @property
    def flops(self) -> int:
        return self.work

    @property
    def bytes_moved(self) -> int:
        return _BYTES * sum(math.prod(shape) for shape in self.shapes.values()) + self.written

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        dtype = getattr(torch, self.dtype)
        if values == "none":
            return {
                name: torch.empty(shape, dtype=dtype, device=device)
                for name, shape in self.shapes.items()
            }
        generator = torch.Generator(device).manual_seed(seed)
        return {
            name: torch.randn(shape, generator=generator, device=device).to(dtype)
            for name, shape in self.shapes.items()
        }

    def call(self, inputs: Inputs) -> Any:
        import demokernels

        return getattr(demokernels, self.kernel)(**inputs)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch

        computed = getattr(torch, dtype or self.dtype)
        return self.formula(**{name: value.to(computed) for name, value in inputs.items()})


def _of_gemm(
    label: str, kernel: str, shapes: Shapes, mnk: tuple[int, int, int], targets: str, **more: Any
) -> DemoWorkload:
    m, n, k = mnk
    more = {"work": 2 * m * n * k, "written": _BYTES * m * n, **more}
    return DemoWorkload(
        label=label, kernel=kernel, shapes=shapes, targets=tuple(targets.split()), **more
    )


_ROWS = (8192, 4096)
_HEADS = (4, 4096, 16, 128)
_WORKLOADS = (
    _of_gemm(
        "matmul",
        "matmul",
        {"a": (4096, 4096), "b": (4096, 4096)},
        (4096, 4096, 4096),
        "sm_80 sm_90 gfx942",
        formula=_matmul,
    ),
    _of_gemm(
        "linear",
        "linear",
        {"x": (4096, 2048), "w": (2048, 4096), "bias": (4096,)},
        (4096, 4096, 2048),
        "sm_90 gfx942",
        formula=_linear,
    ),
    _of_gemm(
        "logits",
        "logits",
        {"x": (2048, 2048), "head": (2048, 32768)},
        (2048, 32768, 2048),
        "sm_80 sm_90 gfx90a gfx942",
        formula=_logits,
        written=4 * 2048 * 32768,
    ),
    _of_gemm(
        "gated_mlp",
        "gated_mlp",
        {"x": (4096, 2048), "gate": (2048, 8192), "up": (2048, 8192)},
        (4096, 8192, 2048),
        "sm_80 sm_90 gfx942",
        formula=_gated_mlp,
        work=4 * 4096 * 8192 * 2048,
    ),
    DemoWorkload(
        label="norm",
        kernel="rms_norm",
        shapes={"x": _ROWS, "weight": _ROWS[1:]},
        targets=("sm_90", "gfx942"),
        formula=_rms_norm,
        work=4 * math.prod(_ROWS),
        written=_BYTES * math.prod(_ROWS),
    ),
    DemoWorkload(
        label="softmax",
        kernel="softmax",
        shapes={"x": _ROWS},
        targets=("sm_90", "gfx942"),
        formula=_softmax,
        work=5 * math.prod(_ROWS),
        written=_BYTES * math.prod(_ROWS),
    ),
    DemoWorkload(
        label="attention",
        kernel="attention",
        shapes={"q": _HEADS, "k": _HEADS, "v": _HEADS},
        targets=("sm_80", "sm_90", "gfx90a", "gfx942"),
        formula=_attention,
        # Two products of seqlen x seqlen x head_dim a head, half of them masked.
        work=2 * _HEADS[0] * _HEADS[2] * _HEADS[1] ** 2 * _HEADS[3],
        written=_BYTES * math.prod(_HEADS),
    ),
)
_BY_NAME = {workload.name: workload for workload in _WORKLOADS}


def all_workloads() -> tuple[Workload, ...]:
    return _WORKLOADS


def get(name: str) -> Workload:
    """The workload called ``name``; ``ValueError`` names near matches."""
    if name not in _BY_NAME:
        near = ", ".join(difflib.get_close_matches(name, _BY_NAME)) or ", ".join(_BY_NAME)
        raise ValueError(f"unknown workload {name!r}: did you mean {near}?")
    return _BY_NAME[name]


def select(*, kernel: str | None = None, group: str | None = None) -> tuple[Workload, ...]:
    """The workloads of one public kernel, of one group, or of both."""
    return tuple(
        workload
        for workload in _WORKLOADS
        if kernel in (None, workload.kernel) and group in (None, workload.group)
    )


def fixed_set() -> tuple[tuple[Workload, str], ...]:
    """The (workload, target name) pairs every commit is compiled for."""
    return tuple((workload, target) for workload in _WORKLOADS for target in workload.targets)
