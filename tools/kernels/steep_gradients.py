"""RMS errors of 16-bit gradients by the plain formula's, where rows have one heavy weight.

    python -m tools.kernels.steep_gradients

On a GPU, or in Triton's interpreter with ``TRITON_INTERPRET=1``, in half a minute. A row of numbers
by how much q and k, each query its own key, are multiplied; ``key 0``, which has 0.99 of every row;
and of queries and keys that have nothing in common. *Others* is what the weights but the largest
sum up to, in the mean of rows.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels import on_card
from tests.kernels.interpreted import measure
from tests.kernels.test_exact_gradients import DTYPES, Case

ROWS = {f"q = k, {times:g}": Case(steep=times) for times in (1.0, 1.4, 1.7, 2.0)}
ROWS["key 0"] = Case(steep=0.0)


def inputs(name: str, dtype: str) -> list[torch.Tensor]:
    """q, k, v and dout."""
    case = ROWS.get(name, Case())
    case = Case(S=256, KV=256, H=2, G=2, dtype=dtype, steep=case.steep)
    q, k, v = case.tensors()
    generator = torch.Generator().manual_seed(5)
    if name not in ROWS:
        q, k = (torch.randn(one.shape, generator=generator).to(one.dtype) for one in (q, k))
    return [q, k, v, torch.randn(q.shape, generator=generator).to(q.dtype)]


def ratios(name: str, dtype: str) -> tuple[float, dict[bool, list[float]]]:
    """What other weights sum up to, and by ``exact_gradients`` ratios of dq, dk and dv."""
    import kernels

    *given, dout = inputs(name, dtype)

    def gradients(kind: str, exact: bool | None = None) -> list[torch.Tensor]:
        leaves = [one.to(getattr(torch, kind)).requires_grad_() for one in given]
        out: Any
        if exact is None:
            out = plain_attention(*leaves, dtype=kind)[0]
        else:
            out = kernels.flash_attention(*leaves, exact_gradients=exact)
        return list(torch.autograd.grad(out, leaves, dout.to(out.dtype)))

    q, k = (one.double().transpose(1, 2) for one in given[:2])
    weights = torch.softmax(q @ k.mT * q.shape[3] ** -0.5, 3)
    others = float((1.0 - weights.amax(3)).mean())
    truth, plain = gradients("float64"), gradients(dtype)
    found = {}
    for exact in (False, True):
        errors = map(measure, gradients(dtype, exact), plain, truth)
        found[exact] = [one.rms / one.plain_rms for one in errors]
    return others, found


def main() -> int:
    argparse.ArgumentParser(
        prog="python -m tools.kernels.steep_gradients",
        description="RMS errors of 16-bit gradients where rows have one heavy weight",
    ).parse_args()
    device = on_card.prepare()
    print("                  others      dq     dk     dv   exact: dq     dk     dv")
    with on_card.Made(device):
        for dtype in DTYPES:
            for name in (*ROWS, "drawn"):
                others, found = ratios(name, dtype)
                mine = [" ".join(f"{one:6.2f}" for one in found[exact]) for exact in (False, True)]
                print(f"{dtype:8} {name:10} {others:.0e} {mine[0]}   {mine[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
