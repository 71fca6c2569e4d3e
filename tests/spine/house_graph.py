"""Which module of the project imports which, as the tests of the layout see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kernels", "warpwatch", "benchmarks")

Graph = Mapping[str, frozenset[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph() -> Graph:
    """Each module with those of the project that it imports, also inside functions. What only a
    type checker imports is left out."""
    files = [path for one in PACKAGES for path in (ROOT / one).rglob("*.py")]
    names = {module_name(path) for path in files}
    return {module_name(path): frozenset(_imports(path, names)) for path in files}


def _imports(path: Path, names: set[str]) -> Iterator[str]:
    name = module_name(path)
    for node in _runs(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                keep = len(parts) - node.level + (path.name == "__init__.py")
                base = ".".join([*parts[:keep], *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found = full if full in names else base
                if found in names and found != name:
                    yield found
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)


def _runs(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from _runs(child)


def circles(found: Graph) -> list[list[str]]:
    """Groups of modules that import each other, directly or not."""
    reach = {name: set(others) for name, others in found.items()}
    for middle in found:
        for others in reach.values():
            if middle in others:
                others |= reach[middle]
    groups = {
        tuple(sorted(b for b in reach[a] if a in reach.get(b, ()))) for a in found if a in reach[a]
    }
    return [list(group) for group in sorted(groups)]


def of_folders(found: Graph, prefix: str) -> Graph:
    """The same, of the parts right below ``prefix``."""
    depth = prefix.count(".") + 2

    def part(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    edges: dict[str, set[str]] = {}
    for name, others in found.items():
        if name.startswith(f"{prefix}."):
            inside = {part(one) for one in others if one.startswith(f"{prefix}.")}
            edges.setdefault(part(name), set()).update(inside - {part(name)})
    return {name: frozenset(others) for name, others in edges.items()}
