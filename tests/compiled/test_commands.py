"""inspect, run and upgrade: anyone's function, in processes of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.root import ROOT
from warpwatch.__main__ import main
from warpwatch.config import arguments
from warpwatch.instruments.compiled.diff import comparison, sides
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.instruments.compiled.record import callables

LIBRARY = """
import os

import torch
import triton
import triton.language as tl

# A library may ask at import which GPU there is.
ON_AMD = torch.version.hip is not None
assert torch.cuda.is_available()


@triton.jit
def scale(x, y, n, factor, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(x + o, mask=o < n) * factor, mask=o < n)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        assert x.is_cuda
        ctx.factor = factor
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 128 if ON_AMD else 256),)](
            x, y, x.numel(), factor, N=128 if ON_AMD else 256
        )
        return y

    @staticmethod
    def backward(ctx, dy):
        assert dy.is_cuda
        dx = torch.empty_like(dy)
        scale[(triton.cdiv(dy.numel(), 256),)](dy.contiguous(), dx, dy.numel(), ctx.factor, N=256)
        return dx, None


def scaled(x, factor=2.0):
    return Scale.apply(x, factor)


def own_inputs():
    return scaled(torch.randn(1000, device="cuda"))


def aborts():
    os.abort()


def asks_for_memory():
    return torch.cuda.mem_get_info()
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield "somebodys"


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = main(["inspect", *arguments, "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def test_a_library_is_inspected_unmodified_forward_and_backward(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = inspected(
        capsys,
        f"{library}:scaled",
        "--args",
        "fp32[1000] factor=3.0",
        "--backward",
        "--target",
        "sm_90",
        "--target",
        "gfx942",
    )
    assert code == 0
    assert found["schema_version"] == 1
    nvidia, amd = found["results"]
    grids = [[launch["grid"] for launch in one["evidence"]["launches"]] for one in (nvidia, amd)]
    assert grids == [[[4, 1, 1], [4, 1, 1]], [[8, 1, 1], [4, 1, 1]]]
    assert nvidia["values"]["launches"] == 2


def test_a_table_has_a_row_a_launch_and_what_cannot_run_says_why(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", f"{library}:own_inputs", "--target", "sm_80"]) == 0
    head, row, *rest = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["target", "kernel", "grid", "warps", "regs"]
    assert row.split()[:3] == ["sm_80", "scale", "4x1x1"]
    assert rest == ["sm_80   torch aten.randn"]  # a call that makes its own inputs does just that
    assert main(["inspect", f"{library}:asks_for_memory", "--target", "sm_80"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("sm_80: not measured: NotAnsweredError: torch.cuda.mem_get_info")


def test_a_mistake_of_the_call_is_said_once_and_not_for_each_target(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("--target", "sm_80", "--target", "gfx942")
    assert main(["inspect", f"{library}:scaled", *both]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        f"sm_80 gfx942: not applicable: {library}:scaled: missing a required argument: 'x'; give"
    )
    assert line.endswith("for scaled(x, factor=2.0)")


def test_a_call_that_is_wrong_on_both_sides_is_a_mistake_and_no_comparison(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("--target", "sm_90", "--diff", ".", ".")
    assert main(["inspect", f"{library}:scaled", *sides]) == 2
    assert "missing a required argument: 'x'" in capsys.readouterr().out


def test_a_call_that_launches_nothing_is_not_clean(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "math:sqrt", "--args", "4", "--target", "sm_90"]) == 3
    assert capsys.readouterr().out.startswith("sm_90: nothing was launched")


def test_a_file_that_cannot_be_written_is_no_regression(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = tmp_path / "missing" / "x.json"
    assert (
        main(["inspect", "math:sqrt", "--args", "4", "--target", "sm_90", "--json", str(where)])
        == 2
    )
    assert (
        capsys.readouterr().err
        == f"error: --json: cannot write {where}: No such file or directory\n"
    )


def test_several_names_have_a_table_each(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{library}:own_inputs"
    assert main(["inspect", name, "math:pi", "--target", "sm_90"]) == 3
    first, _, row, _, second, *rest = capsys.readouterr().out.splitlines()
    assert (first, second) == (name, "math:pi")
    assert row.split()[1] == "scale"
    assert rest == ["sm_90: not applicable: 'math:pi' is no callable but float"]


def test_a_compiler_that_aborts_costs_one_result(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with sides.opened(".") as side:
        asked = [jobs.Job(f"{library}:{name}", "sm_90") for name in ("aborts", "own_inputs")]
        found = {one.job.name: one for one in jobs.run(asked, side.environment)}
    assert found["somebodys:aborts"].status == "compile failed"
    assert "SIGABRT" in found["somebodys:aborts"].detail
    assert found["somebodys:own_inputs"].status == "ok"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["json:dumps", "--args", "zf16[3] bf16[x] (("], "'zf16[3]': unknown dtype"),
        (["json:dumps", "--args", "zf16[3] bf16[x] (("], "'((': expected a tensor"),
        (["json:dumps", "--args", "4 'open"], "--args 4 'open: No closing quotation"),
        (["json:dumps", "--target", "sm_70"], "unknown target 'sm_70'"),
    ],
)
def test_wrong_usage_is_said_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", "expected package.module:callable"),
        ("no_such_package:f", "cannot import no_such_package"),
        ("json:dumpz", "json has no dumpz; did you mean dump, dumps"),
        ("json:frobnicate", "json has no frobnicate; it has JSONDecodeError, JSONDecoder"),
        ("json:__name__", "is no callable"),
        (
            "kernels.matmul.portable.kernel:matmul_kernel",
            "is a Triton kernel, .* name the function",
        ),
    ],
)
def test_what_is_not_found_is_named(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        callables.find(name)


def test_arguments_are_tensors_literals_and_keywords() -> None:
    text = "bf16[2, 3] i32[] 4 0.5 causal=true out=None mode=fast"
    positional, keywords = arguments.parse_arguments(text)
    assert positional == (
        arguments.TensorSpec("bfloat16", (2, 3)),
        arguments.TensorSpec("int32", ()),
        4,
        0.5,
    )
    assert keywords == {"causal": True, "out": None, "mode": "fast"}
    with pytest.raises(ValueError, match="follows a keyword"):
        arguments.parse_arguments("a=1 2")


# Comparisons --------------------------------------------------------------------------------------


def result(status: str = "ok", code: str = "x", **values: float) -> jobs.Result:
    launch = {
        "kernel": "k",
        "code": code,
        "grid": [1, 1, 1],
        "num_warps": 4,
        "spilled_bytes": values.get("spilled_bytes", 0),
        "advisories": [],
        "constants": {},
        "occupancy": {"blocks": 2, "limited_by": "registers"},
        "bound": {"limited_by": "tensor"},
        "hot_loops": [{"tensor": 8}],
        "instructions": {"tensor": 8, "integer": len(code)},
    }
    evidence = {"launches": [launch] if status == "ok" else []}
    return jobs.Result(jobs.Job("w", "sm_90"), status, "why", dict(values), evidence)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        (result(launches=1), result(launches=2), "regressed"),
        (result(launches=2), result(launches=1), "improved"),
        (result(tensor_core_level=2), result(tensor_core_level=1), "regressed"),
        (result(launches=2, spilled_bytes=0), result(launches=1, spilled_bytes=8), "regressed"),
        (result(), result("compile failed"), "missing"),
        (result("compile failed"), result(), "new"),
        (result("compile failed"), result("compile failed"), "nothing"),
        (result(registers=10), result(registers=90, code="y"), "other code"),
        (result(bound_us=100.0), result(bound_us=100.3), "same"),
        (result(bound_us=100.0), result(bound_us=103.0), "regressed"),
        (result(), result(), "same"),
    ],
)
def test_each_pair_is_one_word(old: jobs.Result, new: jobs.Result, word: str) -> None:
    (found,) = comparison.compare([old], [new])
    assert found.word == word


def test_the_cause_is_named() -> None:
    old, new = result(spilled_bytes=0), result(spilled_bytes=64, code="y")
    (found,) = comparison.compare([old], [new])
    assert "k: spilled bytes 0 -> 64" in found.causes


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("y", "k: as many instructions of each class, in another"),
        ("xyz", "k: instructions: integer 1 -> 3"),
    ],
)
def test_other_code_says_how_it_differs(code: str, said: str) -> None:
    (found,) = comparison.compare([result()], [result(code=code)])
    assert found.word == "other code"
    assert any(one.startswith(said) for one in found.causes)


