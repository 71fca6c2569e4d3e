"""The configurations that autotuned kernels chose on a card: kept in a file, read where none is.

A tuner times its configurations on a GPU and keeps the fastest. Where launches are only recorded,
that choice is read from ``warpwatch.lock.json`` next to the configuration file, so that the code
that is compiled is the code that runs. The file belongs into git: it changes when somebody says so.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from warpwatch import project

FILE_NAME = "warpwatch.lock.json"
SCHEMA_VERSION = 1
_LARGEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, order=True)
class Choice:
    """One configuration that a tuner chose.

    Attributes:
        target: The architecture of the card, as targets are called.
        kernel: The name of the kernel.
        key: What the tuner tells its choices apart by.
        configuration: The configuration, as Triton writes it.
    """

    target: str
    kernel: str
    key: str
    configuration: str


def place() -> Path:
    """The lock file of the project."""
    return project.folder() / FILE_NAME


def read(path: Path) -> tuple[Choice, ...]:
    """Read a lock file.

    Args:
        path: The file; one that does not exist holds nothing.

    Returns:
        Its choices.

    Raises:
        ValueError: It is not what :func:`write` writes; the message names the remedy.
    """
    if not path.is_file():
        return ()
    remedy = "remove it, and write it again with `warpwatch run NAME --lock` on a GPU"
    if path.stat().st_size > _LARGEST_BYTES:
        raise ValueError(f"{path}: is larger than {_LARGEST_BYTES:,} bytes: {remedy}")
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA_VERSION:
            raise ValueError(f"expected schema {SCHEMA_VERSION}, got {content['schema']!r}")
        found = tuple(Choice(**one) for one in content["choices"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: is no lock file ({error}): {remedy}") from error
    if not all(isinstance(text, str) for one in found for text in asdict(one).values()):
        raise ValueError(f"{path}: every part of a choice is a text: {remedy}")
    return found


def write(path: Path, found: Iterable[Choice]) -> int:
    """Add choices to a lock file; a newer one of the same kernel and key takes the old one's place.

    Args:
        path: The file, made where it is missing.
        found: The choices.

    Returns:
        How many of them the file did not hold before.
    """
    before = read(path)
    kept = {(one.target, one.kernel, one.key): one for one in before}
    kept |= {(one.target, one.kernel, one.key): one for one in found}
    if set(kept.values()) == set(before):
        return 0
    content = {"schema": SCHEMA_VERSION, "choices": [asdict(kept[key]) for key in sorted(kept)]}
    unfinished = path.with_suffix(f".{os.getpid()}")  # whoever is ended here leaves the old file
    unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return len(set(kept.values()) - set(before))


def locked(target: str, kernel: str, key: str) -> str:
    """Look up what was chosen on a card.

    Args:
        target: The target that is compiled for.
        kernel: The name of the kernel.
        key: As :func:`key_of` makes it.

    Returns:
        The configuration as Triton writes it; empty where no choice is kept.
    """
    path = place()
    state = path.stat().st_mtime_ns if path.is_file() else 0
    return _table(path, state).get((target, kernel, key), "")


@cache
def _table(path: Path, changed: int) -> Mapping[tuple[str, str, str], str]:
    return {(one.target, one.kernel, one.key): one.configuration for one in read(path)}


def key_of(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What Triton tells the choices of one tuner apart by.

    Args:
        tuner: An ``Autotuner``.
        args: The positional arguments of the launch.
        kwargs: Its keyword arguments.

    Returns:
        The values of the tuner's key and the dtypes of its tensors, as text.
    """
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    named = {name: value for name, value in given.items() if name in tuner.arg_names}
    key = [named[name] for name in tuner.keys if name in named]
    key += [str(one.dtype) for one in named.values() if hasattr(one, "dtype")]
    return str(tuple(key))


def made_here(target: str) -> list[Choice]:
    """Collect what the tuners of this process chose.

    Args:
        target: The target that this process's card is.

    Returns:
        Every choice between several configurations, whatever module made the tuner.
    """
    module: Any = sys.modules.get("triton.runtime.autotuner")
    if module is None:
        return []
    found = set()
    for one in gc.get_objects():
        if not issubclass(type(one), module.Autotuner) or len(one.configs) < 2:
            continue
        for key, config in one.cache.items():
            found.add(Choice(target, one.base_fn.__name__, str(key), str(config)))
    return sorted(found)
