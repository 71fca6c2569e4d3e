"""Where the project is that Warpwatch watches: the folder of its configuration file."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

FILE_VARIABLE = "WARPWATCH_CONFIG"
FILE_NAME = "warpwatch.toml"
SECTION = "warpwatch"  # of ``[tool]`` in pyproject.toml
ASV_FILE = "asv.conf.json"
ASV_PLUGIN = ".warpwatch.asv.environment"
# asv allows comments in its JSON. A text is matched first, so that none begins inside of it.
_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


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


def asv_configuration() -> Path:
    """Find the file that asv is configured by, without asv.

    Returns:
        The project's own ``asv.conf.json`` where it names Warpwatch's plugin; else the one below
        ``.asv``, which ``warpwatch history`` writes and asv has to be told of.

    Example:
        >>> asv_configuration().name
        'asv.conf.json'
    """
    own = folder() / ASV_FILE
    try:
        texts = _TEXT_OR_COMMENT.findall(own.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        texts = []
    return own if f'"{ASV_PLUGIN}"' in texts else folder() / ".asv" / ASV_FILE


def _has_section(path: Path) -> bool:
    try:
        return SECTION in tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
