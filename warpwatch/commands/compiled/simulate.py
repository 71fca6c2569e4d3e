"""Runs host code and its Gluon or Triton launches on the CPU, and reports what is wrong."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TARGETS = {"sm_90": (9, 0), "sm_100": (10, 0)}
SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes.

    Args:
        parser: The command's own.
    """
    parser.add_argument("call", metavar="MODULE:CALLABLE",
                        help="host code; MODULE may also be a file's name")  # fmt: skip
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT",
                        help="what it is called with: numbers, 'strings', NAME=VALUE")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=8, metavar="N",
                        help="orders to run in (default %(default)s)")  # fmt: skip
    parser.add_argument("--first", type=int, default=0, metavar="SEED",
                        help="the first order (default %(default)s)")  # fmt: skip
    parser.add_argument("--target", choices=TARGETS,
                        help="the GPU that host code sees: a kernel may use its words only "
                             "(default: sm_90, and the words of every target)")  # fmt: skip
    parser.add_argument("--processors", type=int, default=4, metavar="N",
                        help="its multiprocessors (default %(default)s)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=1_000_000, metavar="N",
                        help="steps of loops that a program may take; more are reported as an "
                             "endless loop (default %(default)s)")  # fmt: skip
    parser.add_argument("--trace", type=Path, metavar="FILE",
                        help="write what a program of each launch does: .json for Perfetto, or "
                             "the launch with the fault, or else the first with partitions, "
                             "as .svg")  # fmt: skip
    parser.add_argument("--strict", action="store_true",
                        help="a barrier that copies use wants a fence after its init")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Run the command.

    Args:
        args: What ``add_arguments`` describes.

    Returns:
        0 where nothing was found, 1 where a fault was, 3 where a word is not known.

    Raises:
        ValueError: An argument is not what was expected.
    """
    if args.seeds < 1:
        raise ValueError(f"--seeds: expected 1 or more, got {args.seeds}")
    if args.processors < 1:
        raise ValueError(f"--processors: expected 1 or more, got {args.processors}")
    if args.steps < 1:
        raise ValueError(f"--steps: expected 1 or more, got {args.steps}")
    if args.trace is not None and args.trace.suffix not in (".json", ".svg"):
        raise ValueError(f"--trace: expected a name that ends in .json or .svg, got {args.trace}")
    if args.trace is not None and not args.trace.parent.is_dir():
        raise ValueError(f"--trace: there is no folder {args.trace.parent}")
    # Read when they are imported: numpy's threads only wait for one another, and Triton's own
    # interpreter would take plain Triton for itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.pop("TRITON_INTERPRET", None)
    from warpwatch.simulator.session.check import check
    from warpwatch.simulator.session.host import Card, shown

    card = Card(TARGETS[args.target or "sm_90"], args.processors, judged=bool(args.target))
    with shown(card):  # modules ask for the GPU when they are imported
        called = _loaded(args.call)
    given, named = _positional(args.arguments), _named(args.arguments)
    _must_take(called, given, named)
    function = partial(called, *given, **named)
    logs: list[Any] | None = None if args.trace is None else []
    with contextlib.redirect_stdout(sys.stderr):
        seeds = range(args.first, args.first + args.seeds)
        findings = check(function, seeds, card, args.strict, logs, args.steps)
    if logs:
        _write_trace(args.trace, logs)
    if args.json:
        print(json.dumps(_as_json(findings), indent=2))
    else:
        _print(findings)
    if findings.unknown:
        return 3
    return 1 if findings.reports else 0


def _write_trace(path: Path, logs: list[Any]) -> None:
    from warpwatch.simulator.timeline.perfetto import trace
    from warpwatch.simulator.timeline.svg import picture

    if path.suffix == ".json":
        text = json.dumps(trace(logs))
    else:
        failed = [one for one in logs if one.failed]
        parted = [one for one in logs if len(one.tracks) > 1]
        text = picture((failed or parted or logs)[0])
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--trace: {error}") from error


def _print(findings: Any) -> None:
    for report in findings.unknown or findings.reports:
        print("\n".join(report.lines()))
    orders = f"{findings.runs} order{'s' * (findings.runs != 1)}"
    launches = f"{findings.launches} launch{'es' * (findings.launches != 1)}"
    if findings.unknown:
        return
    if not findings.launches and not findings.reports:
        print(f"nothing was launched in {orders}: there was nothing to judge")
    elif findings.reports:
        faults = len(findings.reports)
        print(f"{faults} fault{'s' * (faults != 1)} in {orders}, {launches}")
    else:
        print(f"no fault in {orders}, {launches}")


def _as_json(findings: Any) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "runs": findings.runs,
        "launches": findings.launches,
        "faults": [
            {
                "kind": one.kind,
                "message": one.message,
                "seed": one.seed,
                "launch": one.launch,
                "sites": [
                    {"part": part, "file": site.file, "line": site.line} for part, site in one.sites
                ],
            }
            for one in findings.reports
        ],
    }


def _loaded(call: str) -> Callable[..., Any]:
    module_name, _, name = call.rpartition(":")
    if not module_name or not name:
        raise ValueError(f"expected MODULE:CALLABLE, got {call!r}")
    try:
        module = _from_file(Path(module_name)) if module_name.endswith(".py") else None
        if module is None:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may also skip itself, or exit
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{module_name} cannot be imported: {said}") from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{module_name} has no function {name!r}")
    loaded: Callable[..., Any] = found
    return loaded


def _must_take(called: Callable[..., Any], given: list[Any], named: dict[str, Any]) -> None:
    """Raise if host code does not take the arguments."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # it has none that Python knows
        return
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        raise ValueError(f"{getattr(called, '__name__', 'the host code')}: {error}") from None


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path.resolve())
    if spec is None or spec.loader is None:
        raise ValueError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _is_named(text: str) -> bool:
    return "=" in text and text.partition("=")[0].isidentifier()


def _positional(arguments: list[str]) -> list[Any]:
    return [_value(one) for one in arguments if not _is_named(one)]


def _named(arguments: list[str]) -> dict[str, Any]:
    pairs = (one.partition("=") for one in arguments if _is_named(one))
    return {name: _value(value) for name, _, value in pairs}
