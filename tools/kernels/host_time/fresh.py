"""Figures of a process that has just started: the import, and the first call of a new form.

    python -m tools.kernels.host_time.fresh

prints the milliseconds of first calls in this process, on a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

_IMPORT = """
import time, torch, triton, triton.language
begin = time.perf_counter()
import kernels
print(time.perf_counter() - begin)
"""


def import_seconds(runs: int = 5) -> list[float]:
    """Seconds that ``import kernels`` takes after torch and triton."""
    command = [sys.executable, "-c", _IMPORT]
    texts = []
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        texts.append(done.stdout)
    return [float(text) for text in texts]


def first_calls() -> dict[str, list[float]]:
    """Milliseconds of the first calls of new forms, in a process that has launched another; whose
    code another process has compiled."""
    command = [sys.executable, "-m", "tools.kernels.host_time.fresh"]
    for _ in range(2):  # the first one compiles
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: [float(one) for one in values] for name, *values in rows}


def _main() -> None:
    argparse.ArgumentParser(
        prog="python -m tools.kernels.host_time.fresh",
        description="Print the milliseconds of first calls in this process.",
    ).parse_args()
    import torch

    import kernels

    def rows(n: int) -> torch.Tensor:
        return torch.randn(1, n, 8, 128, device="cuda", dtype=torch.bfloat16)

    def square(n: int) -> torch.Tensor:
        return torch.randn(n, n, device="cuda", dtype=torch.bfloat16)

    q, a = rows(512), square(1024)
    kernels.flash_attention(q, q, q)
    kernels.matmul(a, a)
    torch.cuda.synchronize()
    for name, call, given in (
        ("attention", lambda x: kernels.flash_attention(x, x, x), [rows(n) for n in (528, 544)]),
        ("matmul", lambda x: kernels.matmul(x, x), [square(n) for n in (1008, 992)]),
    ):
        taken = []
        for one in given:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call(one)
            taken.append((time.perf_counter() - begin) * 1000)
        print(name, *taken)


if __name__ == "__main__":
    _main()
