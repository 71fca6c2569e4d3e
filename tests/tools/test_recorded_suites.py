"""Benchmark suites of others that are recorded as they are: a small suite from a git repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.harness import recorded_suites, third_party_operators
from tools.harness.recorded_suites import Case, Suite

PACKAGE = """
import torch, triton, triton.language as tl

@triton.jit
def _copy(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))

def copied(x):
    y = torch.empty_like(x)
    _copy[(1,)](x, y, x.numel())
    return y
"""
RUNS = """
import sys, torch
from suited import copied
if sys.argv[1:] == ["--list"]:
    print("- tall")
    print("- nothing")
elif sys.argv[1:] == ["tall"]:
    copied(torch.ones(64, device="cuda"))
    copied(torch.ones(128, device="cuda"))
"""


BROKEN = "import no_such_module\nif __name__ == '__main__':\n    print(no_such_module)\n"


def suite(**given: object) -> Suite:
    command = {"command": ["python", "bench/run.py", "{case}"]}
    rest = {"name": "Made", "source": "made/suite", "commit": "HEAD", "package": "suited"}
    return Suite(**{**rest, "path": "src", "folders": ["src", "bench"], "packages": [], **command,
                    **given})  # type: ignore[arg-type]  # a test gives any field  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the clone of one repository, as the tool expects it."""
    clone = tmp_path / "made+suite"
    for name, text in (
        ("src/suited/__init__.py", PACKAGE),
        ("bench/run.py", RUNS),
        ("bench/broken.py", BROKEN),
        ("bench/sizes.py", "SIZES = [64]\n"),
    ):
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ["git", "-C", str(clone), "-c", "user.name=A", "-c", "user.email=a@example.invalid"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    return tmp_path


def test_cases_that_a_suite_lists_become_series(folder: Path) -> None:
    listed = suite(listed=["python", "bench/run.py", "--list"], case=r"^- (\w+)$")
    found = recorded_suites.measure(folder, listed, 120.0)
    assert found == [Case("tall", 2), Case("nothing", 0, "it launched no kernel of the package")]
    files = suite(files="bench/[bs]*.py", command=["python", "{case}"])
    (broken,) = recorded_suites.measure(folder, files, 120.0)
    assert broken == Case(
        "bench/broken.py", 0, "ModuleNotFoundError: No module named 'no_such_module'"
    )
    page = recorded_suites.page([(listed, found), (files, [broken])])
    assert "**33% of the cases that they list became series**:\n1 of 3, with 2 different" in page
    assert "| suited | `nothing` | it launched no kernel of the package |" in page
    said = suite(because={"nothing": "it is not asked to"})
    assert "| suited | `nothing` | it is not asked to |" in recorded_suites.page([(said, found)])
    with pytest.raises(ValueError, match="Made lists no case"):
        recorded_suites.measure(folder, suite(listed=["python", "bench/run.py"], case="^-"), 120.0)


def test_a_missing_clone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recorded_suites.main([str(tmp_path), "fla"]) == 2
    place = tmp_path / "fla-org+flash-linear-attention"
    expected = f"git clone --bare https://github.com/fla-org/flash-linear-attention {place}\n"
    assert capsys.readouterr().err == expected


def test_every_operator_of_the_table_makes_jobs() -> None:
    for library in third_party_operators.libraries():
        asked = library.jobs("")
        assert {job.target for _, job in asked} == set(third_party_operators.TARGETS)
        assert all(":" in job.name and job.arguments for _, job in asked)
        assert len({label for label, _ in asked}) == len(library.operators)
