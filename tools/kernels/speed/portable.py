"""Speed of the portable kernels on one GPU in one run, beside torch's FlashAttention-2 and a read.

    python -m tools.kernels.speed.portable --seconds 100

Forward and backward over group fa3 against torch's FlashAttention-2 backend; decoding against a
kernel that only reads the same bytes; window, causal mask and packed sequences by the time of a
block of scores that is not hidden. Calls to compare take turns, each after the L2 is overwritten;
the median of their times counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.workloads import all_workloads, select
from benchmarks.workloads.attention import AttentionWorkload
from benchmarks.workloads.attention_backward import BackwardWorkload
from tests.kernels import on_card
from warpwatch.instruments.peers import registry as peers

DEVICE = "cuda"
BLOCK_ROWS, BLOCK_KEYS = 128, 64  # how hidden blocks are counted


@triton.jit
def read_all(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up int32 words and write a sum a program: what reading alone takes."""
    b_sum = tl.zeros([BLOCK], dtype=tl.int32)
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        o = first + tl.arange(0, BLOCK)
        b_sum += tl.load(x + o, mask=o < n, other=0)
    tl.store(out + tl.program_id(0), tl.sum(b_sum))


class Clock:
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.flushed = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)

    def medians(self, *calls: Callable[[], Any]) -> list[float]:
        """Microseconds of each, which take turns."""
        for call in calls:
            call()
        events = []
        for turn in range(self.rounds):
            for at in range(len(calls)):
                which = (at + turn) % len(calls)
                # While the GPU waits, the call is enqueued: Python's time is not measured.
                torch.cuda._sleep(1_000_000)
                self.flushed.fill_(turn)
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                calls[which]()
                last.record()
                events.append((which, first, last))
        torch.cuda.synchronize()
        times: list[list[float]] = [[] for _ in calls]
        for which, first, last in events:
            times[which].append(1000.0 * first.elapsed_time(last))
        return [statistics.median(each) for each in times]


