"""What a call costs the host, ours next to torch's and FlashAttention-3's.

    python -m tools.kernels.host_time [--runs N] [--parts] [--compiler] [--without-gpu]

On a GPU repeated calls are checked first: under a second stream's load, in graphs and threads, with
``--compiler`` compiled. Then each call is timed while the device is busy with something else.
``--without-gpu`` times ours down to a driver that does nothing. Exits 1 where a check failed.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from typing import Any

import torch
import triton

from . import checks, fresh
from .cases import Case, bare, cases
from .timing import batches, middle, synchronised, where


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.host_time")
    parser.add_argument("--runs", type=int, default=15, help="batches of 50 calls (15)")
    parser.add_argument("--parts", action="store_true", help="print where the time goes")
    parser.add_argument("--compiler", action="store_true", help="check torch.compile too")
    parser.add_argument("--fresh", action="store_true", help="import and first calls too")
    parser.add_argument("--without-gpu", action="store_true", help="a driver that does nothing")
    asked = parser.parse_args()
    if not asked.without_gpu and not torch.cuda.is_available():
        parser.error("no GPU that torch can use; --without-gpu times ours down to the driver")
    print(f"torch {torch.__version__}, triton {triton.__version__}, ", end="")
    print("no GPU" if asked.without_gpu else torch.cuda.get_device_name(), flush=True)
    failed = [] if asked.without_gpu else checks.failures(asked.compiler)
    for line in failed:
        print("FAILED", line)
    if not asked.without_gpu:
        print(f"checks: {len(failed)} failed", flush=True)
    with _driver() if asked.without_gpu else nullcontext():
        device = "cpu" if asked.without_gpu else "cuda"
        for case in (*cases(device), bare(device)):
            print(_row(case, asked.runs, not asked.without_gpu), flush=True)
            if asked.parts:
                _print_parts(case, not asked.without_gpu)
    if asked.fresh:
        found = [one * 1000 for one in fresh.import_seconds()]
        print(f"import kernels: {min(found):.0f} ms at least of {len(found)}, to reach 100")
        if not asked.without_gpu:
            for name, taken in fresh.first_calls().items():
                print(f"first call, {name}: {', '.join(f'{one:.1f}' for one in taken)} ms")
    return 1 if failed else 0


def _driver() -> Any:
    from kernels.runtime.launch import latest
    from tools.kernels.without_gpu import driver

    # A GPU's memory begins with a line; a CPU's with 64 bytes, which would make several forms of a
    # call whose results happen to lie elsewhere.
    latest.LINE = 64
    return driver.active()


def _row(case: Case, runs: int, peers: bool) -> str:
    ours, noise = middle(batches(case.ours, runs))
    text = f"{case.name:32} ours {ours:7.1f} us +-{noise:4.0%}"
    if not peers:
        return text
    waited, _ = middle(synchronised(case.ours, 5))
    text += f", waited for {waited:7.1f}"
    if case.theirs is None:
        return f"{text}; {case.peer} is not there"
    theirs, their_noise = middle(batches(case.theirs, runs))
    their_wait, _ = middle(synchronised(case.theirs, 5))
    text += f"; {case.peer} {theirs:7.1f} us +-{their_noise:4.0%}, waited for {their_wait:7.1f}"
    wanted = "" if case.to_reach is None else f", to reach {case.to_reach}"
    return f"{text}; ratio {ours / theirs:5.2f}{wanted}; {runs} runs"


def _print_parts(case: Case, peers: bool) -> None:
    calls = [("ours", case.ours)]
    if peers and case.theirs is not None:
        calls.append((case.peer, case.theirs))
    for name, call in calls:
        total, _ = middle(batches(call, 5))
        parts = where(call, total)
        row = ", ".join(f"{part} {us:.1f}" for part, us in parts.items() if us >= 0.05)
        print(f"    {name}: {row}")


if __name__ == "__main__":
    sys.exit(main())
