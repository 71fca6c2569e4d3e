"""The simulator is a package of its own: it knows nothing of the kernels it was first made for."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "warpwatch" / "simulator"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAY_IMPORT = {"numpy", "torch", "triton", "warpwatch"}
MOST_LINES, MOST_MODULES = 350, 12


def test_it_imports_no_kernels() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            foreign = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
            assert foreign <= MAY_IMPORT, path


def test_its_modules_are_short_and_say_what_they_know() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), path
        assert len(text.splitlines()) <= MOST_LINES, path
    assert max(Counter(path.parent for path in MODULES).values()) <= MOST_MODULES
