"""Whose mistake an error is: the kernel's, the commit's, or that of who wrote the workload."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpwatch import project
from warpwatch.config import targets
from warpwatch.instruments.compiled.measure.workload import Measurement, measure
from warpwatch.workload import configured

PACKAGE = """
import torch

def double(x):
    return x + x

def broken(x):
    return missing_name

class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + x

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no way back")

def trained(x):
    return Own.apply(x)

def wrapper(*args, **options):
    return double(*args, **options)

def crossed(x):
    return wrapper(x, fast=True)

def shapes(x):
    raise ValueError("expected 2 dimensions")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "blamedops").mkdir()
    (tmp_path / "blamedops" / "__init__.py").write_text(PACKAGE)
    monkeypatch.setenv(project.FILE_VARIABLE, str(tmp_path / "warpwatch.toml"))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("blamedops", None)


def measured(folder: Path, call: str, args: str, more: str = "") -> Measurement:
    (folder / "warpwatch.toml").write_text(
        f'[package]\nname = "blamedops"\npath = "blamedops"\n[[workload]]\nname = "w"\n'
        f'call = "blamedops:{call}"\nargs = "{args}"\n{more}\n'
    )
    return measure(configured.get("w"), targets.get("sm_90"))


def test_the_code_under_test_is_blamed_with_its_file_and_line(package: Path) -> None:
    found = measured(package, "broken", "fp32[8]")
    said = "NameError: name 'missing_name' is not defined (blamedops/__init__.py:8)"
    assert (found.status, found.detail) == ("call failed", said)
    found = measured(package, "shapes", "fp32[8]")
    assert (found.status, found.detail.rpartition(" ")[2]) == (
        "call failed",
        "(blamedops/__init__.py:29)",
    )


def test_a_backward_of_the_package_is_its_own(package: Path) -> None:
    found = measured(package, "trained", "fp32[8]", "backward = true")
    assert (found.status, found.detail) == (
        "call failed",
        "RuntimeError: no way back (blamedops/__init__.py:17)",
    )


@pytest.mark.parametrize(
    ("call", "args", "more", "detail"),
    [
        ("double", "i32[8]", "backward = true", "backward = true: no output depends on a tensor"),
        ("double", "fp32[4611686018427387904]", "", "mistake in the workload (inputs)"),
    ],
)
def test_a_mistake_of_the_workload_is_called_that(
    package: Path, call: str, args: str, more: str, detail: str
) -> None:
    found = measured(package, call, args, more)
    assert found.status == "not measured"
    assert found.detail.startswith("mistake in the workload") and detail in found.detail


@pytest.mark.parametrize(("call", "args"), [("double", "fp32[8] 3"), ("double", "")])
def test_another_signature_is_another_commits(package: Path, call: str, args: str) -> None:
    found = measured(package, call, args)
    assert found.status == "not applicable"
    assert "positional argument" in found.detail


@pytest.mark.parametrize(
    ("call", "args", "status"),
    [
        ("double", "fp32[8] fast=true", "not applicable"),
        ("wrapper", "fp32[8] fast=true", "not applicable"),
        ("crossed", "fp32[8]", "call failed"),
    ],
)
def test_an_option_that_the_package_gives_itself_is_its_own_mistake(
    package: Path, call: str, args: str, status: str
) -> None:
    found = measured(package, call, args)
    assert found.status == status
    assert "unexpected keyword argument 'fast'" in found.detail


def test_what_works_is_measured(package: Path) -> None:
    found = measured(package, "double", "fp32[8]")
    assert (found.status, found.values["launches"]) == ("ok", 1)
    assert found.evidence["sources"] == {"own": ["blamedops/__init__.py"], "imported": []}
