"""Tables of tuned configurations: from a JSON file, or from a Python module.

    {
      "call": "fastops.moe:experts",
      "args": "bf16[512,4096] bf16[8,4096,4096]",
      "parameter": "config",
      "configurations": {
        "512": {"BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 8, "num_stages": 4}
      }
    }

``call`` takes a configuration as its argument ``parameter``, a dictionary, or without ``parameter``
each value as an argument of its own. A file that holds only configurations is a table too, as
``package.module:TABLE`` is: a list or a dictionary of dictionaries, or of ``triton.Config``. Then
the call stands on the command line.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .arguments import parse_arguments

_CALL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_KEYS = ("call", "args", "parameter", "configurations")
_PLAIN = (bool, int, float, str)
_SECONDS = 120
EXAMPLE = '{"512": {"BLOCK_M": 64, "num_warps": 8}}'


@dataclass(frozen=True)
class Table:
    """Tuned configurations by name, and the call that takes one of them."""

    configurations: Mapping[str, Mapping[str, Any]]
    call: str = ""
    args: str = ""
    parameter: str = ""

    def with_call(self, call: str | None, args: str | None, parameter: str | None) -> Table:
        """What the command line says goes before what the file says."""
        return replace(
            self,
            call=self.call if call is None else call,
            args=self.args if args is None else args,
            parameter=self.parameter if parameter is None else parameter,
        )

    def mistakes(self) -> list[str]:
        """What of the call cannot be used, one line each."""
        found = []
        if not self.call:
            found.append("call: is missing, expected package.module:function that takes one")
        elif not _CALL.fullmatch(self.call):
            found.append(f"call: expected package.module:function, got {self.call!r}")
        if self.parameter and not self.parameter.isidentifier():
            found.append(f"parameter: expected the name of an argument, got {self.parameter!r}")
        try:
            parse_arguments(self.args)
        except ValueError as error:
            found.append(f"args: {str(error).removeprefix('--args: ')}")
        return found

    def arguments(self, name: str) -> str:
        """The arguments of the call in one configuration, as the command line takes them."""
        found = dict(self.configurations[name])
        words = (
            [f"{self.parameter}={found!r}"]
            if self.parameter
            else [f"{key}={value!r}" for key, value in found.items()]
        )
        return " ".join([*([self.args] if self.args else []), *map(shlex.quote, words)])


def read(where: str, environment: Mapping[str, str]) -> tuple[Table, list[str]]:
    """Read a table.

    Args:
        where: A JSON file, or ``package.module:TABLE``.
        environment: Of the process that imports a module.

    Returns:
        The table, and every mistake in it.

    Raises:
        ValueError: There is nothing to read: no such file, no such module, no JSON.
    """
    if ":" in where and not Path(where).exists():
        content = _of_module(where, environment)
    else:
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{where}: cannot be read: {error}") from error
        try:
            content = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where}: is no JSON: {error}") from error
    return _table(content)


def _table(content: Any) -> tuple[Table, list[str]]:
    mistakes: list[str] = []
    document: dict[str, Any] = {"configurations": content}
    if isinstance(content, dict) and "configurations" in content:
        document = content
        unknown = [key for key in content if key not in _KEYS]
        mistakes += [f"{key}: unknown, expected one of {' '.join(_KEYS)}" for key in unknown]
    words = {}
    for key in ("call", "args", "parameter"):
        words[key] = document.get(key, "")
        if not isinstance(words[key], str):
            mistakes.append(f"{key}: expected text, got {words[key]!r}")
            words[key] = ""
    found, wrong = _configurations(document["configurations"])
    return Table(found, **words), [*mistakes, *wrong]


def _configurations(content: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    if isinstance(content, list):
        named: Iterable[tuple[str, Any]] = ((str(i), one) for i, one in enumerate(content))
    elif isinstance(content, dict):
        # Tables of other projects say which Triton they were tuned under, among their rows.
        named = ((key, one) for key, one in content.items() if not _is_a_version(key, one))
    else:
        return {}, [f"configurations: expected a table such as {EXAMPLE}, got {content!r}"]
    found: dict[str, dict[str, Any]] = {}
    mistakes = []
    for name, one in named:
        place = f"configuration {name}"
        if not isinstance(one, dict) or not one:
            mistakes.append(
                f'{place}: expected names with values such as {{"BLOCK_M": 64}}, got {one!r}'
            )
            continue
        for key, value in one.items():
            if not str(key).isidentifier():
                mistakes.append(f"{place}: expected the name of an argument, got {key!r}")
            if value is not None and not isinstance(value, _PLAIN):
                mistakes.append(f"{place}: {key}: expected a number or a text, got {value!r}")
        found[str(name)] = one
    if not found and not mistakes:
        mistakes.append(f"configurations: expected at least one, such as {EXAMPLE}")
    return found, mistakes


def _is_a_version(key: str, value: Any) -> bool:
    return isinstance(value, str) and key.endswith("version")


def _of_module(where: str, environment: Mapping[str, str]) -> Any:
    """What a module holds, in a process of its own: its import may do anything."""
    command = [sys.executable, "-P", "-m", "warpwatch.config.tuned", where]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{where}: its module was not imported in {_SECONDS} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ValueError(f"{where}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def plain(value: Any) -> Any:
    """A table of a module as JSON has it; a ``triton.Config`` as the dictionary of its values."""
    if hasattr(value, "all_kwargs"):
        return plain(value.all_kwargs())
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, _PLAIN) else repr(value)


def main(where: str) -> int:
    """Print what ``package.module:TABLE`` holds as one line of JSON."""
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    print(json.dumps(plain(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
