"""Times the configurations of a job on a card. Needs only torch and Triton."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.harness.lint_on_card import tuned_kernels

SLOWER = 1.1
ROUNDS = 9
_VISIT_MS = 2.0
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
        ratios: list[float] = []
        for number, case in enumerate(job["cases"]):
            left = seconds * (number + 1) / len(job["cases"]) - (time.monotonic() - started)
            ratios += _case(case, files[case["kernel"]], max(left, 0.5))
    slower = sum(one >= SLOWER for one in ratios)
    print(
        f"{slower} of {len(ratios)} configurations that fell are at least "
        f"{100 * (SLOWER - 1):.0f} % slower than the best of the others "
        f"({100 * slower / len(ratios):.0f} %), {time.monotonic() - started:.0f} s in all"
    )
    return int(slower < 0.9 * len(ratios))


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


def _case(case: Mapping[str, Any], source: str, seconds: float) -> list[float]:
    """Time one case; the ratio of each configuration that fell."""
    import torch

    launch = tuned_kernels.PREPARED[case["kernel"]](source=source, **case["shape"])
    every = [*case["fell"], *case["others"]]
    visits: list[Callable[[], float] | None] = []
    for one in every:
        try:
            visits.append(_visit(launch, one["config"]))
        except Exception as error:  # what does not fit is slower than anything
            print(f"  {one['name']} does not run: {type(error).__name__}")
            visits.append(None)
    times: list[list[float]] = [[] for _ in every]
    order = [place for place, visit in enumerate(visits) if visit is not None]
    ends = time.monotonic() + seconds
    for turn in range(ROUNDS):
        if turn >= 3 and time.monotonic() > ends:
            break
        random.Random(turn).shuffle(order)
        for place in order:
            visit = visits[place]
            assert visit is not None
            times[place].append(visit())
    medians = [statistics.median(one) if one else float("inf") for one in times]
    best = min(medians[len(case["fell"]) :])
    shape = " ".join(f"{name}={value}" for name, value in case["shape"].items())
    print(f"{case['kernel']} {case['table']} ({case['tuned_for']}) {shape}: best {best:.1f} us")
    for one, median in zip(every, medians, strict=True):
        print(
            f"  {'fell ' if one in case['fell'] else 'other'} {one['name']:>6} {median:9.1f} us "
            f"{median / best:6.2f}  predicted {one['predicted_us']:9.1f} us  "
            f"{'; '.join(one.get('reasons', ()))[:110]}"
        )
    torch.cuda.empty_cache()
    return [median / best for median in medians[: len(case["fell"])]]


def _visit(
    launch: Callable[[Mapping[str, Any]], None], config: Mapping[str, Any]
) -> Callable[[], float]:
    """Microseconds of one launch, on the average of as many as take some milliseconds."""
    import torch

    def measured(count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            launch(config)
        end.record()
        end.synchronize()
        return float(1e3 * begin.elapsed_time(end) / count)

    launch(config)
    torch.cuda.synchronize()
    once = measured(3)
    # Launches that follow each other hide what host code takes only where they are many.
    return lambda: measured(max(3, min(200, round(1e3 * _VISIT_MS / once))))


def written(sources: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write each kernel to a file, for Triton reads the source of a function from one."""
    found = {}
    for kernel, text in sources.items():
        path = folder / f"{kernel}.py"
        path.write_text(text, encoding="utf-8")
        found[kernel] = str(path)
    return found
