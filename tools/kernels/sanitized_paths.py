"""Every path through the kernels under compute-sanitizer, a process each, on all GPUs seen.

    python -m tools.kernels.sanitized_paths --tool memcheck
    python -m tools.kernels.sanitized_paths --tool racecheck --jobs 24 --seconds 200

The paths are those of ``tools.kernels.each_path_once``, Hopper's first, of each operator one in
turn: with ``--seconds`` what the time did not suffice for is *not run*, and the rest is told as
ever. Each is tried without torch's kernels, whose names are left out, and where the tool itself
fails with them, and again with every launch waited for. A line a path says what was found:

- *clean*: nothing, and every answer within its bar;
- *hand-over*: hazards, each in how Triton starts the warps of its partitions
  (``tools/kernels/sanitizer_log.py`` tells by which rule);
- *library*: hazards in kernels that Triton did not load, cuBLAS's in what we compare with;
- *FOUND*: an error of memcheck's, or a hazard in a kernel of ours; *WRONG*: an answer is;
- *tool failed*, three times; *cut off* and *not run*, when the time was up.

Exits 1 after FOUND or WRONG, 3 when a path did not run or the tool failed, 2 without the tool or a
GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

from tests.kernels.findings import Drawn
from tools.kernels import sanitizer_log
from warpwatch.instruments.compiled.formats.code import Program
from warpwatch.instruments.compiled.machine_code import sass

PLACES = (
    "usr/local/cuda*/bin/compute-sanitizer",
    "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    "opt/nvidia/*/compute-sanitizer",
    "opt/nvidia/*/*/compute-sanitizer",
)
LIBRARIES = ("2at6native", "cutlass", "nvjet", "gemm", "cub")  # in names of torch's kernels
WAYS = ("named", "all", "blocking")
GOOD, BAD = ("clean", "hand-over", "library"), ("FOUND", "WRONG")
# A process may take: on an H200 memcheck's slowest took 38 s, and one of racecheck's more than 120.
PATH_SECONDS = {"memcheck": 120.0, "racecheck": 300.0}
FAILED_EXIT = 9


@dataclass(frozen=True)
class Attempt:
    """What one process left. ``loaded`` names each kernel Triton loaded, and its cubin."""

    log: str
    printed: str
    loaded: str
    ended: bool


@dataclass(frozen=True)
class Row:
    """One path: its place in ``each_path_once.paths()`` from 1 on, and what was found."""

    path: int
    verdict: str
    way: str = ""
    seconds: float = 0.0
    details: tuple[str, ...] = ()
    owners: tuple[tuple[str, int], ...] = ()  # hazards


def find_tool() -> str:
    found = which("compute-sanitizer")
    for place in PLACES:
        found = found or max(map(str, Path("/").glob(place)), default=None)
    if found is None:
        raise FileNotFoundError(
            "expected compute-sanitizer on PATH, under /usr/local/cuda*/bin or /opt/nvidia, found "
            "none: it comes with the CUDA toolkit (package cuda-sanitizer)"
        )
    return found


def find_devices() -> list[str]:
    """Values of ``CUDA_VISIBLE_DEVICES``, one a GPU."""
    import torch

    count = torch.cuda.device_count() if torch.version.cuda else 0
    if not count:
        raise RuntimeError("expected an NVIDIA GPU, found none: nvidia-smi has to list one")
    named = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return named[:count] or [str(i) for i in range(count)]


def in_order(paths: Sequence[Drawn], hopper: bool, portable: bool) -> list[int]:
    """Numbers from 1 on: Hopper's first, and of each operator one in turn."""
    wanted = [
        (one.portable, one.operator, i)
        for i, one in enumerate(paths, 1)
        if (portable if one.portable else hopper)
    ]
    before: Counter[tuple[bool, str]] = Counter()
    turns: list[tuple[bool, int, int]] = []
    for kind, operator, i in wanted:
        turns.append((kind, before[kind, operator], i))
        before[kind, operator] += 1
    return [i for _, _, i in sorted(turns)]


def title(one: Drawn) -> str:
    """The operator and what of its case is not as by default."""
    case: Any = one.case
    if is_dataclass(case):
        case = " ".join(
            f"{each.name}={getattr(case, each.name)}"
            for each in fields(case)
            if getattr(case, each.name) != each.default
        )
    kind = "portable" if one.portable else "hopper"
    return f"{kind} {one.operator} {case}".replace("'", "")


def command(tool: str, kind: str, way: str, path: int, folder: Path) -> list[str]:
    left_out = [f"--kernel-name-exclude=kns={name}" for name in LIBRARIES] if way == "named" else []
    return [
        *(tool, "--tool", kind, "--target-processes", "application-only", "--print-limit", "1000"),
        # By itself it goes on without the tool when no GPU was asked for anything in 10 s.
        *("--launch-timeout", f"{PATH_SECONDS[kind]:.0f}"),
        *(*left_out, "--error-exitcode", str(FAILED_EXIT), "--log-file", str(folder / "log")),
        *(sys.executable, "-u", "-m", "tools.kernels.each_path_once"),
        *("--only", str(path), "--loaded", str(folder / "loaded")),
    ]


