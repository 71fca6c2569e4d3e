"""The source of the kernels: every launch is noted, and an import does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.root import ROOT


def test_every_launch_is_noted() -> None:
    """A plan would repeat the others, and leave out one that is written ``kernel[grid](...)``."""
    of_all = ROOT / "kernels" / "runtime" / "launch" / "recording.py"
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "kernels").rglob("*.py")
        if path != of_all
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    ]
    assert found == []


IMPORTED = """
import torch, triton
from torch._library.custom_ops import OPDEFS
from torch.utils import flop_counter
before = len(flop_counter.flop_registry)
import kernels
assert not [one for one in OPDEFS if one.startswith("warpwatch")]
import kernels.matmul.common.tuning  # a package of the same name as a function
assert kernels.matmul is kernels.triton_matmul
assert len(flop_counter.flop_registry) > before
"""


def test_an_import_changes_nothing_until_a_function_is_looked_up() -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
