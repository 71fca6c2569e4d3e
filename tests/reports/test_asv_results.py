"""The reader of asv's files takes what asv writes and names every mistake of what it does not."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.reports import trees
from warpwatch.judge.results.asv_results import combinations, read_benchmarks, read_result
from warpwatch.judge.results.result_file import FAILED
from warpwatch.judge.results.samples import read_samples, read_seconds
from warpwatch.judge.results.strict_json import RejectedError


@pytest.fixture
def tree(tmp_path: Path) -> trees.Tree:
    tree = trees.make_repository(tmp_path, 3)
    tree.add_benchmark("bench.time_it", [["a", "b"], ["c"]])
    tree.write_benchmarks()
    return tree


def edited(path: Path, **fields: object) -> Path:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_null_is_failed_and_nan_is_skipped(tree: trees.Tree) -> None:
    result = read_result(tree.write_result(0, {"bench.time_it": [None, math.nan]}))
    assert result.values[0] == FAILED
    assert math.isnan(result.values[1])
    assert result.commit == tree.commits[0]
    assert result.problems == ()


def test_a_whole_failed_benchmark_fails_for_every_parameter(tree: trees.Tree) -> None:
    path = tree.write_result(0, {"bench.time_it": [1.0, 2.0]}, cells=lambda *_: {"result": None})
    assert read_result(path).values.tolist() == [FAILED, FAILED]


def test_parameters_stay_text(tree: trees.Tree) -> None:
    tree.add_benchmark("bench.time_call")
    tree.benchmarks["bench.time_call"]["params"] = [["__import__('os').abort()", "'a\\'b'", "'x'"]]
    tree.write_benchmarks()
    result = read_result(tree.write_result(0, {"bench.time_call": [1.0, 2.0, 3.0]}))
    assert combinations(result.rows[0].params) == [
        ("__import__('os').abort()",),
        ("'a\\'b'",),
        ("x",),
    ]


def test_samples_are_read_on_demand(tree: trees.Tree) -> None:
    path = tree.write_result(
        0, {"bench.time_it": [1.0, 2.0]}, cells=lambda *_: {"samples": [None, [1.9, 2.0, 2.1]]}
    )
    assert read_samples(path, "bench.time_it", ("b", "c")) == (1.9, 2.0, 2.1)
    assert read_samples(path, "bench.time_it", ("a", "c")) == ()
    assert read_samples(path, "absent", ()) == ()


@pytest.mark.parametrize(
    ("said", "seconds"), [(6.0, 3.0), (None, 0.0), (-1, 0.0), ("6", 0.0), (True, 0.0), (1e300, 0.0)]
)
def test_the_time_of_a_value_is_its_share_of_the_row(
    tree: trees.Tree, said: object, seconds: float
) -> None:
    path = tree.write_result(0, {"bench.time_it": [1.0, 2.0]}, cells=lambda *_: {"duration": said})
    assert read_seconds(path, "bench.time_it") == seconds
    assert read_seconds(path, "absent") == 0.0


def test_samples_are_those_of_the_row_whatever_texts_say(tmp_path: Path) -> None:
    name = 'bench."time": ['
    tree = trees.make_repository(tmp_path, 1)
    tree.add_benchmark(name, [['"bench."time": [": [[7]]', name]])
    tree.write_benchmarks()
    path = tree.write_result(
        0,
        {name: [1.0, 2.0]},
        machine_fields={name: f"{name}: [[8]]"},
        cells=lambda *_: {"samples": [[1.5], [2.5]]},
    )
    assert read_samples(path, name, (name,)) == (2.5,)
    # A second list of that name, wherever it is: the file is read as a whole.
    document = json.loads(path.read_text())
    path.write_text(json.dumps({"other": {name: [[9.0]]}, **document}))
    assert read_samples(path, name, (name,)) == (2.5,)


def test_a_file_cut_in_half_says_so(tree: trees.Tree) -> None:
    path = tree.write_result(0, {"bench.time_it": [1.0, 2.0]})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RejectedError, match=r"cut short or not JSON"):
        read_result(path)


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_another_version_of_asv_is_refused_with_a_remedy(tree: trees.Tree, version: object) -> None:
    path = edited(tree.write_result(0, {"bench.time_it": [1.0, 2.0]}), version=version)
    with pytest.raises(RejectedError, match="expected 2: "):
        read_result(path)


def test_every_mistake_of_a_file_is_named_at_once(tree: trees.Tree) -> None:
    path = edited(
        tree.write_result(0, {"bench.time_it": [1.0, 2.0]}),
        commit_hash="../../etc/passwd",
        date="yesterday",
        result_columns=["<script>"],
    )
    with pytest.raises(RejectedError) as caught:
        read_result(path)
    assert len(caught.value.problems) == 4
    for field in ("commit_hash", "date", "result_columns"):
        assert field in str(caught.value)


def test_a_wrong_row_is_left_out_and_the_others_stay(tree: trees.Tree) -> None:
    tree.add_benchmark("bench.time_other")
    path = tree.write_result(0, {"bench.time_it": [1.0, 2.0], "bench.time_other": [3.0]})
    data = json.loads(path.read_text())
    data["results"]["bench.time_it"][0] = ["1.0", 2.0]
    path.write_text(json.dumps(data))
    result = read_result(path)
    assert [row.benchmark for row in result.rows] == ["bench.time_other"]
    assert "bench.time_it" in result.problems[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "nested too deeply|cut short"),
        (b"{}," * 1_100_000, "more than 1,000,000 lists"),
        (b'{"version": ' + b"9" * 5000 + b"}", "number that cannot be read"),
        (b"\xff\xfe\xfa{", "not UTF-8|not JSON"),
        (b"", "not JSON"),
        (b"[]", "expected an object"),
    ],
    ids=["deep", "wide", "digits", "bytes", "empty", "list"],
)
def test_hostile_json_is_one_clear_error(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RejectedError, match=reason):
        read_result(path)


def test_a_million_parameters_are_refused_before_they_are_multiplied(tree: trees.Tree) -> None:
    path = tree.write_result(0, {"bench.time_it": [1.0, 2.0]})
    data = json.loads(path.read_text())
    data["results"]["bench.time_it"][1] = [["x"] * 1000] * 4
    path.write_text(json.dumps(data))
    assert "1,000,000,000,000 combinations" in read_result(path).problems[0]


def test_enormous_numbers_count_as_failed(tree: trees.Tree) -> None:
    path = tree.write_result(0, {"bench.time_it": [float("inf"), 10**400]})
    assert read_result(path).values.tolist() == [FAILED, FAILED]


def test_attributes_of_benchmarks_travel(tree: trees.Tree) -> None:
    tree.add_benchmark("bench.track_speed", unit="TFLOP/s", better="higher", exact=True)
    tree.write_benchmarks()
    known = read_benchmarks(tree.results / "benchmarks.json")
    assert known["bench.track_speed"].attributes["better"] == "higher"
    assert known["bench.time_it"].unit == "seconds"


def test_a_named_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(RejectedError, match="not a regular file"):
        read_result(tmp_path / "x.json")
