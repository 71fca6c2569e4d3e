"""No operator starts more programs along an axis of a grid than CUDA lets it, whatever the batch,
or a product's rows and columns.

2^31 - 1 along the first axis, 65,535 along the others.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

import kernels
from kernels.attention.common.numerics.fp8_scales import Scales
from tests.kernels.test_reach import NO_RESERVE
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats.recording import TensorArgument
from warpwatch.instruments.compiled.record.call import record

# Nothing is written to what is allocated here: launches are recorded.
BATCH = 70_000
MANY = 4_200_000  # columns or rows: of tiles of 64, 65,625


def attention(S: int = 4, D: int = 16, dtype: torch.dtype = torch.bfloat16, **options: Any) -> None:
    q, k, v = (torch.empty((BATCH, S, 1, D), dtype=dtype) for _ in range(3))
    kernels.flash_attention(q, k, v, **options)


def gradients(S: int, D: int) -> None:
    q, k, v, out, dout = (torch.empty((BATCH, S, 1, D), dtype=torch.bfloat16) for _ in range(5))
    kernels.flash_attention_backward(dout, q, k, v, out, torch.empty((BATCH, 1, S)))


def packed_fp8(S: int, D: int) -> None:
    q = torch.empty((BATCH * S, 1, D), dtype=torch.float8_e4m3fn)
    cu = torch.arange(0, BATCH * S + 1, S, dtype=torch.int32)
    kernels.flash_attention_varlen(q, q, q, cu, cu, S, S, k_scale=torch.ones(BATCH, 1))


def packed(S: int, D: int) -> None:
    q, k, v = (
        torch.empty((BATCH * S, 1, D), dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    cu = torch.arange(0, BATCH * S + 1, S, dtype=torch.int32)
    kernels.flash_attention_varlen(q, k, v, cu, cu, S, S)[0].sum().backward()


def decoding() -> None:
    q, k, v = (torch.empty((BATCH, 1, 1, 16), dtype=torch.bfloat16) for _ in range(3))
    caches = (torch.empty((BATCH, 16, 1, 16), dtype=torch.bfloat16) for _ in range(2))
    seqlens = torch.full((BATCH,), 3, dtype=torch.int32)
    kernels.flash_attention_kvcache(q, *caches, k=k, v=v, cache_seqlens=seqlens, num_splits=2)


def grouped() -> None:
    a = torch.empty((BATCH, 16), dtype=torch.bfloat16, requires_grad=True)
    b = torch.empty((BATCH, 16, 16), dtype=torch.bfloat16, requires_grad=True)
    kernels.grouped_matmul(a, b, torch.arange(BATCH + 1, dtype=torch.int32)).sum().backward()


CALLS: dict[str, Callable[[], None]] = {
    "portable": lambda: attention(softcap=2.0),
    "hopper": lambda: attention(64, 64),
    "hopper-causal": lambda: attention(64, 64, causal=True),
    "fp8": lambda: attention(16, 32, torch.float8_e4m3fn),
    "fp8-hopper": lambda: attention(65, 16, torch.float8_e4m3fn),
    "fp8-hopper-scales": lambda: attention(
        65, 16, torch.float8_e4m3fn, q_scale=torch.ones(()), k_scale=torch.ones(BATCH, 1)
    ),
    "gradients": lambda: gradients(4, 16),
    "gradients-hopper": lambda: gradients(64, 96),
    "gradients-hopper-wide": lambda: gradients(64, 136),
    "packed": lambda: packed(4, 16),
    "packed-hopper": lambda: packed(65, 64),
    "packed-fp8": lambda: packed_fp8(16, 32),
    "packed-fp8-hopper": lambda: packed_fp8(65, 32),
    "decoding": decoding,
    "grouped": grouped,
}


def untouched(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A contiguous tensor of any size, of which no byte is there."""
    size = math.prod(shape) * dtype.itemsize
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return torch.frombuffer(room, dtype=dtype).view(shape)


def product(M: int, N: int, K: int, *, repeated: bool = False, **options: Any) -> None:
    """b along K, of one column where it is ``repeated``."""
    kind = options.pop("dtype", torch.bfloat16)
    a, b = untouched(M, K, dtype=kind), untouched(1 if repeated else N, K, dtype=kind)
    out = untouched(M, N, dtype=options.get("out_dtype", kind))
    kernels.matmul(a, b.expand(N, K).t(), out=out, **options)


