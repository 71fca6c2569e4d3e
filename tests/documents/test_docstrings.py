"""Examples in docstrings of the public API run, without a GPU."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys

import pytest

from tests.root import ROOT

# Each module, and the functions of it that a user calls.
MODULES = {
    "warpwatch.config.arguments": ("parse_arguments",),
    "warpwatch.judge.pairs.gate": ("judge_exact", "judge_pairs"),
    "warpwatch.judge.series.steps": ("find_steps",),
}


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_harness_run(name: str) -> None:
    module = importlib.import_module(name)
    found = {one.name: one for one in doctest.DocTestFinder().find(module, name)}
    for function in MODULES[name]:
        assert found[f"{name}.{function}"].examples, f"{function} has no example"
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_say_what_they_take_and_give(name: str) -> None:
    module = importlib.import_module(name)
    for function in MODULES[name]:
        text = getattr(module, function).__doc__
        assert text.splitlines()[0].endswith("."), "one line sums it up"
        assert all(part in text for part in ("Args:", "Returns:", "Examples:")), function


def test_examples_of_the_kernels_run() -> None:
    """In Triton's interpreter, which is chosen before Triton is imported."""
    code = """
import doctest, sys
import torch
import kernels
torch.manual_seed(0)
failed = False
for name in kernels.__all__:
    function = getattr(kernels, name)
    if function.__module__.startswith(("kernels.attention", "kernels.matmul")):
        (test,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
        failed |= not test.examples or doctest.DocTestRunner().run(test).failed > 0
        print(name, len(test.examples))
sys.exit(failed)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") >= 7
