"""The arguments of a call, written as text: ``bf16[4096,4096] bf16[4096] 1e-6 causal=true``.

Tensors are a dtype and a shape, anything else is a Python literal, keywords are ``name=value``.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from typing import Any

_TENSOR = re.compile(r"^(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\]$")
_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}
# A shell's user writes causal=true.
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be made: its dtype as torch calls it, and its shape."""

    dtype: str
    shape: tuple[int, ...]


def parse_arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; ``ValueError`` lists every one that cannot be read."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    mistakes = []
    try:
        words = shlex.split(text.replace(", ", ","))
    except ValueError as error:
        raise ValueError(f"--args {text}: {error}") from error
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and name.isidentifier()):
            name, value = "", word
        try:
            parsed = _argument(value)
        except ValueError as error:
            mistakes.append(str(error))
            continue
        if name:
            keywords[name] = parsed
        elif keywords:
            mistakes.append(f"{word!r} follows a keyword argument: write it before")
        else:
            positional.append(parsed)
    if mistakes:
        raise ValueError("--args: " + "; ".join(mistakes))
    return tuple(positional), keywords


def _argument(text: str) -> Any:
    match = _TENSOR.match(text)
    if match:
        dtype = _DTYPES.get(match["dtype"], match["dtype"])
        if dtype not in {*_DTYPES.values(), "float8_e5m2", "complex64"}:
            raise ValueError(f"{text!r}: unknown dtype, expected one of {' '.join(_DTYPES)}")
        return TensorSpec(
            dtype, tuple(int(one) for one in match["shape"].split(",") if one.strip())
        )
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.fullmatch(r"[\w.-]+", text):
            return text  # a bare word is a string
        raise ValueError(
            f"{text!r}: expected a tensor such as bf16[64,128], or a Python literal"
        ) from None
