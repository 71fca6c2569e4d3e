"""Comparing two commits by what is kept of them, and only then by compiling."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

PAIRS = 3


@pytest.fixture
def results(project: Any, tmp_path: Path) -> Path:
    """The project's results, to be changed at will."""
    shutil.copytree(project.results, tmp_path / "results")
    return tmp_path / "results"


def file_of(results: Path, commit: str) -> Path:
    (path,) = (results / "evidence").glob(f"{commit[:8]}-*.evidence.xz")
    return path


def test_kept_evidence_is_compared_where_no_compiler_is(project: Any) -> None:
    old, new = project.commits
    assert project.benchmarks("run", "scale-5000", compilers=False).returncode != 0
    done = project.benchmarks("inspect", "--diff", old[:8], new, compilers=False)
    assert done.returncode == 1, done.stderr
    head, *rest = done.stdout.splitlines()
    assert head == f"{old[:8]} -> {new[:8]}: 2 regressed, 1 same"
    hurt = [line.split() for line in rest if line.startswith("regressed")]
    assert [one[1:4] for one in hurt] == [
        ["sm_90", "scale-5000", "predicted_us"],
        ["gfx942", "scale-5000", "launches"],
    ]
    assert "launches scale_kernel -> scale_kernel, scale_kernel" in done.stdout
    assert done.stderr.splitlines() == [
        f"{one[:8]}: {PAIRS} of {PAIRS} from kept evidence, nothing to compile"
        for one in (old, new)
    ]


def test_a_commit_that_does_not_touch_the_package_has_the_evidence_of_the_one_before(
    project: Any,
) -> None:
    old, new = project.commits
    done = project.benchmarks("inspect", "--diff", old, "HEAD", compilers=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0].endswith(": 2 regressed, 1 same")
    assert new[:8] not in done.stdout
    assert project.benchmarks("inspect", "--diff", new, "HEAD", compilers=False).returncode == 0


