"""Times the configurations of a job on a card, by the instrument that times everything here."""

from __future__ import annotations

import functools
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.harness.lint_on_card import tuned_kernels
from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card.interface import Gpu
from warpwatch.instruments.gpu.card.through_torch import TorchGpu

SLOWER = 1.1
LIMITS = latency.Limits(target=0.01, min_samples=9, max_samples=31, warm_up_seconds=0.01)
_PROCESSES = 12


def timed(job: Mapping[str, Any], seconds: float) -> int:
    """Time a job and print the ratios.

    Args:
        job: As ``prepare`` wrote it.
        seconds: For measuring, in all.

    Returns:
        0 where nine of ten that fell are at least a tenth slower, else 1.
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
        found: list[float] = []
        for number, case in enumerate(job["cases"]):
            left = seconds * (number + 1) / len(job["cases"]) - (time.monotonic() - started)
            prepare = tuned_kernels.PREPARED[case["kernel"]]
            launch = prepare(source=files[case["kernel"]], **case["shape"])
            found += ratios(gpu, launch, case, max(left, 0.5))
            torch.cuda.empty_cache()
    slower = sum(one >= SLOWER for one in found)
    print(
        f"{slower} of {len(found)} configurations that fell are at least "
        f"{100 * (SLOWER - 1):.0f} % slower than the best of the others "
        f"({100 * slower / len(found):.0f} %), {time.monotonic() - started:.0f} s in all"
    )
    return int(slower < 0.9 * len(found))


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


def ratios(
    gpu: Gpu,
    launch: Callable[[Mapping[str, Any]], object],
    case: Mapping[str, Any],
    seconds: float,
) -> list[float]:
    """Time one case, its configurations interleaved, and print each.

    Args:
        gpu: The card; it holds each launch back until all of it is queued, so that no time of the
            host is in a time of a kernel.
        launch: Launches the kernel of the case in a configuration.
        case: As ``prepare`` wrote it.
        seconds: For measuring, about.

    Returns:
        The time of each configuration that fell, as a ratio to the fastest of the others.
    """
    every = [*case["fell"], *case["others"]]
    calls = {}
    for one in every:
        try:
            launch(one["config"])
            calls[one["name"]] = functools.partial(launch, one["config"])
        except Exception as error:  # what does not fit is slower than anything
            print(f"  {one['name']} does not run: {type(error).__name__}")
    limits = replace(LIMITS, seconds=seconds / len(every))
    found = latency.interleave(gpu, calls, "cold", limits)
    times = [found[one["name"]].us if one["name"] in found else math.inf for one in every]
    best = min(times[len(case["fell"]) :])
    shape = " ".join(f"{name}={value}" for name, value in case["shape"].items())
    print(f"{case['kernel']} {case['table']} ({case['tuned_for']}) {shape}: best {best:.1f} us")
    for one, us in zip(every, times, strict=True):
        low, high = found[one["name"]].interval_us if one["name"] in found else (us, us)
        print(
            f"  {'fell ' if one in case['fell'] else 'other'} {one['name']:>6} {us:9.1f} us "
            f"{us / best:6.2f} ({low / best:.2f} to {high / best:.2f})  "
            f"predicted {one['predicted_us']:9.1f} us  {'; '.join(one.get('reasons', ()))[:110]}"
        )
    return [us / best for us in times[: len(case["fell"])]]


def written(sources: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write each kernel to a file, for Triton reads the source of a function from one."""
    found = {}
    for kernel, text in sources.items():
        path = folder / f"{kernel}.py"
        path.write_text(text, encoding="utf-8")
        found[kernel] = str(path)
    return found
