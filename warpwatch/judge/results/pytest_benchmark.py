"""Files of pytest-benchmark, read as results: one benchmark a test, its median in seconds."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from warpwatch.judge.results.result_file import COMMIT, ResultFile, Row, shared

from .strict_json import Fields, RejectedError, is_text, text

MAX_BENCHMARKS = 50_000
ENVIRONMENT = "pytest-benchmark"
# Half of the 99 % interval of a normal sample's median, in its interquartile range over root n. It
# is taken of logarithms, as times are judged: of a few samples far apart it would else reach to 0.
_HALF_INTERVAL = 2.39
# Beyond this factor, of e to it, an interval says nothing more.
_WIDEST = 20.0


def is_pytest_benchmark(data: dict[str, Any]) -> bool:
    return isinstance(data.get("benchmarks"), list) and "machine_info" in data


def parse(path: Path, data: dict[str, Any]) -> ResultFile:
    """The file's content as a result, else ``RejectedError`` with all that is wrong."""
    problems: list[str] = []
    commit_info = _object(data, "commit_info", problems)
    machine_info = _object(data, "machine_info", problems)
    commit = commit_info.get("id")
    if not isinstance(commit, str) or COMMIT.fullmatch(commit) is None:
        problems.append(f"commit_info.id: expected a commit's hash, got {text(commit)}")
        commit = ""
    started_ms = _moment(data.get("datetime"), "datetime", problems)
    if len(data["benchmarks"]) > MAX_BENCHMARKS:
        problems.append(f"benchmarks: expected at most {MAX_BENCHMARKS:,}")
    if problems:
        raise RejectedError(path, problems)
    rows: list[Row] = []
    values: list[float] = []
    reaches: list[float] = []
    left_out: list[str] = []
    for entry in data["benchmarks"]:
        known = entry if isinstance(entry, dict) else {}
        name, stats = known.get("fullname"), known.get("stats")
        median = stats.get("median") if isinstance(stats, dict) else None
        if not is_text(name) or not isinstance(stats, dict) or not _is_number(median):
            left_out.append(f"{text(name)}: expected a fullname and a median")
            continue
        rows.append(Row(name, (), len(values), 1, ""))
        values.append(float(median))
        reaches.append(_half_interval(stats))
    medians, factors = np.array(values), np.exp(reaches)
    return ResultFile(
        path,
        commit,
        f"{ENVIRONMENT}, Python {str(machine_info.get('python_version', ''))[:20]}",
        started_ms,
        _machine(data, machine_info),
        str(machine_info.get("python_version", ""))[:20],
        {},
        started_ms,
        shared(tuple(rows)),
        medians,
        (medians / factors).astype(np.float32),
        (medians * factors).astype(np.float32),
        tuple(left_out),
    )


def _machine(data: dict[str, Any], machine_info: dict[str, Any]) -> dict[str, str]:
    """What matters for time, under asv's names. A host's name does not, nor its kernel."""
    known = Fields(data, []).texts("machine_info")
    processor = machine_info.get("cpu")
    models = [known.get("processor", "")]
    if isinstance(processor, dict):
        model = Fields({"cpu": processor}, []).texts("cpu")
        models = [model.get("brand_raw", ""), model.get("brand", ""), *models]
    found = {
        "cpu": next(filter(None, models), ""),
        "arch": known.get("machine", ""),
        "system": known.get("system", ""),
        "python_implementation": known.get("python_implementation", ""),
    }
    return {field: value for field, value in found.items() if value}


def _object(data: dict[str, Any], name: str, problems: list[str]) -> dict[str, Any]:
    value = data.get(name)
    if isinstance(value, dict):
        return value
    problems.append(f"{name}: expected an object, got {text(value)}")
    return {}


def _moment(value: Any, name: str, problems: list[str]) -> int:
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        problems.append(f"{name}: expected a date and time, got {text(value)}")
        return 0


def _half_interval(stats: dict[str, Any]) -> float:
    """The logarithm of the factor from the median to either end of its interval."""
    low, high, rounds = stats.get("q1"), stats.get("q3"), stats.get("rounds")
    if not _is_number(low) or not _is_number(high) or not _is_number(rounds):
        return math.nan
    if rounds < 2 or not 0.0 < low <= high:
        return math.nan
    return min(_HALF_INTERVAL * math.log(high / low) / math.sqrt(rounds), _WIDEST)


def _is_number(value: Any) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e30