def test_a_workload_and_a_target_are_picked_and_json_has_a_schema(project: Any) -> None:
    old, new = project.commits
    arguments = ("inspect", "--diff", old, new, "scale-5000", "--target", "sm_90")
    done = project.benchmarks(*arguments, "--code", "--json", "-", compilers=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1
    assert found["sides"] == [{"label": old[:8], "kept": 1}, {"label": new[:8], "kept": 1}]
    (compared,) = found["compared"]
    assert (compared["name"], compared["target"], compared["verdict"]) == (
        "scale-5000",
        "sm_90",
        "regressed",
    )
    assert compared["word"] == "HURT", "what programs have read so far"
    assert [one["metric"] for one in compared["verdicts"]] == ["predicted_us"]
    assert {"metric": "launches", "old": 1, "new": 2, "better": False} in compared["evidence"]
    (code,) = found["code"]  # the launch that came, line by line
    assert code["kernel"] == "scale_kernel"
    assert "+    EXIT" in code["diff"]


def test_only_what_is_not_kept_is_compiled_and_said(project: Any) -> None:
    old, new = project.commits
    # The last is outside the fixed set.
    arguments = ("--target", "sm_90", "--diff", old, new, "gram-64x256", "scale-9000")
    done = project.benchmarks("inspect", *arguments)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines() == [
        f"{one[:8]}: 1 of 2 from kept evidence, compiling the rest" for one in (old, new)
    ]
    assert done.stdout.startswith(f"{old[:8]} -> {new[:8]}: 1 regressed, 1 same\n")


def test_what_can_neither_be_read_nor_compiled_is_one_line(project: Any, results: Path) -> None:
    old, new = project.commits
    file_of(results, old).unlink()
    arguments = ("--results", results, "--target", "sm_90", "--diff", old, new)
    done = project.benchmarks("inspect", *arguments, "scale-5000", compilers=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "no evidence is kept of scale-5000 on sm_90, and Triton cannot be imported" in line


def test_evidence_of_another_method_is_not_compared(project: Any, results: Path) -> None:
    old, new = project.commits
    path = file_of(results, old)
    file = json.loads(lzma.decompress(path.read_bytes()))
    path.write_bytes(lzma.compress(json.dumps(file | {"method": "compiled-old"}).encode()))
    arguments = ("inspect", "--results", results, "--diff", old, new, "scale-5000")
    refused = project.benchmarks(*arguments, "--target", "sm_90", compilers=False)
    assert refused.returncode == 2
    assert "no evidence is kept of scale-5000 on sm_90" in refused.stderr


def test_the_working_tree_is_measured_edits_included(project: Any, tmp_path: Path) -> None:
    file = project.folder / "own" / "__init__.py"
    committed = file.read_text()
    place = tmp_path / "run.json"
    pair = ("scale-5000", "--target", "sm_90")
    try:
        file.write_text(committed.replace("x.numel(), BLOCK=1024)\n", "x.numel(), BLOCK=512)\n"))
        done = project.benchmarks("inspect", "--diff", "HEAD", ".", *pair, "--code")
        ran = project.benchmarks("run", *pair, "--json", place)
    finally:
        file.write_text(committed)
    assert done.returncode in (0, 1), done.stderr
    assert "working tree: 0 of 1 from kept evidence" in done.stderr
    assert "scale_kernel: BLOCK 1024 -> 512" in done.stdout
    assert "\n+++ working tree\n" in done.stdout

    assert ran.returncode == 0, ran.stderr
    name, head, row, *rest = ran.stdout.splitlines()
    assert name == "scale-5000"
    assert head.split()[:4] == ["target", "kernel", "grid", "warps"]
    assert row.split()[:3] == ["sm_90", "scale_kernel", "5x1x1"]
    assert any("this GPU" in line or "no GPU here" in line for line in rest)
    document = json.loads(place.read_text())
    assert (document["schema_version"], document["command"]) == (1, "run")
    (result,) = document["results"]
    assert (result["name"], result["target"], result["status"]) == ("scale-5000", "sm_90", "ok")
    assert [one["constants"] for one in result["evidence"]["launches"]] == 2 * [{"BLOCK": 512}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--diff", "nowhere", "HEAD"), "'nowhere' is no commit of"),
        (("--diff", "HEAD", "HEAD", "scal"), "unknown workload 'scal': did you mean"),
        (("--diff", "HEAD", "HEAD", "scale-5000", "--backward"), "--backward are for callables"),
        (("scale-5000", "--target", "sm_70"), "unknown target 'sm_70'"),
        (("scale-5000", "HEAD~1", "HEAD"), "and two commits are --diff OLD NEW"),
        ((), "expected package.module:callable or the name of a workload"),
    ],
)
def test_mistakes_are_one_line(project: Any, arguments: tuple[str, ...], message: str) -> None:
    done = project.benchmarks("inspect", *arguments, compilers=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scale-500",), "unknown workload 'scale-500': did you mean scale-5000?"),
        (("scale-5000", "--target", "sm_7"), "unknown target 'sm_7'"),
    ],
)
def test_a_mistake_of_run_is_one_line(
    project: Any, arguments: tuple[str, ...], message: str
) -> None:
    done = project.benchmarks("run", *arguments, compilers=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line


# What is kept ------------------------------------------------------------------------------------


def kept(project: Any, results: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = project.benchmarks(
        "evidence", "--results", results, *arguments, "--json", "-", compilers=False
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_nothing_that_a_result_refers_to_is_pruned(project: Any, results: Path) -> None:
    code, found, _ = kept(project, results, "--prune")
    assert (code, found["evidence_files"], found["unwanted_files"]) == (0, 2, 0)
    assert found["listings"] == PAIRS


def test_a_commit_without_results_and_its_code_are_pruned(project: Any, results: Path) -> None:
    old, new = project.commits
    (path,) = (results / "here").glob(f"{old[:8]}-*.json")
    path.unlink()
    stray = results / "evidence" / "code" / "ab" / f"{'ab' * 32}.xz"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x" * 100)
    expected = file_of(results, old).stat().st_size + 100
    code, found, _ = kept(project, results)
    assert (code, found["unwanted_files"], found["bytes"]["unwanted"]) == (0, 2, expected)
    assert stray.exists()
    said = project.benchmarks("evidence", "--results", results, "--prune", compilers=False)
    assert f"2 files nothing refers to, {expected:,} bytes: removed" in said.stdout
    assert not stray.exists()
    assert kept(project, results)[1]["unwanted_files"] == 0
    assert file_of(results, new).exists()


def test_only_the_newest_are_kept(project: Any, results: Path) -> None:
    code, _, _ = kept(project, results, "--keep", "1", "--prune")
    assert code == 0
    assert file_of(results, project.commits[1])
    assert not list((results / "evidence").glob(f"{project.commits[0][:8]}*"))
    code, _, said = kept(project, results, "--keep", "0")
    assert (code, said) == (2, "error: --keep: expected 1 or more, got 0\n")


def test_a_listing_that_is_gone_is_named(project: Any, results: Path) -> None:
    gone, *_ = sorted((results / "evidence" / "code").glob("*/*.xz"))
    gone.unlink()
    code, found, _ = kept(project, results)
    assert (code, found["missing_listings"]) == (2, [gone.stem])
    old, new = project.commits
    arguments = ("--results", results, "--diff", old, new)
    assert project.benchmarks("inspect", *arguments, compilers=False).returncode == 1


def test_nothing_is_pruned_where_a_file_cannot_be_read(project: Any, results: Path) -> None:
    path = file_of(results, project.commits[1])
    path.write_bytes(path.read_bytes()[:-9])
    before = sorted(results.rglob("*"))
    code, _, said = kept(project, results, "--prune")
    assert code == 2
    assert f"{path}: is cut short" in said
    assert sorted(results.rglob("*")) == before
    old, new = project.commits
    done = project.benchmarks("inspect", "--results", results, "--diff", old, new, compilers=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{path}: is cut short: measure the commit again" in done.stderr


def test_a_folder_without_results_prunes_nothing(project: Any, results: Path) -> None:
    shutil.rmtree(results / "here")
    code, _, said = kept(project, results, "--prune")
    assert code == 2
    assert "no results, and nothing else says which evidence is wanted" in said
    assert len(list((results / "evidence").glob("*.xz"))) == 2
