"""Programs of tools/, read from their own first lines."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.docs.figures.markdown import table
from tools.root import ROOT


def programs() -> str:
    """Write every program with the first sentence of its module.

    Returns:
        A table.
    """
    rows = []
    for path in sorted((ROOT / "tools").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(
            isinstance(one, ast.If) and "__name__" in ast.unparse(one.test) for one in tree.body
        ):
            said = (ast.get_docstring(tree) or "").split("\n\n")[0]
            rows.append((f"`python -m {_module(path)}`", " ".join(said.split()).replace("``", "`")))
    return table(["program", "does"], rows)


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__main__" else parts)
