"""What an error says in one line, compilers' errors among them."""

from __future__ import annotations

import re

from triton.compiler.errors import CompilationError


def one_line(error: BaseException) -> str:
    """The kind of an error, for code in Triton where it is, and the line of it that says most."""
    where = ""
    while isinstance(error, CompilationError):
        line = getattr(error.node, "lineno", None)
        function = re.search(r"\bdef (\w+)", error.src or "")
        if line and function:
            where = f"line {line} of {function[1]}: "
        if error.error_message or error.__cause__ is None:
            break
        error = error.__cause__  # in a function the kernel calls
    said = getattr(error, "error_message", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line] or lines or ["no message"]
    return f"{type(error).__name__}: {where}{telling[0]}"[:300]
