"""Which call shows which kernel, and the names of its products and of its shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A call whose first program of ``kernel`` is drawn.

    ``products`` names the products by the variables that they are assigned to, where that is not
    enough with the warpgroup before it. ``rings`` names the shared memory by its number: ``K`` for
    the memory of K, after which come the barriers of the ring. ``rows`` renames rows.
    """

    kernel: str
    call: Callable[[], None]
    products: Mapping[str, str]
    rings: Mapping[int, str]
    rows: Mapping[str, str] = field(default_factory=dict)
    processors: int = 1
    steps: int = 88


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


@contextmanager
def cut_as(module: Any, config: Any) -> Iterator[None]:
    """Inside, ``module`` cuts every problem as ``config`` says."""
    chosen = module.choose
    module.choose = lambda *_, **__: config
    try:
        yield
    finally:
        module.choose = chosen


def forward() -> None:
    import kernels

    kernels.flash_attention(drawn(1, 256, 1, 128), *(drawn(1, 384, 1, 128) for _ in range(2)))


def forward_fp8() -> None:
    import kernels
    from kernels.attention.hopper.fp8 import launch

    lengths = (384, 512, 512)
    q, k, v = (drawn(1, one, 1, 128, dtype=torch.float8_e4m3fn) for one in lengths)
    with cut_as(launch, launch.Fp8HopperConfig(3, block_n=128, stages=2)):
        kernels.flash_attention(q, k, v)


def backward(
    head_dim: int, config: Mapping[str, Any], rows: int = 320, exact: bool = False
) -> Callable[[], None]:
    def call() -> None:
        import kernels
        from kernels.attention.hopper.backward import launch

        q, k, v, dout, out = (drawn(1, rows, 1, head_dim) for _ in range(5))
        lse = torch.zeros(1, 1, rows, device="cuda")
        with cut_as(launch, launch.HopperBackwardConfig(**config)):
            kernels.flash_attention_backward(dout, q, k, v, out, lse, exact_gradients=exact)

    return call


def product(M: int, N: int, K: int, dtype: torch.dtype = torch.bfloat16) -> Callable[[], None]:
    def call() -> None:
        import kernels

        out = torch.empty(M, N, dtype=torch.bfloat16, device="cuda")
        kernels.matmul(drawn(M, K, dtype=dtype), drawn(N, K, dtype=dtype).t(), out=out)

    return call


ONE_PASS = {"columns": 128, "two_kernels": False, "stages": 2}
SHORT = {"columns": 128, "two_kernels": True, "stages": 3}
WIDE = {"columns": 256, "two_kernels": True, "stages": 2}
GRADIENTS = {"s": "S", "dp": "dP", "acc": "dQ", "b_dv": "dV", "b_dk": "dK", "b_dq": "dQ"}

SCENES: dict[str, Scene] = {
    "forward": Scene(
        kernel="attention_forward_hopper",
        call=forward,
        products={"s": "S", "acc": "PV"},
        rings={0: "K", 3: "V", 6: "Q"},
    ),
    "forward-fp8": Scene(
        kernel="attention_forward_fp8_hopper",
        call=forward_fp8,
        products={"s": "S", "pending": "PV"},
        rings={0: "K", 3: "V", 6: "Q"},
    ),
    "backward": Scene(
        kernel="attention_backward_hopper",
        call=backward(128, ONE_PASS),
        products=GRADIENTS,
        rings={0: "K", 1: "V", 2: "Q", 3: "dO", 4: "rows"},
        rows={"warpgroup 0": "warpgroups 0 and 1"},
        steps=120,
    ),
    "backward-short-queries": Scene(
        kernel="attention_backward_hopper_short_q",
        call=backward(128, SHORT),
        products=GRADIENTS,
        rings={0: "Q", 1: "dO", 5: "K", 8: "V"},
    ),
    "backward-short-keys": Scene(
        kernel="attention_backward_hopper_short_kv",
        call=backward(128, SHORT),
        products={"s": "S", "dp": "dP", "acc_v": "dV", "acc_k": "dK"},
        rings={0: "K", 1: "V", 2: "Q", 5: "dO", 8: "lse", 9: "delta"},
    ),
    "backward-wide-keys": Scene(
        kernel="attention_backward_hopper_kv",
        call=backward(256, WIDE, rows=256),
        products={"s": "S", "dp": "dP", "warpgroup 0/acc": "dV", "warpgroup 1/acc": "dK"},
        rings={0: "K", 1: "V", 2: "Q", 5: "dO", 8: "lse", 9: "delta"},
        rows={"warpgroup 0": "warpgroup 0: S, dV", "warpgroup 1": "warpgroup 1: dP, dK"},
    ),
    "backward-wide-queries": Scene(
        kernel="attention_backward_hopper_q",
        call=backward(256, WIDE, rows=256),
        products=GRADIENTS,
        rings={0: "Q", 1: "dO", 3: "K", 6: "V"},
    ),
    "heavy-rows": Scene(
        kernel="attention_backward_hopper_marked",
        call=backward(128, ONE_PASS, exact=True),
        products={"s": "S", "dp": "dP"},
        rings={1: "Q", 4: "Q", 7: "dO", 10: "dO", 13: "K", 16: "V"},
    ),
    "matmul": Scene(
        kernel="matmul_hopper",
        call=product(256, 512, 320),
        products={"acc": "C"},
        rings={0: "A", 1: "B"},
    ),
    "matmul-one-tile": Scene(
        kernel="matmul_hopper_once",
        call=product(256, 512, 1024),
        products={"acc": "C"},
        rings={0: "A", 1: "B"},
        rows={"warpgroup 0": "warpgroup"},
        processors=16,
    ),
    "matmul-fp8": Scene(
        kernel="matmul_hopper_fp8",
        call=product(256, 512, 512, torch.float8_e4m3fn),
        products={"pending": "C"},
        rings={0: "A", 1: "B"},
    ),
}
