"""How much slower than the best of its table is a tuned configuration that ``lint`` names?

    python -m tools.harness.lint_on_card prepare JOB --triton 3.6.0 \\
        --case fused_moe KERNEL.py TABLE.json sm_80 'M=64,2048 K=4096 top_k=2'
    python -m tools.harness.lint_on_card time JOB

``prepare`` needs no GPU. It compiles each table for the target that it was tuned for and for
``sm_90``, as ``warpwatch lint`` does, at each M. The job file then holds the kernels and the
configurations: those that fell, and those that are predicted to be the fastest of the others.
``time`` needs a Hopper card, torch and Triton. It compiles in several processes, visits the
configurations of a case in turn, and prints the ratio of each to the fastest that did not fall.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import random
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.harness import tuned_kernels

TARGET = "sm_90"
OTHERS = 4  # configurations of a case that did not fall, the fastest by prediction
SLOWER = 1.1
ROUNDS = 9
_VISIT_MS = 2.0
_PROCESSES = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare", help="lint tables and write the job file")
    one.add_argument("job", type=Path)
    one.add_argument("--triton", default="3.6.0", metavar="VERSION")
    one.add_argument(
        "--case",
        action="append",
        nargs=5,
        required=True,
        metavar=("KERNEL", "SOURCE", "TABLE", "TARGET", "SHAPE"),
        help=f"one of {' '.join(tuned_kernels.KERNELS)}; the library's file with it; its table; "
        "the target that this was tuned for; 'M=64,2048 K=4096 top_k=2'",
    )
    other = commands.add_parser("time", help="time what a job file holds, on a card")
    other.add_argument("job", type=Path)
    other.add_argument("--seconds", type=float, default=80.0, help="for measuring, in all")
    args = parser.parse_args()
    if args.command == "time":
        return timed(json.loads(args.job.read_text(encoding="utf-8")), args.seconds)
    document = prepared(args.case, args.triton)
    args.job.write_text(json.dumps(document, indent=1), encoding="utf-8")
    fell = sum(len(case["fell"]) for case in document["cases"])
    print(f"{args.job}: {fell} configurations fell in {len(document['cases'])} cases")
    return 0


def prepared(cases: Sequence[Sequence[str]], triton: str) -> dict[str, Any]:
    """Lint tables.

    Args:
        cases: Of each the kernel, the file with it, the table, the target that it was tuned for and
            the shape.
        triton: The version to compile with.

    Returns:
        The job, as JSON has it.
    """
    sources = {kernel: extracted(Path(source), kernel) for kernel, source, *_ in cases}
    found = []
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        files = written(sources, Path(folder))
        for kernel, _, table, tuned_for, shape in cases:
            for numbers in shapes(Path(table).name, kernel, shape):
                one = linted(kernel, files[kernel], Path(table), tuned_for, numbers, triton)
                print(
                    f"{kernel} {one['table']} {numbers}: {len(one['fell'])} fell, "
                    f"{one['compared']} compared",
                    file=sys.stderr,
                )
                found.append(one)
    cases_with = [one for one in found if one["fell"] and one["others"]]
    return {"triton": triton, "target": TARGET, "sources": sources, "cases": cases_with}


def extracted(path: Path, kernel: str) -> str:
    """A kernel of a library and what it calls of the same file, as a module of its own."""
    text = path.read_text(encoding="utf-8")
    functions = {
        node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    }
    wanted, seen = [tuned_kernels.KERNELS[kernel]], {}
    while wanted:
        name = wanted.pop()
        if name not in functions:
            raise ValueError(f"{path}: expected a function {name}, which it has not")
        seen[name] = functions[name]
        called = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
        wanted += [one for one in called & functions.keys() if one not in seen]
    lines = text.splitlines()
    parts = []
    for node in sorted(seen.values(), key=lambda one: one.lineno):
        body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        parts.append(f"@triton.jit\n{body}")
    return "import triton\nimport triton.language as tl\n\n\n" + "\n\n\n".join(parts) + "\n"


def written(sources: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write each kernel to a file, for Triton reads the source of a function from one."""
    found = {}
    for kernel, text in sources.items():
        path = folder / f"{kernel}.py"
        path.write_text(text, encoding="utf-8")
        found[kernel] = str(path)
    return found


def shapes(table: str, kernel: str, said: str) -> list[dict[str, int]]:
    """The shapes of a case: what the name of the table says, and what is said, at each M."""
    numbers = {name: int(value) for name, value in re.findall(r"\b([ENK])=(\d+)", table)}
    if kernel == "fused_moe":
        numbers["N"] *= 2  # the name says the columns after gate and up have become one
    rows = []
    for name, values in re.findall(r"(\w+)=([\d,]+)", said):
        if name == "M":
            rows = [int(one) for one in values.split(",")]
        else:
            numbers[name] = int(values)
    if not rows:
        raise ValueError(f"SHAPE: expected M, such as 'M=64,2048 K=4096', got {said!r}")
    return [{"M": one, **numbers} for one in rows]


def linted(
    kernel: str, source: str, table: Path, tuned_for: str, shape: Mapping[str, int], triton: str
) -> dict[str, Any]:
    """One table at one shape: what fell, and the fastest of the others."""
    from warpwatch.commands.compiled import inspect
    from warpwatch.config import tuned
    from warpwatch.instruments.compiled.diff import cliffs, sides
    from warpwatch.instruments.compiled.measure import jobs

    read, mistakes = tuned.read(str(table), {})
    if mistakes:
        raise ValueError("; ".join(f"{table}: {one}" for one in mistakes))
    # Many numbers of rows share one configuration.
    distinct = {
        json.dumps(config, sort_keys=True): name for name, config in read.configurations.items()
    }
    configurations = {name: json.loads(config) for config, name in distinct.items()}
    words = " ".join(f"{name}={value}" for name, value in shape.items())
    full = tuned.Table(
        configurations,
        call=f"tools.harness.tuned_kernels:{kernel}",
        args=f"{shlex.quote(f'source={source!r}')} {words}",
        parameter="config",
    )
    asked = {
        jobs.Job(full.call, target, full.arguments(name)): (target, name)
        for target in (tuned_for, TARGET)
        for name in configurations
    }
    done: dict[str, dict[str, Any]] = {tuned_for: {}, TARGET: {}}
    with sides.opened(triton) as side:
        for result in inspect.in_order(jobs.run(list(asked), side.environment), list(asked)):
            target, name = asked[result.job]
            done[target][name] = result
    fell, unknown = cliffs.fallen(TARGET, done[tuned_for], done[TARGET])
    for line in unknown:
        print(f"  {line}", file=sys.stderr)

    def described(name: str) -> dict[str, Any]:
        us = cliffs.predicted_us(done[TARGET][name])
        return {"name": name, "config": configurations[name], "predicted_us": round(us, 2)}

    named = {one.name for one in fell}
    good = [
        described(name)
        for name, one in done[TARGET].items()
        if one.status == "ok" and name not in named
    ]
    good.sort(key=lambda one: float(one["predicted_us"]))
    return {
        "kernel": kernel,
        "table": table.name,
        "tuned_for": tuned_for,
        "shape": dict(shape),
        "compared": len(configurations) - len(unknown),
        "fell": [{**described(one.name), "reasons": list(one.reasons)} for one in fell],
        "others": good[:OTHERS],
    }


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


if __name__ == "__main__":
    raise SystemExit(main())