def against_flash(clock: Clock, kernel: str, until: float) -> float | None:
    """The geometric mean of FlashAttention-2's time over ours."""
    ratios = []
    for case in all_workloads():
        if case.group != "fa3" or case.kernel != kernel or case.dtype != "bf16":
            continue
        if time.monotonic() > until:
            print(f"{case.name}: no time left")
            continue
        try:
            forward = kernel == "flash_attention"
            inputs = case.inputs(DEVICE) if forward else backward_inputs(case)
            other = peers.get(case.name + peers.SEPARATOR + "torch-flash")
            ours, theirs = clock.medians(partial(case.call, inputs), partial(other.call, inputs))
        except Exception as error:  # the others still count
            print(f"{case.name}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        ratios.append(theirs / ours)
        print(
            f"{case.name:<52} ours {ours:9.1f} us {case.flops / ours / 1e6:6.1f} TFLOP/s  "
            f"flash {theirs:9.1f} us  ratio {theirs / ours:.3f}",
            flush=True,
        )
    return statistics.geometric_mean(ratios) if ratios else None


def backward_inputs(case: Any) -> dict[str, Any]:
    """As the workload's own, which the formula makes, in seconds where sequences are long."""
    import kernels

    inputs = AttentionWorkload.inputs(case, DEVICE)
    found: Any = kernels.flash_attention(*inputs.values(), causal=case.causal, return_lse=True)
    return {**inputs, "dout": torch.randn_like(found[0]), "out": found[0], "lse": found[1]}


def decoding(clock: Clock) -> None:
    for case in select(kernel="flash_attention_kvcache"):
        try:
            inputs = case.inputs(DEVICE)
            words = torch.zeros(case.bytes_moved // 4, dtype=torch.int32, device=DEVICE)
            out = torch.empty(4096, dtype=torch.int32, device=DEVICE)
            n = words.numel()
            readers = [
                partial(read_all[(grid,)], words, out, n, BLOCK=4096, num_warps=8)
                for grid in (528, 1056, 2112)
            ]
            ours, *reads = clock.medians(partial(case.call, inputs), *readers)
        except Exception as error:  # the others still count
            print(f"{case.name}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        read = min(reads)
        print(
            f"{case.name:<66} {case.bytes_moved / 2**20:6.1f} MiB ours {ours:7.1f} us read "
            f"{read:7.1f} us ({case.bytes_moved / read / 1e6:.2f} TB/s)  share {read / ours:.3f}",
            flush=True,
        )


def blocks(rows: int, keys: int, causal: bool, window: int) -> int:
    """Of scores that are not hidden altogether, of one head."""
    found = 0
    for first in range(0, rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, rows) - 1
        end = min(keys, last + keys - rows + 1) if causal else keys
        start = max(0, first + keys - rows - window) if window else 0
        found += -(-end // BLOCK_KEYS) - start // BLOCK_KEYS
    return found


def hidden(clock: Clock, backward: bool) -> None:
    """Microseconds a thousand blocks, by those of full attention."""
    import kernels

    S, H, G, D = 8192, 32, 8, 128
    kind = BackwardWorkload if backward else AttentionWorkload
    shape: dict[str, Any] = {"group": "", "dtype": "bf16", "B": 1, "S": S, "H": H, "G": G, "D": D}
    cases: list[Any] = [
        kind(**shape),
        kind(**shape, causal=True),
        *(kind(**shape, causal=True, window=window) for window in (4096, 1024, 256)),
    ]
    calls, counts, names = [], [], []
    for case in cases:
        inputs = dict(AttentionWorkload.inputs(case, DEVICE))
        options = {"causal": case.causal, "window_size": (case.window or -1, -1)}
        found: Any = kernels.flash_attention(*inputs.values(), **options, return_lse=True)
        if backward:
            inputs |= {"dout": torch.randn_like(found[0]), "out": found[0], "lse": found[1]}
        calls.append(partial(case.call, inputs))
        counts.append(blocks(S, S, case.causal, case.window))
        names.append(
            f"S8192{' causal' * case.causal}" + f" window {case.window}" * bool(case.window)
        )
    packs: list[Any] = [one for one in all_workloads() if one.kernel == "flash_attention_varlen"]
    for case in packs:
        if case.backward == backward:
            inputs = case.inputs(DEVICE) if not backward else varlen_inputs(case)
            calls.append(partial(case.call, inputs))
            counts.append(sum(blocks(n, n, case.causal, 0) for n in case.lengths))
            names.append(f"varlen {case.pack} causal")
    times = clock.medians(*calls)
    for name, count, us in zip(names, counts, times, strict=True):
        each = us / count / (times[0] / counts[0])
        print(f"{'backward' if backward else 'forward':<9}{name:<28}{us:9.1f} us {count:7} blocks  "
              f"a block by that of full attention {each:.3f}", flush=True)  # fmt: skip


def varlen_inputs(case: Any) -> dict[str, Any]:
    import kernels

    ends = [0, *(sum(case.lengths[: i + 1]) for i in range(len(case.lengths)))]
    assert all(a < b for a, b in pairwise(ends))
    cu = torch.tensor(ends, dtype=torch.int32, device=DEVICE)
    tokens = ends[-1]
    q, k, v, dout = (
        torch.randn(tokens, heads, case.D, device=DEVICE).bfloat16()
        for heads in (case.H, case.G, case.G, case.H)
    )
    longest = max(case.lengths)
    found: Any = kernels.flash_attention_varlen(
        q, k, v, cu, cu, longest, longest, causal=case.causal, return_lse=True
    )
    return {"q": q, "k": k, "v": v, "cu": cu, "dout": dout, "out": found[0], "lse": found[1]}


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.speed.portable")
    parser.add_argument("--seconds", type=float, default=100.0, help="no shape is begun after")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--any", action="store_true", help="also kernels of one architecture")
    parser.add_argument("--hidden", action="store_true", help="blocks that masks hide alone")
    args = parser.parse_args(given)
    until = time.monotonic() + args.seconds
    clock = Clock(args.rounds)
    means = {}
    with on_card.portable(not args.any):
        for name, part in (
            ("hidden blocks", lambda: hidden(clock, False)),
            ("hidden blocks, backward", lambda: hidden(clock, True)),
            ("decoding", lambda: decoding(clock)),
        ):
            if args.hidden and name == "decoding":
                continue
            print(f"== {name}")
            try:
                part()
            except Exception as error:  # the others still count
                print(f"FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
        if args.hidden:
            return 0
        half = time.monotonic() + (until - time.monotonic()) * 0.4
        for kernel, stop in (("flash_attention", half), ("flash_attention_backward", until)):
            print(f"== {kernel}")
            means[kernel] = against_flash(clock, kernel, stop)
    for kernel, mean in means.items():
        text = "nothing measured" if mean is None else f"{mean:.3f}"
        print(f"{kernel}: FlashAttention-2's time over ours, geometric mean: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
