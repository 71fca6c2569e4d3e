"""Anyone's function as a call that can be recorded: ``package.module:callable`` and its arguments.

Arguments are written as ``bf16[4096,4096] bf16[4096,4096] 3 causal=True``: tensors as dtype and
shape, anything else as a Python literal, keywords as ``name=value``. A function without required
parameters needs none and makes its own.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from warpwatch.config.arguments import parse_arguments
from warpwatch.workload.tensors import made


class UsageError(ValueError):
    """The call as it was asked for cannot be made: the user's mistake, not the code's."""


def find(name: str) -> Callable[..., Any]:
    """The callable called ``package.module:callable``; ``ValueError`` says what was not found."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise UsageError(f"{name!r}: expected package.module:callable, such as fastops:gelu")
    from triton.runtime import KernelInterface

    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{name!r}: cannot import {module_name}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [one for one in dir(found) if one[0] != "_" and callable(getattr(found, one))]
            near = difflib.get_close_matches(part, known, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known[:20])}"
            raise UsageError(
                f"{name!r}: {module_name} has no {part}; {hint if known else 'nor any other'}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name!r} is no callable but {type(found).__name__}")
    if isinstance(found, KernelInterface):
        raise UsageError(
            f"{name!r} is a Triton kernel, which has no grid of its own: name the function that "
            "launches it"
        )
    return found  # type: ignore[no-any-return]


def prepare(name: str, arguments: str, *, backward: bool) -> Callable[[], Any]:
    """A call without arguments. To be used under a recording driver: modules may ask at import
    which GPU there is."""
    function = find(name)
    positional, keywords = parse_arguments(arguments)
    if wrong := _mistake(function, positional, keywords):
        raise UsageError(
            f"{name}: {wrong}; give arguments with --args, tensors as in --args 'bf16[4096,4096] "
            f"bf16[4096,4096]', for {name.partition(':')[2]}{_parameters(function)}"
        )
    arguments_made = [made(value, "cuda", backward=backward) for value in positional]
    keywords_made = {k: made(value, "cuda", backward=backward) for k, value in keywords.items()}

    def call() -> Any:
        output = function(*arguments_made, **keywords_made)
        if backward:
            _run_backward(output)
        return output

    return call


def check(name: str, arguments: str) -> None:
    """Find a function and hold arguments against its parameters, without a call.

    Args:
        name: ``package.module:callable``.
        arguments: Its arguments as text.

    Raises:
        UsageError: There is no such function, or it takes other arguments.
    """
    function = find(name)
    positional, keywords = parse_arguments(arguments)
    if wrong := _mistake(function, positional, keywords):
        raise UsageError(f"{name}: {wrong}, for {name.partition(':')[2]}{_parameters(function)}")


def _mistake(function: Any, positional: Any, keywords: Any) -> str:
    """Why a function does not take such arguments; empty where it does, or nobody can tell."""
    try:
        inspect.signature(function).bind(*positional, **keywords)
    except TypeError as error:
        return str(error) if _parameters(function) else ""
    except ValueError:
        pass
    return ""


def _parameters(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return ""


def _run_backward(output: Any) -> None:
    import torch
    from torch.utils._pytree import tree_flatten

    outputs = [
        one
        for one in tree_flatten(output)[0]
        if isinstance(one, torch.Tensor) and one.requires_grad
    ]
    if not outputs:
        raise UsageError("--backward: no output depends on a tensor argument that requires grad")
    torch.autograd.backward(outputs, [torch.empty_like(one) for one in outputs])
