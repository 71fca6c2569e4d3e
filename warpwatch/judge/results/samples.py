"""The samples behind one value: a page needs a few, so they stay in their file until then."""

from __future__ import annotations

import json
import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from warpwatch.judge.results.result_file import taken_params

from .asv_results import MAX_POINTS_PER_ROW, as_floats, combinations, is_numbers
from .strict_json import RejectedError, parse, parse_first, read_bytes

_MOSTLY_BYTES = 16_384  # hold one row of a file, which holds hundreds
_LONGEST_S = 1e7  # no benchmark takes months
_LIST = re.compile(rb"\s*:\s*(?=\[)")


def read_samples(path: Path, benchmark: str, values: tuple[str, ...]) -> tuple[float, ...]:
    """The stored samples of one value, empty where asv kept none or the file is not readable."""
    try:
        columns, row = _row(path, benchmark)
        cells = dict(zip(columns, row, strict=False))
        params = cells["params"] or []
        if taken_params(params) is None or prod(map(len, params)) > MAX_POINTS_PER_ROW:
            return ()
        samples = cells["samples"][combinations(params).index(values)]
    except (RejectedError, KeyError, IndexError, TypeError, ValueError):
        return ()
    if not isinstance(samples, list) or not is_numbers(samples, len(samples)):
        return ()
    array = as_floats(samples)
    return tuple(array[np.isfinite(array)].tolist())


def read_seconds(path: Path, benchmark: str) -> float:
    """How long one value of a benchmark took to measure, on average; 0 where nobody can tell."""
    try:
        columns, row = _row(path, benchmark)
        cells = dict(zip(columns, row, strict=False))
        took, params = cells["duration"], taken_params(cells["params"] or [])
    except (RejectedError, KeyError, IndexError, TypeError, ValueError):
        return 0.0
    if params is None or type(took) not in (int, float) or not 0 < took < _LONGEST_S:
        return 0.0
    return float(took) / max(prod(map(len, params)), 1)


def _row(path: Path, benchmark: str) -> tuple[Any, Any]:
    """The columns of a file and one of its rows: from where they stand, if that is clear, because
    a page needs a few samples and parsing a file takes as long as drawing ten pages."""
    data = read_bytes(path)
    places = [_list_after(data, name) for name in ("result_columns", benchmark)]
    if None not in places:
        columns, row = (_list_at(path, data, at) for at in places if at is not None)
        return columns, row
    document = parse(path, data)
    return document["result_columns"], document["results"][benchmark]


def _list_at(path: Path, data: bytes, at: int) -> Any:
    try:
        # A list that is cut is no JSON.
        return parse_first(path, data[at : at + _MOSTLY_BYTES])
    except RejectedError:
        return parse_first(path, data[at:])


def _list_after(data: bytes, name: str) -> int | None:
    """Where the only list called ``name`` begins; ``None`` unless there is exactly one."""
    written, found, at = json.dumps(name).encode(), [], -1
    while (at := data.find(written, at + 1)) >= 0:
        # No text can hold this: quotes within one are escaped.
        match = _LIST.match(data, at + len(written))
        if match:
            found.append(match.end())
    return found[0] if len(found) == 1 else None