def commit_with(edit: Callable[[Path], None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit beside HEAD with other kernels; its objects lie in ``folder``, none in the clone."""
    folder.mkdir()
    held = git("rev-parse", "--path-format=absolute", "--git-path", "objects")
    monkeypatch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", held)
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(folder / "objects"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(folder / "index"))
    for part in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{part}_NAME", "t")
        monkeypatch.setenv(f"GIT_{part}_EMAIL", "t@localhost")
    (folder / "objects").mkdir()
    tree = folder / "tree"
    tree.mkdir()
    monkeypatch.setenv("GIT_WORK_TREE", str(tree))
    git("read-tree", "HEAD")
    git("checkout-index", "--all")
    edit(tree / "kernels")
    git("add", "--update")
    monkeypatch.delenv("GIT_WORK_TREE")
    return git("commit-tree", git("write-tree"), "-p", "HEAD", "-m", "other kernels")


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_another_commit_is_measured_and_not_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(kernels: Path) -> None:
        configs = kernels / "matmul" / "common" / "tuning.py"
        text = configs.read_text()
        assert text.count("C(64, 64, 64, 4, 4)") > 1
        configs.write_text(text.replace("C(64, 64, 64, 4, 4)", "C(64, 64, 64, 8, 4)"))

    commit = commit_with(edit, tmp_path / "beside", monkeypatch)
    job = jobs.Job("kernels:matmul", "sm_80", arguments="fp16[256,256] fp16[256,256]")
    found = []
    for name in (commit, "."):
        with sides.opened(name) as side:
            found += list(jobs.run([job], side.environment))
    old, new = found
    assert [one.status for one in found] == ["ok", "ok"]
    assert set(old.code) != set(new.code)


def test_a_version_that_cannot_be_had_is_one_clear_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match=r"cannot install triton==0\.0\.1"):
        sides.triton_folder("0.0.1")
