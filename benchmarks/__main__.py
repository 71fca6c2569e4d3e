"""The command line ``python -m benchmarks COMMAND``; each command is a module."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.instruments.gpu import GpuError

# name -> what it does; the module of the same name is imported only when it is asked for.
COMMANDS: dict[str, str] = {
    "bounds": "the compiled bound on utilization held against what counters read",
    "inspect": "what the compilers make of anyone's Triton code, on six targets, without a GPU",
    "run": "one workload now, uncommitted edits included",
    "evidence": "what is kept beside asv's results to explain them, and what of it can go",
    "upgrade": "what another Triton version does to our kernels, kernel by kernel",
    "calibrate": "how far this machine's readings agree with themselves and with ncu",
    "tune": "sweep the configurations of a workload: compilers condemn, the GPU times the rest",
    "profile": "run a workload under ncu, nsys, torch's profiler or proton",
    "peers": "our kernels beside every other implementation that can be imported here",
    "container": "build the images and run them: no network, read-only, unprivileged",
    "doctor": "say what this machine can measure and what is missing",
    "history": "run asv over the newest commits that touch the measured package",
    "bisect": "find the commit that made a workload worse, or say that it cannot be told",
    "compare": "measure two versions of the kernels side by side and judge what changed",
    "lane": "measure base and head of a pull request, or one shard of them",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 clean, 1 regressed, 2 usage, 3 nothing certain."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if arguments and arguments[0] == name:
            module = importlib.import_module(f"benchmarks.commands.{name}")
            module.add_arguments(command)
            command.set_defaults(main=module.main)
    args = parser.parse_args(arguments)
    try:
        code: int = args.main(args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except GpuError as error:  # a device node is there, but no GPU that torch can use
        print(f"error: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