def attempt(asked: list[str], device: str, way: str, folder: Path, until: float) -> Attempt:
    """Runs one process and what it started, until ``until`` (of ``time.monotonic``)."""
    given = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
    if way == "blocking":
        given["CUDA_LAUNCH_BLOCKING"] = "1"
    folder.mkdir(parents=True)
    with (folder / "printed").open("w") as out:
        process = subprocess.Popen(
            asked, stdout=out, stderr=subprocess.STDOUT, env=given, start_new_session=True
        )
        try:
            process.wait(max(0.0, until - time.monotonic()))
            ended = True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
            ended = False
    log, printed, loaded = (
        path.read_text(errors="replace") if (path := folder / name).exists() else ""
        for name in ("log", "printed", "loaded")
    )
    return Attempt(log, printed, loaded, ended)


def tool_failed(made: Attempt) -> bool:
    log = sanitizer_log.read(made.log)
    return made.ended and (log.broken or log.summary is None)


def judge(path: int, made: Attempt, way: str, seconds: float) -> Row:
    log = sanitizer_log.read(made.log)
    cubins: dict[str, list[str]] = {}
    for line in made.loaded.splitlines():
        name, _, cubin = line.partition("\t")
        if Path(cubin).is_file():  # not the rest of a line that was cut off
            cubins.setdefault(name, []).append(cubin)

    owners: Counter[str] = Counter()
    details = list(dict.fromkeys(log.errors))
    for hazard in log.hazards:
        whose = sanitizer_log.owner(hazard, lambda name: [*map(program, cubins.get(name, ()))])
        owners[whose] += hazard.count
        told = f"{whose}: {hazard.told(exactly=whose == 'ours')}"
        if told not in details:
            details.append(told)
    wrong = [line for line in made.printed.splitlines() if ": FAILED " in line]
    if log.errors or owners["ours"]:
        verdict = "FOUND"
    elif not made.ended:
        verdict = "cut off"
    elif tool_failed(made):
        verdict, details = "tool failed", [*details, *made.log.splitlines()[1:2]]
    elif wrong or ": ok" not in made.printed:
        verdict = "WRONG"
        details += [line.partition(": FAILED ")[2][:300] for line in wrong] or [made.printed[-300:]]
    else:
        verdict = next((one for one in ("library", "hand-over") if owners[one]), "clean")
    return Row(path, verdict, way, seconds, tuple(details), tuple(owners.items()))


@cache
def program(cubin: str) -> Program:
    return sass.read(sass.disassemble(Path(cubin).read_bytes()))


def run_path(path: int, tool: str, kind: str, device: str, folder: Path, until: float) -> Row:
    started = time.monotonic()
    if started >= until:
        return Row(path, "not run")
    for way in WAYS:
        here = folder / f"{path}-{way}"
        last = min(until, time.monotonic() + PATH_SECONDS[kind])
        made = attempt(command(tool, kind, way, path, here), device, way, here, last)
        if not tool_failed(made):
            break
    return judge(path, made, way, time.monotonic() - started)


def progress(row: Row) -> str:
    """A line as the path ends; of what is not good with all there is to tell, since whoever ends
    this command before its table is printed would never know."""
    said = f"{row.path} {row.verdict} {row.way} {row.seconds:.0f} s"
    return said if row.verdict in GOOD else "; ".join((said, *row.details))


def table(rows: Sequence[Row], paths: Sequence[Drawn]) -> list[str]:
    lines = []
    for row in sorted(rows, key=lambda row: row.path):
        hazards = ", ".join(f"{count} {owner}" for owner, count in row.owners)
        lines.append(
            f"{row.path:>3} {row.verdict:<11} {row.way:<8} {row.seconds:4.0f} s "
            f"{title(paths[row.path - 1])[:110]}" + (f" ({hazards})" if hazards else "")
        )
    seen: Counter[str] = Counter()
    for row in rows:
        seen.update(row.details)
    lines += [f"    {count} paths: {told}" for told, count in sorted(seen.items())]
    total = Counter(row.verdict for row in rows)
    return [*lines, f"{len(rows)} paths: " + ", ".join(f"{n} {v}" for v, n in total.most_common())]


def exit_code(rows: Sequence[Row]) -> int:
    verdicts = {row.verdict for row in rows}
    if verdicts & {*BAD}:
        return 1
    return 0 if rows and verdicts <= {*GOOD} else 3


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernels.sanitized_paths",
        description="every path through the kernels under compute-sanitizer",
    )
    parser.add_argument("--tool", choices=("memcheck", "racecheck"), required=True)
    parser.add_argument("--jobs", type=int, default=24, help="processes at a time")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth path from the Ith on")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--hopper", action="store_true", help="paths of Hopper's kernels alone")
    kinds.add_argument("--portable", action="store_true", help="portable paths alone")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of it")
    parser.add_argument("--logs", type=Path, help="an empty folder to keep what each run left")
    args = parser.parse_args(given)
    until = time.monotonic() + args.seconds
    try:
        tool, devices = find_tool(), find_devices()
    except (FileNotFoundError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    from tools.kernels.each_path_once import paths as every_path

    paths = every_path()
    first, step = map(int, args.part.split("/"))
    order = in_order(paths, not args.portable, not args.hopper)[first - 1 :: step]
    free = list(devices) * -(-args.jobs // len(devices))
    lock = threading.Lock()

    def one(path: int) -> Row:
        with lock:
            device = free.pop(0)
        row = run_path(path, tool, args.tool, device, folder, until)
        with lock:
            free.append(device)
        print(progress(row), file=sys.stderr, flush=True)
        return row

    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(args.jobs) as pool:
        folder = args.logs or Path(made)
        rows = list(pool.map(one, order))
    print("\n".join(table(rows, paths)))
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
