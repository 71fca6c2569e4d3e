"""Times the configurations of a job on a card, by the instrument that times everything here."""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.harness.lint_on_card import counting, tuned_kernels
from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card.interface import Gpu
from warpwatch.instruments.gpu.card.through_torch import TorchGpu

LIMITS = latency.Limits(target=0.01, min_samples=9, max_samples=31, warm_up_seconds=0.01)
_PROCESSES = 12


def timed(job: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Time a job and print the ratios.

    Args:
        job: As ``prepare`` wrote it.
        seconds: For measuring, in all.

    Returns:
        The job with the times of every configuration, as JSON has it.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        files = written(job["sources"], Path(folder))
        wanted = [
            (case["kernel"], files[case["kernel"]], case["shape"], one["config"])
            for case in job["cases"]
            for one in (*case["fell"], *case["others"])
        ]
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(_PROCESSES, len(wanted))) as pool:
            pool.starmap(_compiled, wanted, chunksize=1)
        print(f"compiled {len(wanted)} in {time.monotonic() - started:.0f} s")
        import torch

        gpu = TorchGpu()
        cases = []
        for number, case in enumerate(job["cases"]):
            left = seconds * (number + 1) / len(job["cases"]) - (time.monotonic() - started)
            prepare = tuned_kernels.PREPARED[case["kernel"]]
            launch = prepare(source=files[case["kernel"]], **case["shape"])
            times = case_times(gpu, launch, case, max(left, 0.5))
            print("\n".join(counting.of_case(case, times).lines))
            cases.append(counting.with_times(case, times))
            torch.cuda.empty_cache()
    print(f"{time.monotonic() - started:.0f} s in all")
    return {**job, "cases": cases}


def _compiled(
    kernel: str, source: str, shape: Mapping[str, int], config: Mapping[str, Any]
) -> None:
    """Fill Triton's cache; what does not compile or run is said where it is timed."""
    import torch

    try:
        tuned_kernels.PREPARED[kernel](source=source, **shape)(config)
        torch.cuda.synchronize()
    except Exception as error:  # whatever a compiler raises
        print(f"{kernel} {config}: {type(error).__name__}", file=sys.stderr)


def case_times(
    gpu: Gpu,
    launch: Callable[[Mapping[str, Any]], object],
    case: Mapping[str, Any],
    seconds: float,
) -> dict[str, tuple[float, float, float]]:
    """Time the configurations of one case, interleaved.

    Args:
        gpu: The card; it holds each launch back until all of it is queued, so that no time of the
            host is in a time of a kernel.
        launch: Launches the kernel of the case in a configuration.
        case: As ``prepare`` wrote it.
        seconds: For measuring, about.

    Returns:
        By the configuration as JSON its median time in microseconds and the interval of that;
        infinite where it does not run.
    """
    every = [*case["fell"], *case["others"]]
    calls, times = {}, {}
    for one in every:
        key = json.dumps(one["config"], sort_keys=True)
        try:
            launch(one["config"])
            calls[key] = functools.partial(launch, one["config"])
        except Exception as error:  # what does not fit is slower than anything
            print(f"  {one['name']} does not run: {type(error).__name__}")
            times[key] = (math.inf, math.inf, math.inf)
    limits = replace(LIMITS, seconds=seconds / len(every))
    for key, found in latency.interleave(gpu, calls, "cold", limits).items():
        times[key] = (found.us, *found.interval_us)
    return times


def written(sources: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write each kernel to a file, for Triton reads the source of a function from one."""
    found = {}
    for kernel, text in sources.items():
        path = folder / f"{kernel}.py"
        path.write_text(text, encoding="utf-8")
        found[kernel] = str(path)
    return found
