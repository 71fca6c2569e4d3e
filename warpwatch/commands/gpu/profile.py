"""``profile``: one workload under a profiler, which writes its own report."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from warpwatch.config.isolation import subprocess_environment
from warpwatch.instruments import presence
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.peers import registry as peers
from warpwatch.session import stopping

SUFFIXES = {"ncu": ".ncu-rep", "nsys": ".nsys-rep", "torch": ".json", "proton": ".hatchet"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", help="name of a workload, or 'WORKLOAD @ PEER'")
    parser.add_argument("--with", dest="tool", choices=SUFFIXES, default="ncu", help="default ncu")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the report; its tool's suffix is added (default: by workload)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=600.0,
        metavar="S",
        help="end the profiler and the workload after so many seconds (default 600)",
    )


def main(args: argparse.Namespace) -> int:
    if not args.seconds > 0:
        raise ValueError(f"--seconds: expected more than 0, got {args.seconds:g}")
    workload = peers.get(args.workload)
    name = re.sub(r"[^\w.-]+", "-", workload.name)
    output = named(Path(args.output or name), args.tool)
    if not presence.has_gpu():
        print("no GPU: nothing profiled", file=sys.stderr)
        return 3
    try:
        with stopping.stopped_by_sigterm():
            code = run(command(args.tool, workload.name, output), args.seconds)
    except KeyboardInterrupt as stop:
        stopped, word = (143, "SIGTERM") if isinstance(stop, stopping.Stopped) else (130, "Ctrl-C")
        print(f"stopped ({word}): {args.tool} and {workload.name} were ended", file=sys.stderr)
        return stopped
    if code is None:
        print(
            f"{args.tool} did not end within {args.seconds:g} s: it was ended with {workload.name} "
            "(a kernel may hang; else give more --seconds)",
            file=sys.stderr,
        )
        return 3
    if code or not output.exists():
        print(f"{args.tool} wrote no report (exit code {code})", file=sys.stderr)
        return 3
    print(output)
    return 0


def run(command: list[str], seconds: float) -> int | None:
    """The exit code; ``None`` where it took longer. Whatever stops the wait, an exception too, ends
    the profiler and what it started: a kernel that hangs would hold the card."""
    process = subprocess.Popen(
        command, env=subprocess_environment(), text=True, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        stopping.end(process)


def named(output: Path, tool: str) -> Path:
    """``output`` with the suffix by which the profiler knows its reports: two of them add it."""
    suffix = SUFFIXES[tool]
    return output if output.name.endswith(suffix) else output.with_name(output.name + suffix)


def command(tool: str, workload: str, output: Path) -> list[str]:
    """What runs the workload under ``tool``; ``ValueError`` where the tool is not installed."""
    run = [
        sys.executable,
        "-m",
        "warpwatch.instruments.counters.profiled",
        workload,
        tool,
        str(output),
    ]
    stem = str(output).removesuffix(SUFFIXES[tool])
    if tool == "ncu":
        try:
            found = ncu.find()
        except ncu.CountersRefusedError as error:
            raise ValueError(str(error)) from None
        options = ["--set=full", "--import-source=yes", "--clock-control=none"]
        return [found, *options, "--profile-from-start=off", "--force-overwrite", "-o", stem, *run]
    if tool == "nsys":
        nsys = shutil.which("nsys")
        if nsys is None:
            raise ValueError("nsys is not on the PATH: install Nsight Systems")
        options = ["--capture-range=cudaProfilerApi", "--force-overwrite=true"]
        return [nsys, "profile", *options, "-o", stem, *run]
    return run
