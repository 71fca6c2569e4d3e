"""What an asv results folder holds: machines, benchmarks and result files, strictly read.

Nothing in a file is executed or evaluated: parameters, which asv stores as Python reprs, stay
text. A file that breaks the schema is rejected with every mistake in it; a wrong row is left out
and named, and the other rows of its file stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from warpwatch.judge.model.benchmark import Benchmark, unquoted
from warpwatch.judge.results.result_file import (
    COMMIT,
    FAILED,
    Cells,
    Floats,
    Layout,
    Narrow,
    ResultFile,
    is_params,
    laid_out,
    taken_params,
)

from . import pytest_benchmark, quick_json
from .strict_json import MAX_TEXT, Fields, RejectedError, is_text, load, parse, read_bytes, text

RESULT_VERSION = 2
MAX_POINTS_PER_ROW = 100_000
MAX_POINTS_PER_FILE = 1_000_000
MAX_ROWS = 50_000

_COLUMN = re.compile(r"[a-z_0-9]{1,40}")
_NUMBERS = frozenset((int, float, type(None)))


def read_result(path: Path) -> ResultFile:
    """The result file at ``path``, of asv or pytest-benchmark, else ``RejectedError`` with all that
    is wrong."""
    content = read_bytes(path)
    quick = quick_json.decode(content)
    if quick is not None:
        document, marked = quick
        try:
            result = _result(path, document, True, marked)
            if not marked or not result.problems:
                return result
        except RejectedError:
            if not marked:
                raise
        # What is said of a mistake must not show a mark in the place of a NaN.
    return _result(path, _expect_object(path, parse(path, content)), False, False)


def _result(path: Path, data: dict[str, Any], quick: bool, marked: bool) -> ResultFile:
    """``quick`` says that numbers are known to be some, ``marked`` that they may hold marks."""
    if pytest_benchmark.is_pytest_benchmark(data):
        return pytest_benchmark.parse(path, data)
    version = data.get("version")
    if version != RESULT_VERSION:
        remedy = "run `asv update`" if version == 1 else "it was not written by asv 0.4 to 0.6"
        raise RejectedError(
            path, [f"is asv result version {text(version)}, expected {RESULT_VERSION}: {remedy}"]
        )
    problems: list[str] = []
    fields = Fields(data, problems)
    fields.need("commit_hash", "env_name", "params", "result_columns", "results")
    commit = fields.take(
        "commit_hash",
        lambda v: isinstance(v, str) and COMMIT.fullmatch(v) is not None,
        "40 or 64 hexadecimal digits",
        "",
    )
    environment = fields.string("env_name")
    date_ms = fields.take("date", _is_time, "milliseconds since 1970", 0)
    columns = fields.take(
        "result_columns",
        lambda v: (
            isinstance(v, list)
            and len(v) <= 32
            and all(isinstance(c, str) and _COLUMN.fullmatch(c) for c in v)
        ),
        "at most 32 column names",
        [],
    )
    if "result" not in columns or "params" not in columns:
        problems.append("result_columns: expected `result` and `params` among the columns")
    results = fields.take(
        "results",
        lambda v: isinstance(v, dict) and len(v) <= MAX_ROWS,
        f"an object of at most {MAX_ROWS:,} benchmarks",
        {},
    )
    machine = fields.texts("params")
    python = fields.string("python")
    requirements = fields.texts("requirements")
    if problems:
        raise RejectedError(path, problems)
    cells = _Cells(columns, problems, quick, marked)
    for name, row in results.items():
        cells.add(name, row)
        if len(cells.values) > MAX_POINTS_PER_FILE:
            raise RejectedError(path, [f"holds more than {MAX_POINTS_PER_FILE:,} values"])
    return ResultFile(
        path,
        commit,
        environment,
        date_ms,
        machine,
        python,
        requirements,
        cells.started_ms,
        cells.layout(),
        *cells.arrays(),
        tuple(problems),
    )


def read_benchmarks(path: Path) -> dict[str, Benchmark]:
    """``benchmarks.json``: what every benchmark is, by name; ``RejectedError`` otherwise."""
    data = _object(path)
    problems: list[str] = []
    benchmarks: dict[str, Benchmark] = {}
    for name, entry in data.items():
        if name == "version":
            continue
        if not is_text(name) or not isinstance(entry, dict):
            problems.append(f"{text(name)}: expected an object, got {text(entry)}")
            continue
        fields = Fields(entry, problems, f"{text(name)} ")
        params = fields.take("params", is_params, "lists of texts", [])
        names = fields.take(
            "param_names", lambda v: isinstance(v, list) and all(map(is_text, v)), "texts", []
        )
        known = {"name", "params", "param_names", "unit", "version", "code"}
        benchmarks[name] = Benchmark(
            name,
            tuple(tuple(values) for values in params),
            tuple(names),
            fields.string("unit"),
            fields.string("version"),
            {k: v for k, v in entry.items() if k not in known and isinstance(k, str)},
        )
    if problems:
        raise RejectedError(path, problems)
    return benchmarks


def read_machine(path: Path) -> dict[str, str]:
    """``machine.json``: the machine's fields as texts."""
    return Fields({"machine": _object(path)}, []).texts("machine")


