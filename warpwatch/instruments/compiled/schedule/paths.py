"""Which way a warp takes through a piece of code, and whose code it is.

Loops that only poll a barrier are left at once. Code of the same loop that stands out of line, for
what seldom happens, is not on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from warpwatch.instruments.compiled.formats.code import Instruction, Loop, Program


def places(program: Program) -> dict[str, int]:
    """Where each label stands."""
    return {label: i for i, one in enumerate(program.instructions) for label in one.labels}


def way(
    program: Program,
    start: int,
    allowed: Collection[int],
    inner: Sequence[Loop],
    labels: Mapping[str, int],
    seldom: Collection[int] = (),
    *,
    is_loop: bool = True,
) -> list[int]:
    """The instructions that a warp runs from ``start`` on, once through, but for those of the
    loops in ``inner`` and those in ``seldom``.

    Args:
        program: The machine code.
        start: Where the warp begins.
        allowed: The instructions that belong to the piece.
        inner: Loops inside it, which are gone round.
        labels: Where each label stands.
        seldom: What is jumped over.
        is_loop: Whether ``start`` is the head of a loop, where the way ends.

    Returns:
        Numbers of instructions, in the order in which they are issued.
    """
    exits = {loop.header: _exit(program.instructions, loop, allowed, labels) for loop in inner}
    found: list[int] = []
    seen: set[int] = set()
    at: int | None = start
    while at is not None and at not in seen:
        seen.add(at)
        if at in exits:
            at = exits[at]
            continue
        if at not in allowed:
            break
        if at in seldom:
            at += 1
            continue
        found.append(at)
        at = _next(program.instructions[at], at, start if is_loop else -1, allowed, exits, labels)
    return found


def _next(
    one: Instruction,
    at: int,
    start: int,
    allowed: Collection[int],
    exits: Mapping[int, int | None],
    labels: Mapping[str, int],
) -> int | None:
    if one.flow == "end":
        return None
    targets = [labels[name] for name in one.targets if name in labels]
    if one.flow == "jump":
        return targets[0] if targets else None
    if one.flow == "branch" and targets and (at + 1 not in allowed and at + 1 not in exits):
        return targets[0] if targets[0] in allowed or targets[0] in exits else at + 1
    if one.flow == "branch" and start in targets:
        return None
    return at + 1


def _exit(
    instructions: Sequence[Instruction],
    loop: Loop,
    allowed: Collection[int],
    labels: Mapping[str, int],
) -> int | None:
    """Where control goes when it leaves ``loop``."""
    found: set[int] = set()
    for at in loop.indices:
        one = instructions[at]
        following = [labels[name] for name in one.targets if name in labels]
        if one.flow in ("next", "branch"):
            following.append(at + 1)
        found.update(to for to in following if to not in loop.indices and to in allowed)
    return min(found, default=None, key=lambda to: (to < loop.header, to))


def entries(program: Program) -> list[int]:
    """Where the code of each part of specialised warps begins; empty where warps do the same."""
    labels = places(program)
    found: set[int] = set()
    for i, one in enumerate(program.instructions):
        if one.opcode.startswith("BRX") and one.targets:
            found.update(labels[name] for name in one.targets if name in labels)
            # The first branch of all parts the default warps from the others.
            first = [other for other in program.instructions[:i] if other.flow == "branch"][:1]
            found.update(labels[name] for one in first for name in one.targets if name in labels)
    return sorted(found)
