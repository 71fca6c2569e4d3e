"""Calls that are repeated give what the first one gave: under load, in graphs, compiled."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .cases import cases

MANY = 1000
EACH = 50


def _flat(found: Any) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else list(found)


def _same(first: list[torch.Tensor], found: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, _flat(found), strict=True))


def _repeated(call: Callable[[], Any], first: list[torch.Tensor]) -> bool:
    return all(_same(first, call()) for _ in range(6))


def _loaded(call: Callable[[], Any], first: list[torch.Tensor]) -> bool:
    """While a second stream allocates, multiplies and frees."""
    other, big = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    good = True
    for i in range(MANY):
        if i % EACH == 0:
            with torch.cuda.stream(other):
                for _ in range(4):
                    (big @ big).sum()
        found = call()
        good = good and (i % EACH != 0 or _same(first, found))
    torch.cuda.synchronize()
    return good


def _captured(call: Callable[[], Any], first: list[torch.Tensor]) -> bool:
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        found = _flat(call())
    for one in found:
        one.zero_()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return _same(first, found)


def _in_threads(call: Callable[[], Any], first: list[torch.Tensor]) -> bool:
    good: list[bool] = []

    # Leaves are of the first stream, which the engine is right to mention: nothing writes them.
    warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")

    def run() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            good.append(all(_same(first, call()) for _ in range(20)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return len(good) == 4 and all(good)


def _compiled(call: Callable[[], Any], first: list[torch.Tensor]) -> bool:
    compiled = torch.compile(call)
    return _same(first, compiled()) and _same(first, compiled())


def failures(with_compiler: bool) -> list[str]:
    """What did not hold, a line each; on a GPU."""
    kinds = {
        "repeated": _repeated,
        "under the load of a second stream": _loaded,
        "in a graph": _captured,
        "in four threads": _in_threads,
        "repeated afterwards": _repeated,
    }
    found = []
    for case in cases("cuda"):
        first = [one.clone() for one in _flat(case.ours())]
        if not all(bool(torch.isfinite(one.float()).all()) for one in first):
            found.append(f"{case.name}: values are not finite")
        if case.theirs is not None and case.name in ("attention forward", "matmul"):
            peer = _flat(case.theirs())[0]
            peer = peer.transpose(1, 2) if peer.dim() == 4 else peer
            if not torch.allclose(first[0].float(), peer.float(), atol=0.5, rtol=2e-2):
                found.append(f"{case.name}: not what {case.peer} gives")
        compiled = {"compiled": _compiled} if with_compiler and case.name != "fp8 matmul" else {}
        for name, holds in {**kinds, **compiled}.items():
            if name == "in a graph" and "backward" in case.name:
                continue  # autograd's own threads and streams: tests/gpu captures it
            if not holds(case.ours, first):
                found.append(f"{case.name}: {name}, other values than at first")
    return found
