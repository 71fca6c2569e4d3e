"""``record``: run an existing script without a GPU, and make each of its calls a workload."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from warpwatch import project
from warpwatch.commands import extras
from warpwatch.config import isolation, targets
from warpwatch.config.calls import Call
from warpwatch.config.package import load

_LAST_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--package", metavar="NAME", help="whose calls (default: the configured)")
    parser.add_argument(
        "--target", default="sm_90", help="which GPU the command thinks it has (default sm_90)"
    )
    parser.add_argument(
        "--write", action="store_true", help="add the calls to the configuration file"
    )
    parser.add_argument("--most", type=int, default=200, metavar="N", help="at most N calls")
    parser.add_argument("--seconds", type=float, default=600, help="end the command after this")
    parser.add_argument(
        "run",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="python FILE ..., python -m MODULE ... or pytest ...",
    )


def main(args: argparse.Namespace) -> int:
    """Print the calls as ``[[workload]]`` tables.

    Args:
        args: The parsed arguments.

    Returns:
        0 where a call became a workload, 3 where none did.

    Raises:
        ValueError: No command is given.
    """
    command = args.run[1:] if args.run[:1] == ["--"] else args.run
    if not command:
        raise ValueError("expected -- COMMAND, such as: warpwatch record -- python bench.py")
    extras.require("torch", "triton")
    package = args.package or load().name
    with tempfile.TemporaryDirectory(prefix="warpwatch-") as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "package": package,
            "target": targets.get(args.target).name,
            "command": command,
            "answer": str(answer),
        }
        done = _ran(json.dumps(request), args.seconds)
        if not answer.is_file():
            print(f"the command ended before its calls were written down: {done}", file=sys.stderr)
            return 3
        found = json.loads(answer.read_text(encoding="utf-8"))
    calls = [Call(**one) for one in found["calls"]]
    for why, many in found["unwritten"]:
        print(f"{many} launches are no workload: {why}", file=sys.stderr)
    if found["ended"]:
        print(f"the command ended with {found['ended']}", file=sys.stderr)
    if len(calls) > args.most:
        print(f"the first {args.most} of {len(calls)} calls: --most N for more", file=sys.stderr)
        calls = calls[: args.most]
    text = tables(calls)
    if args.write and calls:
        calls = _new(calls)
        with project.configuration_file().open("a", encoding="utf-8") as file:
            file.write(tables(calls))
    else:
        print(text, end="")
    print(f"{len(calls)} calls of {package}, {found['launches']} launches", file=sys.stderr)
    return 0 if found["calls"] else 3


def _ran(request: str, seconds: float) -> str:
    """Run the command; how it ended. Its own output goes to standard error: its times mean
    nothing."""
    process = [sys.executable, "-m", "warpwatch.commands.compiled.recording.run", request]
    environment = isolation.subprocess_environment()
    # No kernel is compiled here: what Inductor would compile runs as written, and a call of it
    # counts as a launch.
    environment["TORCHDYNAMO_DISABLE"] = "1"
    with subprocess.Popen(process, env=environment, stdout=sys.stderr) as running:
        try:
            code = running.wait(seconds)
        except subprocess.TimeoutExpired:
            running.terminate()  # it writes down what it has
            try:
                code = running.wait(_LAST_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                return f"no end within {seconds:.0f} s"
    return f"exit code {code}"


def _new(calls: Sequence[Call]) -> list[Call]:
    """The calls that the configuration does not hold already."""
    if not project.configuration_file().is_file():
        raise ValueError("--write: no configuration file; `warpwatch init` writes one")
    known = load().calls
    held = {(one.call, one.args, one.backward) for one in known}
    names = {one.name for one in known}
    found = []
    for one in calls:
        if (one.call, one.args, one.backward) in held:
            continue
        free = (f"{one.name}.{number}" for number in count(2))
        name = one.name if one.name not in names else next(x for x in free if x not in names)
        names.add(name)
        found.append(replace(one, name=name))
    return found


def tables(calls: Sequence[Call]) -> str:
    """Write calls as the configuration holds them.

    Args:
        calls: The calls.

    Returns:
        A ``[[workload]]`` for each.
    """
    lines: list[str] = []
    for one in calls:
        lines += [
            "",
            "[[workload]]",
            f'name = "{one.name}"',
            f'call = "{one.call}"',
            f"args = {json.dumps(one.args)}",
            *(["backward = true"] if one.backward else []),
        ]
    return "\n".join(lines) + "\n" if lines else ""
