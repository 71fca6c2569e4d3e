"""Host code as people write it, right and wrong, for the command to run."""

import sys

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


@triton.jit
def spins(x, ENDS: tl.constexpr):
    i = 0
    while i >= 0:
        i = (i + 1) % 7
        if ENDS:
            i = -1
    tl.store(x, i)


@triton.jit
def counts(x, n):
    total = 0
    for i in range(n):
        total += i
    tl.store(x, total)


def _made() -> torch.Tensor:
    return torch.empty(8, device="cuda")


def an_argument_too_few() -> None:
    fill[(1,)](_made(), BLOCK=8)


def an_argument_too_many() -> None:
    fill[(1,)](_made(), 8, 8, 9)


def a_wrong_keyword() -> None:
    fill[(1,)](_made(), 8, BLOCK=8, BLOCKS=8)


def a_grid_of_none() -> None:
    fill[(None,)](_made(), 8, BLOCK=8)


def a_complex_tensor() -> None:
    fill[(1,)](_made().to(torch.complex64), 8, BLOCK=8)


def skips() -> None:
    pytest.skip("no such card")


def exits() -> None:
    sys.exit(3)


def endless() -> None:
    spins[(1,)](_made(), ENDS=False)


def ends() -> None:
    spins[(1,)](_made(), ENDS=True)


def long(n: int) -> None:
    counts[(1,)](torch.empty(1, device="cuda", dtype=torch.int32), n)


def wants(one: int, other: int) -> None:
    """It takes two arguments."""


def _launched() -> None:
    fill[(1,)](_made(), 8, BLOCK=8)


def events() -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    _launched()
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) == 0.0 and end.query()


def streams() -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _launched()
    _made().record_stream(stream)
    stream.wait_event(stream.record_event())


def generators() -> None:
    made = []
    for _ in range(2):
        chance = torch.Generator(device="cuda")
        assert isinstance(chance, torch.Generator)
        chance.manual_seed(7)
        made.append(torch.randn(4, device="cuda", generator=chance))
        torch.cuda.manual_seed(7)
        made.append(torch.randn(4, device="cuda"))
    assert all((one == made[0]).all() for one in made)
    _launched()


def statistics() -> None:
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties(0).total_memory
    _launched()


def default_device() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.empty(3).is_cuda and torch.empty(3).get_device() == 0
        fill[(1,)](torch.empty(8), 8, BLOCK=8)
    finally:
        torch.set_default_device(None)


def layers() -> None:
    layer = torch.nn.Linear(8, 8, device="cuda")
    found = layer(torch.nn.LayerNorm(8).cuda()(torch.ones(2, 8, device="cuda").pin_memory()))
    fill[(1,)](found, 8, BLOCK=8)
    assert (found[0] == 1.0).all()


def graphs() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _launched()


@triton.jit
def seven(x):
    at = tl.arange(0, 7)
    tl.store(x + at, 1.0)


def a_range_of_seven() -> None:
    seven[(1,)](_made())


def three_warps() -> None:
    fill[(1,)](_made(), 8, BLOCK=8, num_warps=3)
