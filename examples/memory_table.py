"""Memory attention takes beyond its inputs, beside the formula written out: a table, without a GPU.

    python examples/memory_table.py [--target sm_90] [--dtype fp32]

Ours is recorded: the host code runs as for the target, sm_80 where none is named, launches are not
done but every tensor it allocates is seen (workspaces too, down to the last byte). On sm_90
gradients sum dq in a workspace; all other targets need what sm_80 does. The formula is PyTorch's,
``softmax(q @ k.T) @ v`` and its gradients by autograd, on tensors without memory. Peaks are of
bytes alive at once; what a caching allocator rounds up is not in them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from warpwatch.config import targets
from warpwatch.instruments.compiled.record.call import record

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
LENGTHS = (1024, 2048, 4096, 8192, 16384)
HEAD = "S | formula | flash_attention | saved | formula and gradients | flash_attention | saved"


class Alive(TorchDispatchMode):
    """Bytes of the storages that operations made and that something still holds."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._given = {one.untyped_storage()._cdata for one in given}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                if storage._cdata not in self._given:
                    self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {at: one for at, one in self._alive.items() if not one[0].expired()}
        self.peak = max(self.peak, sum(nbytes for _, nbytes in self._alive.values()))
        return made


def peak(call: Callable[..., Any], *given: torch.Tensor) -> int:
    alive = Alive(given)
    with alive:
        result = call(*given)
    del result
    return alive.peak


def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * (1.0 / math.sqrt(q.shape[-1]))
    return torch.softmax(scores, -1) @ v


def formula_and_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor
) -> Any:
    out = formula(q, k, v)
    return out, torch.autograd.grad(out, (q, k, v), dout)


def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    import kernels

    return kernels.flash_attention(q, k, v, return_lse=True)


def ours_and_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor
) -> Any:
    import kernels

    out, lse = kernels.flash_attention(q, k, v, return_lse=True)
    return out, kernels.flash_attention_backward(dout, q, k, v, out, lse)


def measure(
    length: int, heads: int, head_dim: int, target: str = "sm_80", dtype: str = "fp16"
) -> tuple[int, int, int, int]:
    """Peaks in bytes: the formula and ours, then both with their gradients."""

    def tensors(count: int, device: str, *shape: int) -> list[torch.Tensor]:
        return [torch.empty(1, *shape, dtype=DTYPES[dtype], device=device) for _ in range(count)]

    plain = tensors(4, "meta", heads, length, head_dim)
    rows = tensors(4, "cpu", length, heads, head_dim)
    found: list[int] = []

    def recorded() -> None:
        found.extend((peak(ours, *rows[:3]), peak(ours_and_gradients, *rows)))

    recording = record(recorded, targets.get(target))
    if recording.failures:
        raise RuntimeError(f"{recording.failures[0].kernel}: {recording.failures[0].error}")
    forward = peak(formula, *plain[:3])
    for one in plain[:3]:
        one.requires_grad_()
    return forward, found[0], peak(formula_and_gradients, *plain), found[1]


def size(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.2f} MB" if nbytes < 2**30 else f"{nbytes / 2**30:,.2f} GB"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lengths", nargs="*", type=int, metavar="S", help="default 1024 to 16384")
    parser.add_argument("--heads", type=int, default=4, help="default 4")
    parser.add_argument("--head-dim", type=int, default=64, help="default 64")
    parser.add_argument("--target", default="sm_80", help="default sm_80")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16", help="default fp16")
    args = parser.parse_args(argv)
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
    for length in args.lengths or LENGTHS:
        plain, own, plain_both, own_both = measure(
            length, args.heads, args.head_dim, args.target, args.dtype
        )
        cells = [str(length)]
        for theirs, mine in ((plain, own), (plain_both, own_both)):
            cells += [size(theirs), size(mine), f"{100 * (1 - mine / theirs):.1f} %"]
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
