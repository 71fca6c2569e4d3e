"""The command line: each command with its help, its options and its example."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from unittest import mock

from tools.docs.figures.markdown import table
from warpwatch import project
from warpwatch.__main__ import _add
from warpwatch.commands import COMMANDS, STEPS, Command


def summary() -> str:
    """Write one line for each command.

    Returns:
        A table.
    """
    rows = [(f"[`{name}`](#{name})", one.help) for name, one in COMMANDS.items()]
    return table(["command", "does"], rows)


def steps_summary() -> str:
    """Write one line for each step of ``warpwatch ci``.

    Returns:
        A table.
    """
    rows = [(f"[`ci {name}`](#ci-{name})", one.help) for name, one in STEPS.items()]
    return table(["step", "does"], rows)


def every_command() -> str:
    """Write each command.

    Returns:
        A section for each.
    """
    return "\n\n".join(
        _section(one, (name,), f"## {name}", one.recorded)
        for name, one in COMMANDS.items()
        if name != "ci"
    )


def every_step() -> str:
    """Write each step of ``warpwatch ci``.

    Returns:
        A section for each.
    """
    return "\n\n".join(_section(one, ("ci", name), f"### ci {name}") for name, one in STEPS.items())


def _section(command: Command, words: tuple[str, ...], heading: str, recorded: str = "") -> str:
    parts = [heading, f"{command.help[0].upper()}{command.help[1:]}."]
    parts += [f"```console\n$ {command.example}\n```", _options(_parser(words))]
    if recorded:
        parts += [
            "With `--recorded` it reads results, and takes these options instead:",
            _options(_parser((*words, "--recorded"))),
        ]
    return "\n\n".join(part for part in parts if part)


def _parser(words: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser that the command line makes of these words."""
    whole = argparse.ArgumentParser(prog="warpwatch")
    _add(whole, COMMANDS, words)
    found = whole
    for word in words:
        if not word.startswith("-"):
            found = _choices(found)[word]
    return found


def _choices(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            choices: Mapping[str, argparse.ArgumentParser] = action.choices
            return choices
    return {}


def _options(parser: argparse.ArgumentParser, prefix: str = "") -> str:
    rows = []
    inner = []
    with mock.patch.dict(os.environ, COLUMNS="200", NO_COLOR="1"):
        formatter = argparse.HelpFormatter(parser.prog)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                inner += [(name, one) for name, one in action.choices.items()]
            elif action.help != argparse.SUPPRESS and action.dest != "help":
                said = formatter._expand_help(action) if action.help else _default(action)
                # A folder of the project is named from there.
                said = said.replace(f"{project.folder()}{os.sep}", "")
                rows.append((f"`{_shown(action, formatter)}`", _cell(said)))
    parts = [table(["argument", "meaning"], rows)] if rows else []
    for name, one in inner:
        title = f"`{prefix}{name}`"
        described = one.description or ""
        options = _options(one, f"{prefix}{name} ")
        parts.append(
            "\n\n".join(part for part in (f"**{title}** {described}".strip(), options) if part)
        )
    return "\n\n".join(parts)


def _default(action: argparse.Action) -> str:
    """What stands in the place of a help that nobody wrote."""
    if action.required or not action.option_strings:
        return "required" if action.nargs != argparse.REMAINDER else "the command that is run"
    if action.default in (None, False, [], argparse.SUPPRESS):
        return ""
    return f"default: {action.default}"


def _shown(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    if not action.option_strings:
        return formatter._format_args(action, str(action.metavar or action.dest))
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = str(action.metavar or action.dest.upper())
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    return f"{names} {formatter._format_args(action, value)}"


def _cell(text: str) -> str:
    return " ".join(_escaped(text)).replace("|", "\\|")


def _escaped(text: str) -> Iterator[str]:
    """Words, with code marked: what a reader types must not become Markdown."""
    for word in text.split():
        yield word.replace("*", "\\*").replace("<", "&lt;")