def combinations(params: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Every combination of the parameters, in asv's order, each value readable."""
    return list(product(*(tuple(unquoted(v) for v in values) for values in params)))


def _object(path: Path) -> dict[str, Any]:
    return _expect_object(path, load(path))


def _expect_object(path: Path, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise RejectedError(path, [f"expected an object, got {text(data)}"])
    return data


class _Cells:
    """Collects the rows of one file."""

    def __init__(self, columns: list[str], problems: list[str], quick: bool, marked: bool):
        self.values: list[float | None] = []
        self.started_ms = 0
        self._rows: list[Cells] = []
        self._low: list[float | None] = []
        self._high: list[float | None] = []
        self._problems = problems
        self._is_numbers = _is_length if quick else is_numbers
        self._marked = marked
        self._width = len(columns)
        wanted = ("result", "params", "version", "started_at", "stats_ci_99_a", "stats_ci_99_b")
        # asv drops trailing nulls.
        self._nulls = [[None] * (self._width + 1 - given) for given in range(self._width + 1)]
        self._taken = itemgetter(
            *(columns.index(c) if c in columns else self._width for c in wanted)
        )

    def add(self, name: Any, cells: Any) -> None:
        if not is_text(name) or not isinstance(cells, list) or len(cells) > self._width:
            self._problems.append(f"{text(name)}: expected a list of at most {self._width} columns")
            return
        padded = cells + self._nulls[len(cells)]
        stored, params, version, started, low, high = self._taken(padded)
        params = taken_params(params or ())
        if params is None:
            self._problems.append(f"{text(name)}: params: expected lists of texts")
            return
        size = prod(map(len, params))
        if size > MAX_POINTS_PER_ROW:
            self._problems.append(
                f"{text(name)}: {size:,} combinations of parameters, more than the limit of "
                f"{MAX_POINTS_PER_ROW:,}"
            )
            return
        if stored is None:
            stored = [None] * size
        if not self._is_numbers(stored, size):
            self._problems.append(f"{text(name)}: expected {size} numbers, got {text(stored)}")
            return
        if not self._is_numbers(low, size) or not self._is_numbers(high, size):
            low, high = [None] * size, [None] * size
        if _is_time(started):
            self.started_ms = max(self.started_ms, started)
        named = version[:MAX_TEXT] if isinstance(version, str) else ""
        self._rows.append((name, params, size, named))
        self.values += stored
        self._low += low
        self._high += high

    def layout(self) -> Layout:
        return laid_out(tuple(self._rows))

    def arrays(self) -> tuple[Floats, Narrow, Narrow]:
        values = self._array(self.values)
        # An infinity is no measurement, and ABSENT must not come out of a file.
        values[np.isinf(values)] = FAILED
        if None in self.values:
            values[[value is None for value in self.values]] = FAILED
        with np.errstate(over="ignore"):
            low, high = self._array(self._low), self._array(self._high)
            return values, low.astype(np.float32), high.astype(np.float32)

    def _array(self, stored: list[float | None]) -> Floats:
        numbers = as_floats(stored)
        return quick_json.restored(numbers) if self._marked else numbers


def is_numbers(stored: Any, size: int) -> TypeGuard[list[float | None]]:
    return (
        isinstance(stored, list) and len(stored) == size and _NUMBERS.issuperset(map(type, stored))
    )


def _is_length(stored: Any, size: int) -> TypeGuard[list[float | None]]:
    return stored is not None and len(stored) == size


def as_floats(stored: list[Any]) -> Floats:
    """Numbers as an array: nulls become NaN, integers beyond 1e308 infinite."""
    try:
        return np.array(stored, dtype=np.float64)
    except OverflowError:
        return np.array(
            [
                v if isinstance(v, float) or v is None or abs(v) < 2**1000 else np.inf
                for v in stored
            ],
            dtype=np.float64,
        )


def _is_time(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
