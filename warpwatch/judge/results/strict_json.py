"""How a JSON file of unknown origin is read: within limits, without executing anything."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

MAX_FILE_BYTES = 64 * 1024 * 1024
# A container costs about 60 bytes of memory for two of JSON: this bounds the blow-up.
MAX_CONTAINERS = 1_000_000
MAX_TEXT = 2_000
_LONGEST_LINE = 300


class RejectedError(ValueError):
    """A file that was not taken, with every mistake found in it."""

    def __init__(self, path: Path, problems: list[str]):
        self.path = path
        self.problems = tuple(problems)
        super().__init__(f"{path}: " + "; ".join(problems))


def read_bytes(path: Path, limit_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file of at most ``limit_bytes``, else ``RejectedError``."""
    try:
        # O_NONBLOCK: a named pipe in the results folder must not hang the build.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise RejectedError(path, [f"cannot be opened: {error}"]) from None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise RejectedError(path, ["is not a regular file"])
        # Room is made for what is asked for: asking for the limit takes longer than reading.
        data = file.read(min(state.st_size, limit_bytes) + 1)
        if state.st_size < len(data) <= limit_bytes:  # it grew meanwhile
            data += file.read(limit_bytes + 1 - len(data))
    if len(data) > limit_bytes:
        raise RejectedError(path, [f"is larger than the limit of {limit_bytes:,} bytes"])
    return data


def parse(path: Path, data: bytes) -> Any:
    """JSON of bounded nesting and size, else ``RejectedError``."""
    return _parsed(path, data, json.loads)


def parse_first(path: Path, data: bytes) -> Any:
    """The JSON value that ``data`` begins with, whatever follows it."""
    return _parsed(path, data, lambda d: json.JSONDecoder().raw_decode(d.decode("utf-8"))[0])


def _parsed(path: Path, data: bytes, decode: Callable[[bytes], Any]) -> Any:
    containers = data.count(b"[") + data.count(b"{")
    if containers > MAX_CONTAINERS:
        raise RejectedError(path, [f"holds more than {MAX_CONTAINERS:,} lists and objects"])
    try:
        return decode(data)
    except RecursionError:
        raise RejectedError(path, ["is nested too deeply"]) from None
    except UnicodeDecodeError as error:
        raise RejectedError(path, [f"is not UTF-8 at byte {error.start}"]) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        end = "" if data.rstrip().endswith((b"]", b"}")) else "cut short or "
        raise RejectedError(path, [f"is {end}not JSON: {error.msg} at {where}"]) from None
    except ValueError as error:  # integers of more than 4,300 digits
        raise RejectedError(path, [f"holds a number that cannot be read: {error}"]) from None


def load(path: Path, limit_bytes: int = MAX_FILE_BYTES) -> Any:
    """The JSON value in the file ``path``, else ``RejectedError``."""
    return parse(path, read_bytes(path, limit_bytes))


def text(value: Any) -> str:
    """``value`` for a message: short and on one line."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def line(said: str) -> str:
    """Text of unknown origin for a reader: printable, on one line, at most 300 characters."""
    cut = said if len(said) <= _LONGEST_LINE else said[: _LONGEST_LINE - 1] + "…"
    return "".join(one if one.isprintable() else " " for one in cut)


def shown(said: str, folders: Iterable[Path]) -> str:
    """What is said of a file, for a reader elsewhere: not where the machine keeps its folders.

    Args:
        said: a message that begins with a path.
        folders: one of which the path is, or lies in.

    Returns:
        The message; its path begins at the working folder, or at the repository that holds the
        folder, else with the folder's name.

    Examples:
        >>> shown("/home/ada/results/rig/1.json: is empty", [Path("/home/ada/results")])
        'results/rig/1.json: is empty'
    """
    for folder in folders:
        place = str(folder)
        if said.startswith((f"{place}:", f"{place}{os.sep}")):
            whole = folder.resolve()
            above = [Path.cwd(), *(one for one in whole.parents if (one / ".git").exists())]
            base = next((one for one in above if whole.is_relative_to(one)), whole.parent)
            return f"{whole.relative_to(base)}{said[len(place) :]}"
    return said


class Fields:
    """Takes typed fields out of a JSON object and collects every mistake on the way."""

    def __init__(self, value: Mapping[str, Any], problems: list[str], where: str = ""):
        self._value = value
        self._problems = problems
        self._where = where

    def take(self, name: str, check: Callable[[Any], bool], expected: str, default: Any) -> Any:
        """The field, or ``default`` where it is absent or ``None`` or (with a problem) wrong."""
        value = self._value.get(name)
        if value is None:
            return default
        if not check(value):
            self._problems.append(f"{self._where}{name}: expected {expected}, got {text(value)}")
            return default
        return value

    def string(self, name: str, default: str = "") -> str:
        result: str = self.take(name, is_text, f"text of at most {MAX_TEXT} characters", default)
        return result

    def texts(self, name: str) -> dict[str, str]:
        """An object of scalars, each as text."""
        value = self.take(name, lambda v: isinstance(v, dict), "an object", {})
        return {
            str(key)[:MAX_TEXT]: str(item)[:MAX_TEXT]
            for key, item in value.items()
            if isinstance(item, str | int | float) and len(str(item)) <= MAX_TEXT
        }

    def need(self, *names: str) -> None:
        for name in names:
            if self._value.get(name) is None:
                self._problems.append(f"{self._where}{name}: is missing")


def is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= MAX_TEXT
