"""Reads ``[[workload]]``: calls that are measured without code of their own."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from .arguments import parse_arguments

_CALL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,119}")


@dataclass(frozen=True)
class Call:
    """One ``[[workload]]``: a call that is measured without code of its own.

    Attributes:
        name: The name of its series; it never changes its meaning.
        call: What is called, ``package.module:function``.
        args: The arguments, such as ``bf16[4096,4096] bf16[4096] 1e-6``.
        backward: Whether gradients are computed as well.
        reference: A function of the same arguments that gives the right answer.
        flops: Floating-point operations of one call; 0 where nobody says.
        group: The table that the workload belongs to.

    A table may also ``sweep``: names of parameters with lists of values. Each combination is a call
    of its own, its values put into ``args`` where ``{name}`` stands, and into the name.
    """

    name: str
    call: str
    args: str = ""
    backward: bool = False
    reference: str = ""
    flops: int = 0
    group: str = "configured"


def calls_of(tables: Any) -> tuple[tuple[Call, ...], list[str]]:
    """Read the tables of a configuration file.

    Args:
        tables: What the file holds under ``workload``.

    Returns:
        The calls, and every mistake in them.
    """
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        return (), ["workload: expected tables [[workload]] with name, call and args"]
    calls, mistakes = [], []
    for number, table in enumerate(tables, start=1):
        place = f"[[workload]] {number}"
        if isinstance(table.get("name"), str):
            place += f" ({table['name'][:60]})"
        swept, wrong = _swept(dict(table))
        wrong = wrong or [one for each in swept for one in _mistakes(each)]
        mistakes += [f"{place} {mistake}" for mistake in dict.fromkeys(wrong)]
        if not wrong:
            calls += [Call(**one) for one in swept]
    names = [one.name for one in calls]
    mistakes += [
        f"[[workload]]: two are called {name!r}; names must differ"
        for name in sorted({one for one in names if names.count(one) > 1})
    ]
    return tuple(calls), mistakes


def unknown_key(key: str, known: Collection[str], is_section: bool = False) -> str:
    """Say that a table has a key that nobody reads.

    Args:
        key: As it stands in the file.
        known: Those that are read.
        is_section: Whether a table is what stands there.

    Returns:
        The nearest known key; all of them where none is alike.

    Example:
        >>> unknown_key("arg", ["name", "call", "args"])
        'arg: unknown key; did you mean args?'
        >>> unknown_key("colour", ["name", "call"])
        'colour: unknown key, expected one of name call'
    """
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f", expected one of {' '.join(known)}"
    return f"[{key}]: unknown section{hint}" if is_section else f"{key}: unknown key{hint}"


def _swept(table: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables that one with ``sweep`` stands for."""
    sweep = table.pop("sweep", None)
    if sweep is None:
        return [table], []
    good = isinstance(sweep, dict) and all(
        key.isidentifier() and isinstance(values, list) and values
        and all(isinstance(one, int | float | str) for one in values)
        for key, values in sweep.items()
    )  # fmt: skip
    args, name = table.get("args", ""), table.get("name", "")
    if not good or not sweep:
        return [], ["sweep: expected lists of values, such as sweep = { M = [1024, 4096] }"]
    if not isinstance(args, str) or not isinstance(name, str):
        return [table], []
    unused = [key for key in sweep if f"{{{key}}}" not in args]
    if unused:
        return [], [f"sweep: args names no {{{unused[0]}}}"]
    found = []
    for values in itertools.product(*sweep.values()):
        given = dict(zip(sweep, values, strict=True))
        text = args
        for key, value in given.items():
            text = text.replace(f"{{{key}}}", str(value))
        ending = "".join(f"-{key}{value}" for key, value in given.items())
        found.append({**table, "name": f"{name}{ending}", "args": text})
    return found, []


def _mistakes(table: dict[str, Any]) -> list[str]:
    kinds = {one.name: type(one.default) for one in fields(Call)} | {"name": str, "call": str}
    known = [*kinds, "sweep"]
    found = [unknown_key(key, known) for key in table if key not in kinds]
    found += [f"{key}: is missing" for key in ("name", "call") if key not in table]
    for key, kind in kinds.items():
        value = table.get(key)
        if key in table and type(value) is not kind:
            found.append(f"{key}: expected {_WORDS[kind]}, got {value!r}")
    if found:
        return found
    if not _NAME.fullmatch(table["name"]):
        found.append(f"name: expected letters, digits and . _ + -, got {table['name']!r}")
    for key in ("call", "reference"):
        if table.get(key) and not _CALL.fullmatch(table[key]):
            expected = "expected package.module:function, such as fastops.ops:gelu"
            found.append(f"{key}: {expected}, got {table[key]!r}")
    try:
        parse_arguments(table.get("args", ""))
    except ValueError as error:
        found.append(f"args: {str(error).removeprefix('--args: ')}")
    if table.get("flops", 0) < 0:
        found.append(f"flops: expected 0 or more, got {table['flops']}")
    return found


_WORDS = {str: "text", bool: "true or false", int: "a whole number"}
