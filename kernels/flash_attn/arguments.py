"""What FlashAttention's callers write, as our own functions take it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from kernels.runtime import checks

P = ParamSpec("P")
R = TypeVar("R")
# What FlashAttention-3 calls arguments of ours.
OF_FA3 = {
    "q_scale": "q_descale",
    "k_scale": "k_descale",
    "v_scale": "v_descale",
    "block_table": "page_table",
    "return_lse": "return_attn_probs",
}
ERRORS = (TypeError, ValueError, NotImplementedError)


def window(value: Any) -> tuple[int, int]:
    """(left, right), also of a tensor or of tensors of one value; what is below 0 or None is -1. Of
    tensors on a device reading waits for it, as it does in FlashAttention."""
    given: Any = value.tolist() if isinstance(value, torch.Tensor) else value
    sizes = [_whole(one) for one in given] if isinstance(given, (tuple, list)) else []
    if len(sizes) != 2 or None in sizes:
        raise ValueError(
            "window_size: expected (left, right), each a number of keys, or -1 for all, got "
            f"{value!r}; pass two ints, or a tensor of two"
        )
    return max(sizes[0], -1), max(sizes[1], -1)


def _whole(value: Any) -> Any:
    if value is None:
        return -1
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.is_floating_point() or value.dtype == torch.bool:
            return None
        return int(value)
    return checks.whole(value)


def softcap(value: Any) -> float | None:
    """None for 0 and below, which is how FlashAttention's callers write it."""
    found = 0.0 if value is None else checks.number("softcap", value, "a number, 0 for none")
    return found if found > 0.0 else None


def of_scores(softmax_scale: Any, causal: Any, window_size: Any, cap: Any) -> dict[str, Any]:
    """What is asked of scores, as all of ours take it."""
    return {
        "softmax_scale": softmax_scale,
        "causal": causal,
        "window_size": window(window_size),
        "softcap": softcap(cap),
    }


def dropout(q: Any, dropout_p: Any) -> dict[str, Any]:
    """The share and a seed, None where nothing is dropped, as ours take them."""
    p, seed = checks.number("dropout_p", dropout_p, "a probability from 0 to 1"), None
    if 0.0 < p <= 1.0 and isinstance(q, torch.Tensor):
        seed = torch.randint(2**62, (1,), dtype=torch.int64, device=q.device)
    return {"dropout_p": p, "dropout_seed": seed}


def packed(name: str, value: Any, many: int, rank: int) -> tuple[torch.Tensor, ...]:
    """The ``many`` tensors that ``value``, of ``rank`` axes, holds in its last axis but two."""
    tokens = "tokens" if rank == 4 else "batch, seqlen"
    checks.tensor(name, value, rank=rank, layout=f"({tokens}, {many}, heads, head_dim)")
    if value.shape[-3] != many:
        raise ValueError(
            f"{name}: expected {many} at axis {rank - 3}, got shape {tuple(value.shape)}; "
            f"torch.stack(..., dim={rank - 3}) makes it"
        )
    return tuple(value.unbind(-3))


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Errors of a function that calls ours say what the user wrote: ``ours="theirs"``."""
    words = re.compile(rf"\b({'|'.join(names)})\b")

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(body)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                return body(*args, **kwargs)
            try:
                return body(*args, **kwargs)
            except ERRORS as error:
                text = str(error)
                said = words.sub(lambda found: names[found[0]], text)
                if said == text:
                    raise
                raise type(error)(said) from error

        return call

    return decorate
