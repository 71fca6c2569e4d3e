"""No operator starts more programs along an axis of a grid than CUDA lets it, whatever the batch.

2^31 - 1 along the first axis, 65,535 along the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

import kernels
from benchmarks import targets
from benchmarks.instruments.compiled import record
from benchmarks.instruments.compiled.recording import TensorArgument

BATCH = 70_000  # nothing is written to what is allocated here: launches are recorded


def attention(S: int = 4, D: int = 16, dtype: torch.dtype = torch.bfloat16, **options: Any) -> None:
    q, k, v = (torch.empty((BATCH, S, 1, D), dtype=dtype) for _ in range(3))
    kernels.flash_attention(q, k, v, **options)


def gradients(S: int, D: int) -> None:
    q, k, v, out, dout = (torch.empty((BATCH, S, 1, D), dtype=torch.bfloat16) for _ in range(5))
    kernels.flash_attention_backward(dout, q, k, v, out, torch.empty((BATCH, 1, S)))


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
    "gradients": lambda: gradients(4, 16),
    "gradients-hopper": lambda: gradients(64, 96),
    "gradients-hopper-wide": lambda: gradients(64, 136),
    "packed": lambda: packed(4, 16),
    "packed-hopper": lambda: packed(65, 64),
    "decoding": decoding,
    "grouped": grouped,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_launch_of_a_large_batch_is_within_cudas_limits(
    call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[tuple[str, tuple[int, ...]]] = []

    def launch(kernel: Any, *_: Any, grid: tuple[int, ...], **__: Any) -> None:
        grids.append((kernel.__name__, grid))

    # What a batch makes of a grid needs no code of the kernel.
    monkeypatch.setattr(JITFunction, "run", launch)
    record(call, targets.get("sm_90"))
    assert grids
    for name, (x, *others) in grids:
        assert x < 2**31 and all(one < 2**16 for one in others), (name, x, *others)


def test_values_of_a_large_batch_are_turned_around_in_several_launches() -> None:
    recording = record(CALLS["fp8-hopper"], targets.get("sm_90"))
    *prepared, products = recording.launches
    assert products.kernel.name == "attention_forward_fp8_hopper"
    assert [launch.grid[1] for launch in prepared] == [65_535, BATCH - 65_535]
    whole, *_ = prepared[0].arguments.values()
    rest, *_ = prepared[1].arguments.values()
    assert isinstance(whole, TensorArgument) and isinstance(rest, TensorArgument)
    assert rest.address - whole.address == 65_535 * 65 * 16  # bytes of values before
