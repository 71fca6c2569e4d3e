"""The identity of a measuring method: a hash of the code that measures, blind to comments.

A change of method alone has moved a kernel by a third. The hash travels with every value as the
benchmark's ``version``, so that values of two methods never stand in one series.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def method_hash(*files: str) -> str:
    """Twelve hex digits over the statements of ``files``; comments, docstrings, positions and the
    Python that reads them do not count."""
    digest = hashlib.sha256()
    for file in files:
        for word in _words(ast.parse(Path(file).read_text(encoding="utf-8"))):
            digest.update(word.encode())
    return digest.hexdigest()[:12]


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