def fp8(M: int, N: int, K: int, **options: Any) -> None:
    options = {"out_dtype": torch.float32, **options}
    product(M, N, K, dtype=torch.float8_e4m3fn, **options)


def blocks(M: int, N: int, K: int) -> dict[str, torch.Tensor]:
    in_blocks = -(-K // 128), -(-N // 128)
    return {"a_scale": torch.empty((M, in_blocks[0])), "b_scale": torch.empty(in_blocks)}


def grouped_columns() -> None:
    a = torch.empty((64, 16), dtype=torch.bfloat16, requires_grad=True)
    b = untouched(1, 16, MANY).requires_grad_()
    out = kernels.grouped_matmul(a, b, torch.tensor([0, 64], dtype=torch.int32))
    torch.autograd.grad(out, (a, b), untouched(64, MANY))


# The kernels of products; the last two are all that splits K for most columns and for most rows.
PRODUCTS: dict[str, Callable[[], None]] = {
    "columns": lambda: product(16, MANY, 16),
    "columns-of-32-rows": lambda: product(32, 5_000_000, 64),
    "columns-along-n": lambda: kernels.matmul(
        untouched(64, 16), untouched(16, MANY), out=untouched(64, MANY)
    ),
    "columns-residual": lambda: product(16, MANY, 16, residual=untouched(16, MANY)),
    "columns-portable": lambda: product(16, MANY, 512, repeated=True),
    "columns-fp32": lambda: product(16, MANY, 16, dtype=torch.float32),
    "columns-tf32": lambda: product(512, MANY, 16, dtype=torch.float32, allow_tf32=True),
    "columns-fp8": lambda: fp8(16, MANY, 16),
    "columns-fp8-gelu": lambda: fp8(16, MANY, 16, activation="gelu"),
    "columns-fp8-blocks": lambda: fp8(16, MANY, 16, **blocks(16, MANY, 16)),
    "columns-fp8-blocks-of-65-rows": lambda: fp8(65, MANY, 16, **blocks(65, MANY, 16)),
    "columns-one-row": lambda: product(1, MANY, 16),
    "columns-grouped": grouped_columns,
    "rows": lambda: product(MANY, 16, 16),
    "rows-fp32": lambda: product(MANY, 16, 16, dtype=torch.float32),
    "rows-tf32": lambda: product(MANY, 16, 16, dtype=torch.float32, allow_tf32=True),
    "rows-fp8": lambda: fp8(MANY, 16, 16),
    "rows-fp8-blocks": lambda: fp8(MANY, 16, 16, **blocks(MANY, 16, 16)),
    "split-columns": lambda: product(16, 2_944, 8_192),
    "split-rows": lambda: product(66 * 64, 64, 8_192),
}


@pytest.mark.parametrize("call", [*CALLS.values(), *PRODUCTS.values()], ids=[*CALLS, *PRODUCTS])
def test_every_launch_is_within_cudas_limits(
    call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[tuple[str, tuple[int, ...]]] = []

    def launch(kernel: Any, *_: Any, grid: tuple[int, ...], **__: Any) -> None:
        grids.append((kernel.__name__, grid))

    # What sizes make of a grid needs no code of the kernel.
    monkeypatch.setattr(JITFunction, "run", launch)
    record(call, targets.get("sm_90"))
    assert grids
    for name, (x, *others) in grids:
        assert x < 2**31 and all(one < 2**16 for one in others), (name, x, *others)


def _argument(launch: Any, name: str) -> Any:
    whole, _, field = name.partition(".")
    found = launch.arguments[whole]
    return found[Scales._fields.index(field)] if field else found


@pytest.mark.parametrize("name", ["fp8-hopper", "fp8-hopper-scales"])
def test_values_of_a_large_batch_are_turned_around_in_several_launches(name: str) -> None:
    recording = record(CALLS[name], targets.get("sm_90"))
    *prepared, products = recording.launches
    assert products.kernel.name == "attention_forward_fp8_hopper"
    assert [launch.grid[1] for launch in prepared] == [65_535, BATCH - 65_535]
    # Bytes of values before, and of each sequence's scales and their products.
    before = {"v": 65 * 16, "scales.k": 4, "factors": 8} if "scales" in name else {"v": 65 * 16}
    for argument, each in before.items():
        whole, rest = (_argument(launch, argument) for launch in prepared)
        assert isinstance(whole, TensorArgument) and isinstance(rest, TensorArgument)
        assert rest.address - whole.address == 65_535 * each
