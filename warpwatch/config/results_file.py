"""A command's results as a JSON file that is written again after each step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def as_json(document: Mapping[str, Any]) -> str:
    """``document`` as every JSON reader takes it: a number that is not known is ``null``, since
    JSON has no NaN."""
    return json.dumps(_known(document), indent=1, allow_nan=False)


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _known(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return value


def write(where: str | None, document: Mapping[str, Any], *, last: bool) -> None:
    """Write ``document`` to the file that ``--json`` names, if it names one (``-`` is none).

    A reader finds the whole of an older document or of this one. What is no file, a pipe or a
    terminal, gets the ``last`` alone. ``ValueError`` where it cannot be written.
    """
    if where in (None, "-"):
        return
    path = Path(where)
    text = as_json(document) + "\n"
    try:
        if path.exists() and not path.is_file():  # nothing to replace
            if last:
                path.write_text(text, encoding="utf-8")
            return
        path = path.resolve()
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ValueError(f"--json: cannot write {path}: {error.strerror}") from error
