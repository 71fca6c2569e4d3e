"""Names of kernels as their authors wrote them."""

from __future__ import annotations

import ctypes
from functools import cache

_LONGEST, _END = 48, 16


@cache
def readable(symbol: str) -> str:
    """Say a symbol in C++ without its parameters, at most 48 characters of it.

    Args:
        symbol: As the file has it.

    Returns:
        The symbol itself where it is not of C++, or this machine cannot tell.

    Example:
        >>> readable("_Z5saxpyifPKfPf")
        'saxpy'
    """
    name = _without_parameters(_demangled(symbol))
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _END - 2]}..{name[-_END:]}"


def _demangled(symbol: str) -> str:
    if not symbol.startswith("_Z"):
        return symbol
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle = library.__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return symbol
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        free(text)


def _without_parameters(name: str) -> str:
    """Up to the parenthesis that follows the name, after the type that a template returns."""
    depth = 0
    end, start = len(name), 0
    plain = name.replace("(anonymous namespace)", "{anonymous namespace}")
    for place, letter in enumerate(plain):
        depth += (letter in "<[{") - (letter in ">]}")
        if depth == 0 and letter == " ":
            start = place + 1
        if depth == 0 and letter == "(":
            end = place
            break
    return name[start:end]
