"""Readers meet mutated files: whatever comes, the answer is a result or the documented error.

``WARPWATCH_FUZZ=1000000`` runs as many mutants as the report's figures ask for; a test run makes
do with a few thousand, the same ones on every machine; ``WARPWATCH_FUZZ_SEED`` takes others.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reports import trees
from warpwatch.judge.model.directions import Directions, read_directions
from warpwatch.judge.results import quick_json
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.asv_results import read_benchmarks, read_machine, read_result
from warpwatch.judge.results.folders import Results
from warpwatch.judge.results.strict_json import RejectedError
from warpwatch.judge.series.changes import series_changes

MUTANTS = int(os.environ.get("WARPWATCH_FUZZ", "2000"))
SEED = int(os.environ.get("WARPWATCH_FUZZ_SEED", "20776"))
NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, -1e308, 5e-324, 10**400, float("inf"), float("nan"), "",
    "x" * 3000, "\u202e<script>", "\ud800", "1.0", [], {}, [[]], [None], {"a": []}, [[["x"]]],
    ["x"] * 50, "[1, NaN]", [1, "1"], [1e400], "a" * 40,
)  # fmt: skip
TOKENS = (b"{", b"}", b"[", b"]", b",", b'"', b"null", b"NaN", b"1e999", b"\\ud800", b"\xff", b"\0")
TOKENS += (b"-Infinity", b"-5e-324", b"-", b"1")


def mutants(document: Any, count: int, seed: int) -> Iterator[bytes]:
    """``count`` texts near ``document``: values swapped for nasty ones, bytes torn and inserted."""
    rng = random.Random(seed)
    plain = json.dumps(document).encode()
    for _ in range(count):
        if rng.random() < 0.6:
            value = json.loads(plain)
            for _ in range(rng.randint(1, 3)):
                replace_somewhere(value, rng)
            text = json.dumps(value).encode()
        else:
            text = plain
        if rng.random() < 0.5:
            data = bytearray(text)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(data) + 1)
                data[at : at + rng.randint(0, 3)] = rng.choice(TOKENS)
            text = bytes(data)
        if rng.random() < 0.1:
            text = text[: rng.randrange(len(text) + 1)]
        yield text


def replace_somewhere(value: Any, rng: random.Random) -> None:
    """Swaps one node of a JSON document, chosen by a random walk down."""
    while True:
        if isinstance(value, dict) and value:
            key: Any = rng.choice(list(value))
        elif isinstance(value, list) and value:
            key = rng.randrange(len(value))
        else:
            return
        if rng.random() < 0.35 or not isinstance(value[key], dict | list):
            value[key] = copy.deepcopy(rng.choice(NASTY))
            return
        value = value[key]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Callable[[bytes], Path]]:
    target = tmp_path / "mutant"

    def write(data: bytes) -> Path:
        # A fresh file: truncating one makes some file systems wait for the disk.
        target.unlink(missing_ok=True)
        target.write_bytes(data)
        return target

    return tmp_path, write


def asv_document(root: Path) -> Any:
    tree = trees.make_repository(root / "tree", 1)
    tree.add_benchmark("b.time_it", [["a", "b"], ["c"]])
    tree.add_benchmark("b.track_it", unit="GB/s")
    path = tree.write_result(
        0,
        {"b.time_it": [1.5, None], "b.track_it": [7.0]},
        intervals=0.01,
        cells=lambda _, values: {"samples": [[1.0, 2.0] for _ in values]},
    )
    return json.loads(path.read_text())


def test_result_files(written: tuple[Path, Callable[[bytes], Path]]) -> None:
    root, write = written
    taken = 0
    for number, data in enumerate(mutants(asv_document(root), MUTANTS, SEED)):
        try:
            result = read_result(write(data))
        except RejectedError as error:
            assert error.problems
            continue
        taken += 1
        assert sum(row.size for row in result.rows) == len(result.values) == len(result.low)
        if number % 20 == 0:  # what was taken must also be judged
            history = assemble(Results({}, {}, (("m", result),), ()), None, Directions())
            for table in history.tables:
                for row in range(len(table.series)):
                    series_changes(table, row)
    assert taken > MUTANTS // 20


def test_the_quick_reader_says_what_the_strict_one_says(
    written: tuple[Path, Callable[[bytes], Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, write = written
    document = asv_document(root)
    row = document["results"]["b.time_it"]
    row[0][0], row[5][0], row[6][1] = math.nan, -math.inf, math.inf
    taken = 0
    for data in mutants(document, MUTANTS // 2, SEED + 1):
        taken += quick_json.decode(data) is not None
        path = write(data)
        quick = outcome(path)
        with monkeypatch.context() as patch:
            patch.setattr(quick_json, "decode", lambda data: None)
            assert quick == outcome(path), data
    assert taken > MUTANTS // 40


def test_what_is_said_of_a_mistake_shows_the_file_as_it_is(
    written: tuple[Path, Callable[[bytes], Path]],
) -> None:
    """Words for what JSON has no number for are replaced before a file is decoded quickly."""
    root, write = written
    document = asv_document(root)
    document["results"]["b.time_it"][0] = [math.nan, math.inf, 1.0]
    result = read_result(write(json.dumps(document).encode()))
    assert result.problems == ("'b.time_it': expected 2 numbers, got [nan, inf, 1.0]",)


def outcome(path: Path) -> tuple[Any, ...]:
    try:
        result = read_result(path)
    except RejectedError as error:
        return error.problems
    arrays = (result.values, result.low, result.high)
    fields = (getattr(result, f.name) for f in dataclasses.fields(result))
    return (
        *(field for field in fields if not isinstance(field, np.ndarray)),
        *(array.tobytes() for array in arrays),
    )


@pytest.mark.parametrize(
    ("reader", "document"),
    [
        (
            read_benchmarks,
            {
                "version": 2,
                "b.time_it": {
                    "name": "b.time_it",
                    "params": [["'a'"]],
                    "param_names": ["p"],
                    "unit": "s",
                    "version": "1",
                    "better": "lower",
                    "flops": [1e9],
                },
            },
        ),
        (read_machine, {"machine": "rig", "ram": "64", "version": 1}),
        (
            read_result,
            {
                "machine_info": {"node": "rig", "python_version": "3.11"},
                "commit_info": {"id": "a" * 40, "dirty": False},
                "datetime": "2025-01-01T00:00:00+00:00",
                "benchmarks": [
                    {"fullname": "t.py::test", "stats": {"median": 1e-3, "iqr": 1e-5, "rounds": 9}}
                ],
            },
        ),
    ],
    ids=["benchmarks", "machine", "pytest-benchmark"],
)
def test_other_files(
    written: tuple[Path, Callable[[bytes], Path]], reader: Callable[[Path], Any], document: Any
) -> None:
    _, write = written
    taken = 0
    for data in mutants(document, MUTANTS // 4, SEED):
        try:
            reader(write(data))
            taken += 1
        except RejectedError as error:
            assert error.problems
    assert taken > 0


def test_direction_files(written: tuple[Path, Callable[[bytes], Path]]) -> None:
    _, write = written
    rng = random.Random(SEED)
    plain = b'[benchmarks]\n"*.track_x" = "higher"\n[units]\n"img/s" = "higher"\n'
    for _ in range(MUTANTS // 8):
        data = bytearray(plain)
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 4)] = rng.choice((*TOKENS, b"=", b"\n[units]\n", b"'"))
        try:
            read_directions(write(bytes(data)))
        except ValueError as error:
            assert "mutant" in str(error)
