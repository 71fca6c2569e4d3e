"""The command line ``python -m reports COMMAND``; each command is a module."""

from __future__ import annotations

import argparse
import importlib
import sys

# name -> what it does; the module of the same name is imported only when it is asked for.
COMMANDS: dict[str, str] = {
    "build": "read results and write the site",
    "comment": "write two commits' verdict as Markdown, step summary or check run",
    "compare": "judge two measured commits and print the verdict table",
    "judge": "judge the artifacts of a pull request's run and say so on GitHub",
    "merge": "merge the shards of one run into one results folder",
    "needs": "say whether every job of a workflow succeeded",
    "suspects": "name the commits worth measuring again and print the asv command",
    "accept": "accept a finding with an owner, a reason and an expiry, in git",
    "scorecard": "measure the judge itself, beside other detectors, and write docs/scorecard.md",
    "record": "extend the history on the data branch, or say which machine went silent",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 clean, 1 regressed, 2 usage, 3 nothing certain."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if arguments and arguments[0] == name:
            module = importlib.import_module(f"reports.commands.{name}")
            module.add_arguments(command)
            command.set_defaults(main=module.main)
    args = parser.parse_args(arguments)
    try:
        code: int = args.main(args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
