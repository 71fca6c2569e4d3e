"""One workload's call between the marks that profilers watch for; run by ``profile``."""

from __future__ import annotations

import sys
from typing import Any

from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.peers import registry as peers


def main(name: str, tool: str, output: str) -> int:
    import torch

    workload = peers.get(name)
    inputs = workload.inputs("cuda")
    workload.call(inputs)  # compiles outside the profile
    torch.cuda.synchronize()

    def call() -> None:
        workload.call(inputs)
        torch.cuda.synchronize()

    if tool == "torch":
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            call()
        profiler.export_chrome_trace(output)
    elif tool == "proton":
        import triton.profiler as proton

        proton.start(output.removesuffix(".hatchet"), hook="triton")
        call()
        proton.finalize()
    else:
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        runtime.cudaProfilerStart()
        call()
        runtime.cudaProfilerStop()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:4]))
    except Exception as raised:  # the code under test may raise anything
        sys.exit(f"{sys.argv[1]}: {measuring.first_line(raised)}")
