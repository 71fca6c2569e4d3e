"""One commit's results on one machine, as every reader of result files hands them on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.results.strict_json import is_text

# asv leaves a commit that was never measured out, so this value cannot be confused with a result.
ABSENT, FAILED, SKIPPED = -np.inf, np.inf, np.nan
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

Floats = NDArray[np.float64]
Narrow = NDArray[np.float32]
Params = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Row:
    """One benchmark in one result file; its values start at ``offset`` in the file's arrays."""

    benchmark: str
    params: Params
    offset: int
    size: int
    version: str


# Files of one history mostly share their layout: equal ones are one object, also when pickled.
Layout = tuple[Row, ...]
Cells = tuple[str, Params, int, str]  # benchmark, parameters, how many values, version
_MOST_SEEN, _SMALL = 300, 100  # what is remembered stays small, whatever the files hold
_seen: set[Params] = set()
_layouts: dict[Layout, Layout] = {}
_laid_out: dict[tuple[Cells, ...], Layout] = {}


def shared(layout: Layout) -> Layout:
    """The one object for all layouts equal to this one."""
    return _layouts.setdefault(layout, layout)


def laid_out(cells: tuple[Cells, ...]) -> Layout:
    """The one layout of these rows, one after the other. Most files need no row made for them."""
    found = _laid_out.get(cells)
    if found is None:
        offsets = accumulate((size for _, _, size, _ in cells), initial=0)
        rows = (
            Row(name, params, offset, size, version)
            for (name, params, size, version), offset in zip(cells, offsets, strict=False)
        )
        found = _laid_out[cells] = shared(tuple(rows))
    return found


def taken_params(params: Any) -> Params | None:
    """Parameters as they are kept, ``None`` where they are wrong; files share theirs."""
    if isinstance(params, tuple):  # checked already
        return params
    if not isinstance(params, list) or not all(type(values) is list for values in params):
        return None
    taken = tuple(map(tuple, params))
    try:
        if taken in _seen:
            return taken
    except TypeError:  # a text is no list
        return None
    if not is_params(params):
        return None
    if len(_seen) < _MOST_SEEN and sum(map(len, taken)) <= _SMALL:
        _seen.add(taken)
    return taken


@dataclass(frozen=True)
class ResultFile:
    """One commit measured on one machine in one environment.

    A value is finite where measured, ``FAILED`` or ``SKIPPED`` elsewhere. ``low`` and ``high``
    bound the 99 % confidence interval of the median, NaN where asv stored none. The arrays hold
    the rows one after the other: thousands of small arrays a file would cost more than parsing.
    """

    path: Path
    commit: str
    environment: str
    date_ms: int
    machine: dict[str, str]
    python: str
    requirements: dict[str, str]
    started_ms: int
    rows: Layout
    values: Floats
    low: Narrow
    high: Narrow
    problems: tuple[str, ...]


def is_params(value: Any) -> TypeGuard[list[list[str]]]:
    """Whether ``value`` is what asv stores of parameters: at most 32 lists of texts."""
    return (
        isinstance(value, list)
        and len(value) <= 32
        and all(isinstance(values, list) and all(map(is_text, values)) for values in value)
    )
