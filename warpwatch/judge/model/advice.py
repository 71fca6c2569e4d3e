"""What a compiler says against its own code (advisories), in a few words: each kind has its own."""

from __future__ import annotations

from collections.abc import Iterable

# By what a text of that kind holds: what its coming and its going are called.
_KINDS: tuple[tuple[str, tuple[str, str]], ...] = (
    ("nothing wrote", ("reads a register nothing wrote", "reads no register nothing wrote")),
    ("by plain arithmetic", ("matrix units left idle", "matrix units used again")),
    ("serializ", ("wgmma serialised", "wgmma no longer serialised")),
    # C7517: a wait that ptxas injects makes the same of it.
    ("warpgroup.wait is injected", ("wgmma serialised", "wgmma no longer serialised")),
)
_OTHER = ("the compiler advises against its code", "the compiler advises less against its code")


def words(before: Iterable[str], after: Iterable[str], *, more: bool) -> str:
    """What came (``more``) or went: texts of one side alone, the worse.

    Where both sides hold the same texts, a further kernel has them, and all count. Without texts
    the kind is not known, and the words fit any.
    """
    worse, other = (set(after), set(before)) if more else (set(before), set(after))
    said = dict.fromkeys(map(_of, sorted(worse - other or worse))) or {_OTHER: None}
    return " and ".join(pair[0 if more else 1] for pair in said)


def _of(text: str) -> tuple[str, str]:
    return next((pair for part, pair in _KINDS if part in text), _OTHER)
