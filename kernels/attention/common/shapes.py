"""What every public operation of attention takes: shapes, dtypes, lengths, and how far rows see."""

from __future__ import annotations

from typing import Any

import torch

from kernels.runtime import checks, targets

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 256
MAX_HEAD_DIM_V = 512
# A window that reaches further hides nothing: sums with it stay within 32 bits.
FARTHEST = 1 << 30


def limits(offset: int, causal: bool, window_size: Any) -> tuple[bool, int, int | None]:
    """Of the diagonal j = i + ``offset``: whether late keys are hidden; query i sees key j up to
    i + the second and, unless it is None, from i + the third on."""
    given = window_size if isinstance(window_size, (tuple, list)) else ()
    sizes = [checks.whole(size) for size in given]
    if len(sizes) != 2 or any(size is None or size < -1 for size in sizes):
        raise ValueError(
            "window_size: expected (left, right), each a number of keys or -1 for all, got "
            f"{window_size!r}"
        )
    # min() would ask of a symbol how large it is; sym_min() takes longer.
    left, right = (
        min(size, FARTHEST) if type(size) is int else torch.sym_min(size, FARTHEST)
        for size in sizes
    )
    if checks.flag("causal", causal):
        right = 0
    return right >= 0, offset + max(right, 0), None if left < 0 else offset - left


def check(
    q: Any,
    k: Any,
    v: Any,
    names: tuple[str, str, str] = ("q", "k", "v"),
    *,
    layout: str,
    head_axis: int,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    most_v: int = MAX_HEAD_DIM,
) -> None:
    for name, value in zip(names, (q, k, v), strict=True):
        checks.tensor(name, value, rank=4, layout=layout)
    q_name, k_name, v_name = names
    checks.no_tangent(**{q_name: q, k_name: k, v_name: v})
    checks.dtype(q_name, q, dtypes)
    checks.same_dtype_and_device(q_name, q, **{k_name: k, v_name: v})
    if k.shape[0] != q.shape[0]:
        raise ValueError(f"{k_name}: expected batch {q.shape[0]} as {q_name} has, got {k.shape[0]}")
    head_dim = q.shape[3]
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"{q_name}: expected head_dim 1 to {MAX_HEAD_DIM}, got {head_dim}")
    if k.shape[3] != head_dim:
        raise ValueError(f"{k_name}: expected head_dim {head_dim} as {q_name}, got {k.shape[3]}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"{v_name}: expected shape {(*k.shape[:3], v.shape[3])} as {k_name} has, got "
            f"{tuple(v.shape)}"
        )
    if not 1 <= v.shape[3] <= most_v:
        raise ValueError(f"{v_name}: expected head_dim 1 to {most_v}, got {v.shape[3]}")
    heads, kv_heads = q.shape[head_axis], k.shape[head_axis]
    if kv_heads == 0:
        raise ValueError(f"{k_name}: expected at least one head, got 0; layout is {layout}")
    if heads % kv_heads:
        raise ValueError(
            f"{k_name}: expected a number of heads that divides the {heads} of {q_name}, got "
            f"{kv_heads}; layout is {layout}"
        )


def check_lengths(q: torch.Tensor, **lengths: Any) -> None:
    """``cu_seqlens_q`` and ``cu_seqlens_k`` of packed sequences, beside ``q``."""
    for name, value in lengths.items():
        checks.integers(name, value, rank=1, layout="(batch + 1,)", q=q)
        if value.numel() < 1 or not value.is_contiguous():
            raise ValueError(
                f"{name}: expected batch + 1 contiguous entries, got {value.numel()} with stride "
                f"{value.stride(0)}"
            )


def longest(name: str, value: Any) -> int:
    """The length of the longest of packed sequences, which the host must know."""
    found: int | None = checks.whole(value)
    if found is None or checks.negative(found):
        raise ValueError(
            f"{name}: expected the longest sequence as an int, got {value!r}; a tensor's .item() "
            "once, where the lengths are made, is enough"
        )
    return found


def check_longest(**longest: tuple[torch.Tensor | None, torch.Tensor | None, int]) -> None:
    """Of packed sequences, (where they begin, how many rows are used, the longest): refuse one that
    is too small, whose rows would be left unwritten. Only in the interpreter, where to read the
    lengths waits for no device."""
    if torch.compiler.is_compiling() or not targets.interpreting():
        return
    for name, (starts, used, most) in longest.items():
        if starts is None or type(starts) is not torch.Tensor or starts.device.type != "cpu":
            continue
        lengths = starts.diff()
        if used is not None:
            lengths = lengths.minimum(used)
        found = int(lengths.max()) if lengths.numel() else 0
        if found > most:
            raise ValueError(
                f"{name}: expected the longest sequence, {found} rows, or more, got {most}; rows "
                "beyond it would be left unwritten"
            )
