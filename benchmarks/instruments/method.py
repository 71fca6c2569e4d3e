"""The identity of a measuring method: a hash of the code that measures, blind to comments.

A change of method alone has moved a kernel by a third. The hash travels with every value as the
benchmark's ``version``, so that values of two methods never stand in one series.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def method_hash(*files: str) -> str:
    """Twelve hex digits over the statements of ``files``; comments, docstrings, positions and the
    Python that reads them do not count."""
    return _hash(ast.parse(Path(file).read_text(encoding="utf-8")) for file in files)


def part_hash(file: str, *names: str) -> str:
    """As :func:`method_hash`, over what ``file`` calls ``names`` alone: functions, methods
    (``Class.method``) and constants. ``ValueError`` for a name it does not have."""
    parts = _named(ast.parse(Path(file).read_text(encoding="utf-8")).body)
    if lacking := [name for name in names if name not in parts]:
        raise ValueError(f"{file} defines no {' '.join(lacking)}: expected what a method hashes")
    return _hash(parts[name] for name in names)


def version(instrument: str, began_with: str, *parts: str) -> str:
    """The version of a metric that ``parts`` (hashes) define beside ``instrument``'s own files: the
    instrument's as long as they are what its series ``began_with``, else one of its own."""
    now = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    return instrument if now == began_with else f"{instrument}-{now}"


def _hash(trees: Iterable[ast.AST]) -> str:
    digest = hashlib.sha256()
    for tree in trees:
        for word in _words(tree):
            digest.update(word.encode())
    return digest.hexdigest()[:12]


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


def _words(node: ast.AST) -> Iterator[str]:
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        # Python releases add empty fields to nodes: only what is filled tells code apart.
        if value is None or value == [] or name in {"kind", "type_comment"}:
            continue
        yield name
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue  # a docstring
            if isinstance(item, ast.AST):
                yield from _words(item)
            else:
                yield repr(item)
