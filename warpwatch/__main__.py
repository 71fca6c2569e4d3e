"""The command line ``warpwatch COMMAND``; each command is a module."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from warpwatch import __version__, project
from warpwatch.commands import COMMANDS, STEPS, Command, extras, workflow_log

_RECORDED = "--recorded"
_EXIT_CODES = (
    "Exit codes: 0 clean; 1 regressed; 2 usage or configuration; 3 inconclusive, mixed, or nothing "
    "measured."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments after the program's name; by default those of this process.

    Returns:
        The exit code: 0 clean; 1 regressed; 2 usage or configuration; 3 inconclusive, mixed or
        nothing measured; 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with workflow_log.unheeded(_global_options(arguments)[1]):
        return _guarded(arguments)


def _guarded(arguments: list[str]) -> int:
    """Run it; a mistake of the user's is one line."""
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here a closed pipe can still be answered
        return code
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        how = extras.remedy(error.name or "")
        if how is None:
            raise
        needed = f"this command needs {error.name}, which is not installed"
        print(f"error: {needed}: {how}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever reads has enough, as `head` does. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except RuntimeError as error:
        if type(error).__name__ != "GpuError":
            raise
        print(f"error: {error}", file=sys.stderr)  # a device node, but no GPU that torch can use
        return 3


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="warpwatch",
        description="Catches performance regressions of GPU kernels, commit by commit, with or "
        "without a GPU.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"warpwatch {__version__}")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the project's warpwatch.toml (default: the nearest in this folder or above)",
    )
    known, rest = _global_options(arguments)
    if known is not None:
        os.environ[project.FILE_VARIABLE] = str(known.resolve())
    _add(parser, COMMANDS, rest)
    args = parser.parse_args(arguments)
    code: int = args.main(args)
    return code


def _global_options(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The configuration file that comes before the command, and the command with what follows."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", type=Path)
    for at, word in enumerate(arguments):
        if word in COMMANDS and (at == 0 or arguments[at - 1] != "--config"):
            found, _ = early.parse_known_args(arguments[:at])
            return found.config, arguments[at:]
    return None, []


def _add(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command], arguments: Sequence[str]
) -> None:
    """Give ``parser`` its subcommands; only the requested one is imported."""
    choices = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, one in commands.items():
        command = choices.add_parser(
            name,
            help=one.help,
            description=f"{one.help[0].upper()}{one.help[1:]}.",
            epilog=f"Example: {one.example}",
            allow_abbrev=False,
        )
        if not arguments or arguments[0] != name:
            continue
        if name == "ci":
            _add(command, STEPS, arguments[1:])
            continue
        path = one.module
        if one.recorded:
            reads = "read what is recorded: nothing is run, torch is not needed"
            command.add_argument(_RECORDED, action="store_true", help=reads)
            path = one.recorded if _RECORDED in arguments else path
        module = importlib.import_module(f"warpwatch.commands.{path}")
        module.add_arguments(command)
        command.set_defaults(main=module.main)


if __name__ == "__main__":
    sys.exit(main())
