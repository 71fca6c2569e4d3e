"""The arguments of a call, written as text: ``bf16[4096,4096] bf16[4096] 1e-6 causal=true``.

Tensors are a dtype and a shape, anything else is a Python literal, keywords are ``name=value``.
``i64[4096]<32000`` holds integers from 0 to 31999, ``i32(0,128,512)`` those three. ``bf16[64]~``
gets no gradient; ``[bf16[64],bf16[64]]`` is a list of tensors.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from typing import Any

_TENSOR = re.compile(
    r"(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\](<(?P<below>[1-9]\d*))?(?P<constant>~)?"
)
_VALUES = re.compile(r"(?P<dtype>[a-z]\w*)\((?P<values>[-+\d.,eE]*)\)(?P<constant>~)?")
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
    """A tensor to be made.

    Attributes:
        dtype: As torch calls it.
        shape: Its shape.
        values: What it holds, where that is given.
        below: Integers are drawn below this; 0 where they are zeros.
        gradient: Whether it gets a gradient where gradients are computed.
    """

    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...] | None = None
    below: int = 0
    gradient: bool = True


def tensors(value: Any) -> list[TensorSpec]:
    """The tensors of an argument, those of lists included."""
    if isinstance(value, TensorSpec):
        return [value]
    if isinstance(value, list | tuple):
        return [one for item in value for one in tensors(item)]
    return []


def parse_arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the arguments of a call.

    Args:
        text: Such as ``bf16[4096,4096] 1e-6 causal=true``.

    Returns:
        The positional arguments, and those with a name.

    Raises:
        ValueError: Some cannot be read; all of them are listed.

    Examples:
        >>> (tensor, epsilon), named = parse_arguments("bf16[64,32] 1e-6 causal=true")
        >>> tensor.dtype, tensor.shape, epsilon, named
        ('bfloat16', (64, 32), 1e-06, {'causal': True})
    """
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
    if match := _TENSOR.fullmatch(text):
        dtype = _dtype(match["dtype"], text)
        below = int(match["below"] or 0)
        if below and not dtype.startswith(("int", "uint")):
            raise ValueError(f"{text!r}: only tensors of integers are drawn below a number")
        shape = tuple(int(one) for one in match["shape"].split(",") if one.strip())
        return TensorSpec(dtype, shape, below=below, gradient=not match["constant"])
    if (match := _VALUES.fullmatch(text)) and match["dtype"] in _DTYPES:
        dtype = _dtype(match["dtype"], text)
        try:
            values = ast.literal_eval(f"[{match['values']}]")
        except (ValueError, SyntaxError):
            expected = f"numbers with commas between, such as {match['dtype']}(1,2,3)"
            raise ValueError(f"{text!r}: expected {expected}") from None
        return TensorSpec(dtype, (len(values),), tuple(values), gradient=not match["constant"])
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.fullmatch(r"[\w.-]+", text):
            return text  # a bare word is a string
        if text[:1] + text[-1:] in ("[]", "()"):
            made = [_argument(one) for one in _items(text[1:-1])]
            return made if text[0] == "[" else tuple(made)
        raise ValueError(
            f"{text!r}: expected a tensor such as bf16[64,128], or a Python literal"
        ) from None


def _dtype(spelt: str, text: str) -> str:
    dtype = _DTYPES.get(spelt, spelt)
    if dtype not in {*_DTYPES.values(), "float8_e5m2", "complex64"}:
        raise ValueError(f"{text!r}: unknown dtype, expected one of {' '.join(_DTYPES)}")
    return dtype


def _items(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one for one in found if one]


def written(value: Any) -> str:
    """Write one argument as :func:`parse_arguments` reads it.

    Args:
        value: A specification of a tensor, a literal, or a list of them.

    Returns:
        The text.

    Raises:
        ValueError: It cannot be written.
    """
    if isinstance(value, TensorSpec):
        spelt = next((short for short, name in _DTYPES.items() if name == value.dtype), value.dtype)
        _dtype(spelt, spelt)
        end = "" if value.gradient else "~"
        if value.values is not None:
            return f"{spelt}({','.join(map(str, value.values))}){end}"
        return f"{spelt}[{','.join(map(str, value.shape))}]{end}"
    if value is None or isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return repr(value)
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.-]*", value):
        return value if value.lower() not in _WORDS else repr(value)
    if isinstance(value, list | tuple) and value:
        inner = ",".join(written(one) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    raise ValueError(f"{type(value).__name__} cannot be written as an argument")
