"""On a GPU: CUDA graphs hold each public operator, inductor compiles it, nothing waits or leaks."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.gpu.graph_calls import CALLS, Call, Tensors
from tests.kernels.on_card import portable

pytestmark = pytest.mark.gpu

# The forward pass is recorded in the second call of a form, the backward pass two calls later.
RECORDED = 4
# Where Hopper has a kernel of its own the portable one is held too.
NAMES = [
    *((name, False) for name in CALLS),
    *((name, True) for name in CALLS if name.startswith(("attention D", "attention packed"))),
    *((name, True) for name in ("attention fp8", "matmul", "matmul tf32")),
]


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def bits(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    return [one.detach().clone().view(kinds[one.element_size()]) for one in tensors]


def fill(given: Tensors, values: Tensors) -> None:
    for name, value in values.items():
        given[name].copy_(value)


def results(call: Call, given: Tensors) -> list[torch.Tensor]:
    return bits([*call.outputs(given), *(given[name] for name in call.written)])


@pytest.mark.parametrize(("name", "only_portable"), NAMES)
def test_a_graph_replays_what_eager_computes(name: str, only_portable: bool) -> None:
    call = CALLS[name]
    torch.manual_seed(1)
    with portable(only_portable):
        given, replays = call.draw(), [call.draw(), call.draw()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call.outputs(given)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = call.outputs(given)
        for values in replays:
            fill(given, values)
            graph.replay()
            got = bits([*kept, *(given[one] for one in call.written)])
            fill(given, values)
            want = results(call, given)
            assert len(got) == len(want)
            for one, other in zip(got, want, strict=True):
                assert torch.equal(one, other)


def size(tensors: Iterable[torch.Tensor]) -> int:
    """In the caching allocator's blocks of 512 bytes, each tensor once."""
    storages = {one.data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return sum(-(-nbytes // 512) * 512 for nbytes in storages.values())


def still_held(least: int) -> int:
    """Bytes of live tensors, once they are ``least`` or a second has passed.

    Autograd's thread wakes who called it before it drops its own last references, on a loaded
    host some time before. What is kept for good is there after any wait.
    """
    gc.collect()
    until = time.monotonic() + 1
    while torch.cuda.memory_allocated() > least and time.monotonic() < until:
        time.sleep(0.001)
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize(("name", "only_portable"), NAMES)
def test_no_call_waits_for_the_gpu_or_keeps_memory(name: str, only_portable: bool) -> None:
    """Nor more at one call than at another once both passes are replayed, and next to its outputs
    no more than its inputs: copies and sums, whose size is known. A call that is recorded keeps
    what it makes to its end."""
    call = CALLS[name]
    torch.manual_seed(1)
    with portable(only_portable):
        given = call.draw()
        own = size(call.outputs(given))
        # What earlier tests' streams held is given back now, not between two calls.
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        held, taken, reserved = [torch.cuda.memory_allocated()], [], []
        with waiting_is_an_error():
            for _ in range(RECORDED + 2):
                torch.cuda.reset_peak_memory_stats()
                call.outputs(given)
                taken.append(torch.cuda.max_memory_allocated() - held[-1])
                held.append(still_held(held[-1]))
                reserved.append(torch.cuda.memory_reserved())
        torch.cuda.synchronize()
    assert len(set(held[-3:])) == 1, held
    assert taken[-1] == taken[-2] and reserved[-1] == reserved[-2], (taken, reserved)
    assert max(taken) - own <= max(size(given.values()), call.beside), (taken, own)


@pytest.mark.parametrize("name", CALLS)
def test_inductor_compiles_it_whole(name: str) -> None:
    call = CALLS[name]
    torch.manual_seed(1)
    torch._dynamo.reset()
    given, values = call.draw(), call.draw()
    compiled = torch.compile(call.run, fullgraph=True)
    with portable(False):
        fill(given, values)
        got = call.outputs(given, compiled)
        got = bits([*got, *(given[one] for one in call.written)])
        fill(given, values)
        want = results(call, given)
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)
