"""A series as the chart script reads it: few bytes a point, nothing that could be markup."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from warpwatch.judge.results.result_file import FAILED, Floats

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LETTERS: NDArray[np.uint8] = np.frombuffer(ALPHABET, dtype=np.uint8)

_PAIRS = np.frombuffer(bytes(x for a in ALPHABET for b in ALPHABET for x in (a, b)), np.uint16)
_write = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def inline(document: Any) -> Markup:
    """JSON for a data block of a page: no ``<``, so no tag can begin or end in it."""
    text = _write(document)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def encode(values: Floats) -> dict[str, Any]:
    """Values as runs of equal ones, or as letters: two a point, three where the range is wide.

    Runs are ``[count, value]`` with ``"f"`` for failed and ``"s"`` for not applicable. Letters are
    digits of base 64, the level's share of the range from ``lo`` to ``hi``; the two highest codes
    mean failed and not applicable.
    """
    # Comparing bits lets the two kinds of NaN and infinity count as equal to themselves.
    bits = values.view(np.int64)
    new = bits[1:] != bits[:-1]
    if len(values) < 40 or (1 + np.count_nonzero(new)) * 6 <= len(values) * 2:
        starts = np.flatnonzero(np.concatenate(([True], new))) if len(bits) else bits
        counts = np.diff(np.append(starts, len(values))).tolist()
        firsts = map(_plain, values[starts].tolist())
        return {"runs": [list(run) for run in zip(counts, firsts, strict=True)]}
    finite = np.isfinite(values)
    whole = bool(finite.all())
    some = values if whole else values[finite]
    low, high = float(some.min()), float(some.max())
    width = 2 if high - low < 0.5 * max(abs(low), abs(high)) else 3
    top = 64**width - 3
    share = (values / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
    if whole:
        codes = (share * top).round().astype(np.int64)
    else:
        codes = np.where(finite, np.where(finite, share, 0) * top, 0).round().astype(np.int64)
        codes[values == FAILED] = top + 1
        codes[np.isnan(values)] = top + 2
    if width == 2:
        letters = _PAIRS[codes].tobytes().decode("ascii")
        return {"letters": letters, "width": width, "lo": low, "hi": high}
    digits = [(codes >> (6 * place)) & 63 for place in reversed(range(width))]
    letters = _LETTERS[np.stack(digits, axis=1)].tobytes().decode("ascii")
    return {"letters": letters, "width": width, "lo": low, "hi": high}


def spans(indexes: Sequence[int] | NDArray[np.intp]) -> list[list[int]]:
    """Ascending numbers as ``[first, count]`` of each unbroken stretch."""
    return _spans(np.asarray(indexes, dtype=np.intp).tobytes())


@lru_cache(maxsize=64)
def _spans(indexes: bytes) -> list[list[int]]:
    """The series of a table mostly lie alike: the same list for each, which nobody changes."""
    array = np.frombuffer(indexes, dtype=np.intp)
    if not len(array):
        return []
    if array[-1] - array[0] == len(array) - 1:
        return [[int(array[0]), len(array)]]
    starts = np.flatnonzero(np.concatenate(([True], np.diff(array) != 1)))
    counts = np.diff(np.append(starts, len(array)))
    return [list(span) for span in zip(array[starts].tolist(), counts.tolist(), strict=True)]


def _plain(value: float) -> float | str:
    if np.isfinite(value):
        # Eight digits are more than a chart or a word shows; counts stay whole.
        return value if value.is_integer() else float(f"{value:.8g}")
    return "f" if value == FAILED else "s"
