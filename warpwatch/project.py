"""Where the project is that Warpwatch watches: the folder of its configuration file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

FILE_VARIABLE = "WARPWATCH_CONFIG"
FILE_NAME = "warpwatch.toml"
SECTION = "warpwatch"  # of ``[tool]`` in pyproject.toml


def configuration_file() -> Path:
    """Find the configuration file.

    Returns:
        ``$WARPWATCH_CONFIG``, else the nearest ``warpwatch.toml``, or ``pyproject.toml`` with a
        section ``[tool.warpwatch]``, in the working folder or above it. Where there is none, the
        path that ``warpwatch init`` would write.
    """
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        for path in (folder / FILE_NAME, folder / "pyproject.toml"):
            if path.name == FILE_NAME and path.is_file():
                return path
            if path.is_file() and _has_section(path):
                return path
    return here / FILE_NAME


def folder() -> Path:
    """The folder of :func:`configuration_file`: ``.asv`` and ``reports`` lie in it."""
    return configuration_file().parent


def results() -> Path:
    """The folder of asv's results."""
    return folder() / ".asv" / "results"


def _has_section(path: Path) -> bool:
    try:
        return SECTION in tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
