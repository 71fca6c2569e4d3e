"""Places of a function at which something can be changed: counted, marked, or changed."""

from __future__ import annotations

import ast

MARK = "_mark"  # what marked code calls, with the function's name and the number of the place


class Places:
    """Mixed into a transformer: counts what can be changed, changes one place or marks all."""

    def __init__(self, name: str, number: int | None) -> None:
        self.name, self.number, self.seen = name, number, 0
        self.what, self.line = "", 0

    def is_it(self, node: ast.AST, what: str) -> bool:
        """Count a place.

        Args:
            node: Where it is.
            what: What becomes of it, in words.

        Returns:
            Whether it is the one to change.
        """
        self.seen += 1
        if self.seen - 1 != self.number:
            return False
        self.what, self.line = what, getattr(node, "lineno", 0)
        return True

    def marked(self, value: ast.expr) -> ast.expr:
        """Have the place that was counted last say that it is reached.

        Args:
            value: An expression there.

        Returns:
            The expression, within a call of ``MARK`` where all places are marked.
        """
        if self.number is not None:
            return value
        call = ast.parse(f"{MARK}({self.name!r}, {self.seen - 1})", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args.append(value)
        return call
