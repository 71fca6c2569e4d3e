"""Tuned configurations that fall off a cliff, and mistakes in their tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warpwatch import __main__ as cli
from warpwatch.config import isolation, tuned
from warpwatch.instruments.compiled.diff import cliffs
from warpwatch.instruments.compiled.measure.jobs import Job, Result

HERE = "tests.compiled.foreign_kernels"
TABLE = {
    "call": f"{HERE}:staged",
    "args": "fp16[64,256]",
    "parameter": "config",
    "configurations": {
        "small": {"BLOCK_M": 16, "BLOCK_K": 32, "num_warps": 1, "num_stages": 2},
        "deep": {"BLOCK_M": 64, "BLOCK_K": 256, "num_warps": 4, "num_stages": 3},
    },
}
# Both in configuration, as other projects keep them: the Triton they were tuned under among them.
BARE = {"triton_version": "3.4.0", "1": {"BLOCK_M": 16}, "64": {"BLOCK_M": 64}}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], str]:
    def write(content: Any) -> str:
        path = tmp_path / "tuned.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def test_what_does_not_fit_the_other_target_fell(
    written: Callable[[Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["lint", written(TABLE), "--target", "gfx950", "--target", "gfx942"]
    assert cli.main(command) == 1
    said = capsys.readouterr().out
    assert "gfx950, triton" in said and "-> gfx942, triton" in said
    assert "  deep: BLOCK_M=64, BLOCK_K=256, num_warps=4, num_stages=3" in said
    assert "bytes of shared memory a block, mi300x has 65536" in said
    assert "small:" not in said
    assert said.splitlines()[-1] == "1 of 2 configurations fell off a cliff"


def test_every_mistake_of_a_table_is_said_at_once(
    written: Callable[[Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        {
            "call": "nothing",
            "args": "zz99[4]",
            "kernel": "k",
            "configurations": {"a": {"BLOCK": [1]}, "b": 3, "c": {"num warps": 4}},
        }
    )
    assert cli.main(["lint", path, "--target", "sm_90", "--triton", "3.4.0", "next"]) == 2
    said = capsys.readouterr().err
    for expected in (
        "kernel: unknown, expected one of call args parameter configurations",
        "configuration a: BLOCK: expected a number or a text, got [1]",
        'configuration b: expected names with values such as {"BLOCK_M": 64}, got 3',
        "configuration c: expected the name of an argument, got 'num warps'",
        "call: expected package.module:function, got 'nothing'",
        "args: 'zz99[4]': unknown dtype",
        "--triton: triton 3.4.0: expected 3.5 or later",
        "--triton: expected a version such as 3.9.0, got 'next'",
    ):
        assert f"{path}: {expected}" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "configurations: expected at least one"),
        ([1], "configuration 0: expected names with values"),
        (3, "configurations: expected a table such as"),
        (BARE, "call: is missing"),
        (TABLE, "expected two targets, such as --target sm_90 --target sm_100"),
    ],
)
def test_a_table_that_says_too_little_is_refused(
    written: Callable[[Any], str],
    content: Any,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["lint", written(content), "--target", "sm_90"]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lint", str(tmp_path / "none.json"), "--target", "sm_90"]) == 2
    assert "none.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "half.json").write_text("{")
    assert cli.main(["lint", str(tmp_path / "half.json"), "--target", "sm_90"]) == 2
    assert "half.json: is no JSON" in capsys.readouterr().err


def test_a_table_of_other_projects_is_read(written: Callable[[Any], str]) -> None:
    table, mistakes = tuned.read(written(BARE), {})
    assert mistakes == [] and list(table.configurations) == ["1", "64"]
    whole = table.with_call("ops:run", "bf16[4,4]", "config")
    assert whole.mistakes() == []
    assert whole.arguments("64") == "bf16[4,4] 'config={'\"'\"'BLOCK_M'\"'\"': 64}'"
    assert table.with_call("ops:run", "", "").arguments("1") == "BLOCK_M=16"


def test_a_python_table_is_read_in_a_process_of_its_own() -> None:
    environment = isolation.subprocess_environment()
    table, mistakes = tuned.read(f"{HERE}:CONFIGURATIONS", environment)
    assert mistakes == []
    (first, *_) = table.configurations.values()
    assert first == {
        "BLOCK_M": 16,
        "BLOCK_K": 32,
        "num_warps": 1,
        "num_ctas": 1,
        "num_stages": 2,
    }
    with pytest.raises(ValueError, match="has no attribute 'NO_TABLE'"):
        tuned.read(f"{HERE}:NO_TABLE", environment)


def result(name: str = "a", status: str = "ok", detail: str = "", **values: float) -> Result:
    usual = {
        "spilled_bytes": 0.0,
        "tensor_core_level": 2.0,
        "async_copy_level": 1.0,
        "bound_us": 10.0,
    }
    return Result(Job(name, "sm_90"), status, detail, usual | values)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (result(), result(status="compile failed", detail="does not fit"), "does not fit"),
        (result(), result(spilled_bytes=64.0), "registers spill: 0 -> 64 bytes a thread"),
        (result(), result(tensor_core_level=1.0), "lost matrix instructions: mma.sync or MFMA"),
        (result(), result(async_copy_level=0.0), "lost pipelining: plain loads, where others"),
        (result(), result(bound_us=25.0), "bound 2.5 times that of the best of the table"),
    ],
)
def test_each_kind_of_cliff_is_named(old: Result, new: Result, reason: str) -> None:
    (found,), unknown = cliffs.fallen(
        "sm_90", {"tuned": old, "other": result()}, {"tuned": new, "other": result()}
    )
    assert found.name == "tuned" and unknown == []
    assert any(reason in one for one in found.reasons)


def test_a_target_with_other_words_for_the_same_is_no_cliff() -> None:
    """MFMA is all that AMD has, and its pipelines have no asynchronous copies."""
    names = ("one", "two")
    before = {name: result() for name in names}
    after = {name: result(tensor_core_level=1.0, async_copy_level=0.0) for name in names}
    assert cliffs.fallen("gfx942", before, after) == ([], [])
    spilled = {name: result(spilled_bytes=64.0) for name in names}
    assert cliffs.fallen("sm_90", spilled, spilled) == ([], [])


def test_what_failed_before_is_no_news() -> None:
    before = {"a": result(status="compile failed", detail="too large"), "b": result()}
    after = {"a": result(), "b": result(status="not measured", detail="timeout")}
    found, unknown = cliffs.fallen("sm_90", before, after)
    assert found == []
    assert unknown == ["a: already before: too large", "b: not measured: timeout"]


def timed(us: float, **values: float) -> Result:
    found = result(**values)
    return Result(found.job, "ok", "", found.values, {"predicted": [{"us": us}], "launches": []})


def test_a_loss_that_costs_nothing_is_no_cliff_where_times_are_predicted() -> None:
    before = {"small": result(), "large": result()}
    small = timed(11.0, tensor_core_level=1.0)
    assert cliffs.fallen("sm_90", before, {"small": small, "large": timed(10.0)}) == ([], [])
    (found,), _ = cliffs.fallen("sm_90", before, {"small": small, "large": timed(8.0)})
    assert found.name == "small"
    assert found.reasons == (
        "lost matrix instructions: mma.sync or MFMA, where others of the table have wgmma",
        "predicted time 1.4 times that of the best of the table, before 1.0 times",
    )


def test_predicted_times_take_the_place_of_bounds_where_all_have_them() -> None:
    before = {"small": result(), "large": result()}
    after = {"small": timed(21.0), "large": timed(10.0)}
    (found,), _ = cliffs.fallen("sm_90", before, after)
    assert found.reasons == (
        "predicted time 2.1 times that of the best of the table, before 1.0 times",
    )
    after["large"] = result(bound_us=10.0)  # more code than can be followed
    assert cliffs.fallen("sm_90", before, after) == ([], [])
