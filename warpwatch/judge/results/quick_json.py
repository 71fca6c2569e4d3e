"""Well-formed asv result files, decoded quickly: columns that nobody looks at are skipped.

``msgspec`` decodes such a file four times as fast as the standard library. It is never the judge of
a file: whatever it does not take, and whatever this module is not sure of, is left to the strict
reader, which gives the same result and names every mistake.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from warpwatch.judge.results.result_file import Floats, is_params

from .strict_json import MAX_CONTAINERS

_NUMBERS = ("result", "stats_ci_99_a", "stats_ci_99_b")
_SMALL = ("version", "started_at")
_HEADER = ("version", "commit_hash", "env_name", "date", "params", "python", "requirements")
_COLUMNS = re.compile(rb'"result_columns"\s*:\s*(\[[\s",a-z_0-9]{0,2000}\])')
_MOST_BYTES = 16_000_000  # a number takes up to 16 bytes of memory for one of JSON
_KEPT_BYTES = 20_000
# asv writes what JSON has no word for: before decoding, it becomes numbers that nothing measures.
_WORDS = (
    (b"-Infinity", b" -1e-323 ", -np.inf),
    (b"Infinity", b" -1.5e-323 ", np.inf),
    (b"NaN", b" -5e-324 ", np.nan),
)
_MARK = re.compile(r"-1e-323|-1\.5e-323|-5e-324")


def decode(data: bytes) -> tuple[dict[str, Any], bool] | None:
    """What ``json.loads`` gives of ``data``, or ``None`` where it must be asked.

    Cells without a use are anything, valid params are tuples. The second value says whether
    numbers may be marks, see ``restored``.
    """
    if len(data) > _MOST_BYTES:
        return None
    columns = _COLUMNS.findall(data)
    if len(columns) != 1 or data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        return None
    marked = b"NaN" in data or b"Infinity" in data
    try:
        text = data.decode("utf-8")  # also of what is skipped
        if marked:
            if _MARK.search(text):
                return None
            for word, mark, _ in _WORDS:
                data = data.replace(word, mark)
        names = json.loads(columns[0])
        document = _decoder(tuple(names)).decode(data)
        rows = {name: list(msgspec.structs.astuple(row)) for name, row in document.results.items()}
        place = names.index("params")
        if marked and _MARK.search(repr(_texts(document, rows, names))):
            return None  # a text held the word
        for row in rows.values():
            if row[place] is not None:
                row[place] = _params(bytes(row[place]))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    header = ((name, getattr(document, name)) for name in _HEADER)
    content = {name: value for name, value in header if value is not None}
    return content | {"result_columns": names, "results": rows}, marked


def restored(numbers: Floats) -> Floats:
    """The numbers, marks replaced by what they stand for."""
    for _, mark, value in _WORDS:
        numbers[numbers == float(mark)] = value
    return numbers


@lru_cache(maxsize=8)
def _decoder(columns: tuple[str, ...]) -> Any:
    """A decoder of files with these columns; ``ValueError`` where two are alike."""
    types: dict[str, Any] = dict.fromkeys(columns, msgspec.Raw)
    if len(types) != len(columns):
        raise ValueError("two columns have one name")
    types |= {name: list[float | None] | None for name in _NUMBERS if name in types}
    types |= {name: Any for name in _SMALL if name in types}
    cells: list[tuple[str, Any, Any]] = [
        (f"cell_{name}", kind, None) for name, kind in types.items()
    ]
    row = msgspec.defstruct("Row", cells, array_like=True, forbid_unknown_fields=True, gc=False)
    rows: Any = dict[str, row]  # type: ignore[valid-type]
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("results", rows)]
    fields += [(name, Any, None) for name in _HEADER]
    return msgspec.json.Decoder(msgspec.defstruct("Document", fields, kw_only=True))


def _texts(document: Any, rows: dict[str, list[Any]], names: list[str]) -> list[Any]:
    """All that is read and no number; of what many rows say alike, once."""
    found = [*(getattr(document, name) for name in _HEADER), *rows]
    for place in (names.index(name) for name in ("params", *_SMALL) if name in names):
        cells = [row[place] for row in rows.values()]
        found += {bytes(cell) for cell in cells if isinstance(cell, msgspec.Raw)}
        found += {cell for cell in cells if isinstance(cell, str)}
        found += [cell for cell in cells if isinstance(cell, list | dict)]
    return found


def _params(written: bytes) -> Any:
    return (_known_params if len(written) <= _KEPT_BYTES else _parsed_params)(written)


def _parsed_params(written: bytes) -> Any:
    value = json.loads(written)
    return tuple(map(tuple, value)) if is_params(value) else value


_known_params = lru_cache(maxsize=512)(_parsed_params)
