"""The identity of a measuring method: a hash of the code that measures, blind to tidying.

A change of method has moved a kernel by a third without any change of the kernel. The hash travels
with every value as the benchmark's ``version``, so that values of two methods never stand in one
series. Imports, module paths, file names, docstrings, comments and the order of definitions do not
count: moving or renaming a module is no change of method.
"""

from __future__ import annotations

import ast
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MODULE = "<module>"  # stands for every module of this project, whatever it is called
# They name a method or list names; neither can change a value.
_LABELS = {"METHOD_VERSION", "__all__"}
_HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


@dataclass(frozen=True)
class _Tree:
    """Where a file's imports are looked up: ``root`` holds ``top``, its top-level package, and
    perhaps everybody else's; ``names`` are those its imports bind, each with its word for the
    hash."""

    root: Path
    top: str
    names: Mapping[str, str]

    def is_module(self, path: str) -> bool:
        """Whether a dotted path names a module of the file's own package."""
        parts = path.split(".")
        if parts[0] != self.top or len(parts) < 2:
            return False
        target = self.root.joinpath(*parts)
        return target.is_dir() or target.with_suffix(".py").is_file()


def method_hash(*files: str) -> str:
    """Hash the definitions of some modules.

    Args:
        files: Paths of Python modules. Neither their names nor their order counts.

    Returns:
        Twelve hexadecimal digits over the top-level statements of all files.

    Example:
        >>> method_hash(__file__) == method_hash(__file__)
        True
    """
    found: list[str] = []
    for file in files:
        path = Path(file)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = _imported(tree, path)
        found += [_hash(_words(one, known)) for one in tree.body if _measures(one)]
    return _hash(sorted(found))


def part_hash(file: str, *names: str) -> str:
    """Hash some definitions of one module.

    Args:
        file: Path of a Python module.
        names: Its functions, methods (``Class.method``) and constants that count.

    Returns:
        Twelve hexadecimal digits over what ``names`` define, in the order given.

    Raises:
        ValueError: The module does not define one of ``names``.
    """
    path = Path(file)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = _named(tree.body)
    if lacking := [name for name in names if name not in parts]:
        raise ValueError(f"{file} defines no {' '.join(lacking)}: expected what a method hashes")
    imported = _imported(tree, path)
    return _hash(word for name in names for word in _words(parts[name], imported))


def version(name: str, began_with: str, *parts: str) -> str:
    """Name a method by the version that its series began with.

    Args:
        name: The version that existing series carry, such as ``latency-ec414eeda652``.
        began_with: The combined hash of ``parts`` of that method.
        parts: Hashes, or versions of other methods, that define the method today.

    Returns:
        ``name`` while ``parts`` are as they were, else ``name`` followed by their combined hash.
    """
    now = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    return name if now == began_with else f"{name}-{now}"


def _hash(words: Iterable[str]) -> str:
    return hashlib.sha256("".join(words).encode()).hexdigest()[:12]


def _measures(node: ast.stmt) -> bool:
    """Whether a top-level statement can change a value."""
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
        return False
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return False
    return not (isinstance(node, ast.Assign) and _targets(node) <= _LABELS)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _targets(node: ast.Assign) -> set[str]:
    return {one.id if isinstance(one, ast.Name) else "" for one in node.targets}


def _imported(tree: ast.AST, path: Path) -> _Tree:
    """The names that the imports of a file bind: each stands for its name where it is defined, or,
    if it is a module of this project, for the one word of all modules."""
    root, top = path.resolve().parent, ""
    while (root / "__init__.py").is_file():
        root, top = root.parent, root.name
    known = _Tree(root, top, {})
    found: dict[str, str] = {}
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom):
            base = _absolute(node, path.resolve(), root)
            for alias in node.names:
                is_module = known.is_module(f"{base}.{alias.name}")
                found[alias.asname or alias.name] = _MODULE if is_module else alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and known.is_module(alias.name):
                    found[alias.asname] = _MODULE
    return _Tree(root, top, found)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, without expressions: an import is in none of them."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if isinstance(one, _HOLDS_STATEMENTS)]


def _absolute(node: ast.ImportFrom, path: Path, root: Path) -> str:
    """The module that is imported from, with its whole path."""
    if not node.level:
        return node.module or ""
    base = path.parents[node.level - 1].relative_to(root).parts
    return ".".join([*base, *([node.module] if node.module else [])])


def _named(body: Sequence[ast.stmt]) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: node for one in targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            within = _named(node.body)
            found |= {
                node.name: node,
                **{f"{node.name}.{name}": one for name, one in within.items()},
            }
    return found


def _words(node: ast.AST, known: _Tree) -> list[str]:
    words: list[str] = []
    _add_words(words, node, known)
    return words


def _add_words(words: list[str], node: ast.AST, known: _Tree) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return
    words.append(type(node).__name__)
    loaded = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    for name, value in ast.iter_fields(node):
        # Python releases add empty fields to nodes: only what is filled distinguishes code.
        if value is None or value == [] or name in {"kind", "type_comment"}:
            continue
        words.append(name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                if not _is_text(item):  # else a docstring
                    _add_words(words, item, known)
            elif loaded and name == "id":
                words.append(repr(known.names.get(item, item)))
            elif isinstance(item, str) and name == "value" and known.is_module(item):
                words.append(_MODULE)  # a process is started by its module's path
            else:
                words.append(repr(item))
