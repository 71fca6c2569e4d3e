"""Machine code before and after, next to each other, with the loop that the time goes to marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from warpwatch.judge.evidence.lookup import Launch
from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.model.core import Finding

from .evidence_blocks import Row, members_of, sides_of, tritons_of

MOST_ROWS = 80  # of one kernel; a page is read by people
_MOST_KERNELS = 3
_LONGEST = 200  # characters of a line
_MOVED = ("changed", "removed", "added")
_AROUND = 2  # instructions shown before and after a difference
_WAIT = 5  # a loop of fewer lines without a product only polls
_LABEL = re.compile(r"\s*(L\d+):\s*")
_TARGET = re.compile(r"\bL\d+\b")
_PRODUCT = re.compile(r"\b(?:[A-Z]{1,2}G?MMA|UTC[A-Z]*MMA|v_s?mfma|v_wmma)")


@dataclass(frozen=True)
class Side:
    """One row: "changed", "removed", "added", "same" or "place", and the line on either side.
    ``hot``: it lies in the hot loop of the side that it is of."""

    what: str
    before: str
    after: str
    hot: bool = False


@dataclass(frozen=True)
class CodeChange:
    """One kernel whose machine code differs: where, its instructions by class, how many lines went
    and came, how many of them in the hot loop, and both sides as far as they are shown."""

    kernel: str
    place: str
    instructions: tuple[Row, ...]
    lines: int
    hot: int
    rows: tuple[Side, ...]
    left: int


def code_changes(judgement: Judgement, finding: Finding) -> list[CodeChange]:
    """The kernels of the finding's workloads whose machine code is not what it was."""
    evidence, found = judgement.evidence, []
    seen: set[str] = set()
    for change, info in members_of(judgement, finding):
        before, after = sides_of(judgement, change)
        for triton in tritons_of(evidence, info, before):
            old, new = (evidence.launches(commit, triton) for commit in (before, after))
            for place in sorted(old.keys() & new.keys()):
                if place[0] != info.workload or (info.target and place[1] != info.target):
                    continue
                codes = repr([[one.code for one in side[place]] for side in (old, new)])
                if codes in seen:
                    continue
                seen.add(codes)
                mixes = _mixes(old[place], new[place])
                for kernel, *sides in evidence.codes(before, after, triton, *place):
                    where = f"{place[0]} on {place[1]}, Triton {triton}"
                    found.append(_change(kernel, where, mixes.get(kernel, ()), sides[0], sides[1]))
                if len(found) >= _MOST_KERNELS:
                    return found[:_MOST_KERNELS]
    return found


def hot_lines(listing: Sequence[str]) -> frozenset[int]:
    """The lines of the loops that the time goes to.

    Args:
        listing: Machine code, one instruction or label a line, as evidence keeps it.

    Returns:
        Places of the innermost loops that multiply matrices; where none does, of the longest
        innermost loop; none where nothing jumps back. Loops that only poll a barrier are waits.

    Examples:
        >>> sorted(hot_lines(["MOV R1", "L0:", "HGMMA R0", "@P0 BRA L0", "EXIT"]))
        [1, 2, 3]
    """
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for number, line in enumerate(listing):
        if label := _LABEL.fullmatch(line):
            labels[label[1]] = number
            continue
        for name in _TARGET.findall(line):
            if name in labels:
                ends[labels[name]] = number
    products = {number for number, line in enumerate(listing) if _PRODUCT.search(line)}
    loops = [
        (first, last)
        for first, last in ends.items()
        if last - first >= _WAIT or any(first < one < last for one in products)
    ]
    inner = [
        (first, last)
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]
    multiplying = [one for one in inner if any(one[0] < p < one[1] for p in products)]
    chosen = multiplying or [max(inner, key=lambda one: one[1] - one[0])] if inner else []
    return frozenset(n for first, last in chosen for n in range(first, last + 1))


def side_by_side(
    old: Sequence[str], new: Sequence[str], most: int = MOST_ROWS
) -> tuple[tuple[Side, ...], int, int, int]:
    """Compare two listings.

    Args:
        old: The instructions before.
        new: Those after.
        most: How many rows there may be; differences in the hot loop come first.

    Returns:
        The rows in the order of the code, how many lines went and came in all, how many of them
        in the hot loop, and how many are not among the rows.
    """
    hot = (hot_lines(old), hot_lines(new))
    groups = list(difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_AROUND))
    drawn, heat, total = [], [], 0
    for group in groups:
        rows = [Side("place", _where(group[0], old, new), "")]
        warm = 0
        for tag, i1, i2, j1, j2 in group:
            for k in range(max(i2 - i1, j2 - j1)):
                left, right = i1 + k < i2, j1 + k < j2
                is_hot = (left and i1 + k in hot[0]) or (right and j1 + k in hot[1])
                what = "same" if tag == "equal" else "changed"
                if not (left and right):
                    what = "removed" if left else "added"
                before = old[i1 + k][:_LONGEST] if left else ""
                after = new[j1 + k][:_LONGEST] if right else ""
                rows.append(Side(what, before, after, is_hot))
                if what != "same":
                    total += left + right
                    warm += is_hot * (left + right)
        drawn.append(rows)
        heat.append(warm)
    room = most
    chosen: dict[int, list[Side]] = {}
    for number in sorted(range(len(drawn)), key=lambda one: (not heat[one], one)):
        # Fewer rows than a place and its surroundings say nothing.
        if not chosen or room > 2 * _AROUND + 1:
            chosen[number] = drawn[number][:room]
            room -= len(chosen[number])
    rows = [one for number in sorted(chosen) for one in chosen[number]]
    shown = sum(bool(one.before) + bool(one.after) for one in rows if one.what in _MOVED)
    return tuple(rows), total, sum(heat), total - shown


def _where(opcode: tuple[str, int, int, int, int], old: Sequence[str], new: Sequence[str]) -> str:
    _, before, _, after, _ = opcode
    return f"line {before + 1:,} of {len(old):,}; after, line {after + 1:,} of {len(new):,}"


def _change(
    kernel: str, place: str, mix: tuple[Row, ...], old: Sequence[str], new: Sequence[str]
) -> CodeChange:
    rows, total, hot, left = side_by_side(old, new)
    return CodeChange(kernel, place, mix, total, hot, rows, left)


def _mixes(old: Sequence[Launch], new: Sequence[Launch]) -> dict[str, tuple[Row, ...]]:
    """By kernel, the classes of instructions that are not as many as they were."""
    found = {}
    for before, after in zip(old, new, strict=False):
        names = sorted(before.instructions.keys() | after.instructions.keys())
        counts = [(n, before.instructions.get(n, 0), after.instructions.get(n, 0)) for n in names]
        found[after.kernel] = tuple((n, f"{a:,}", f"{b:,}") for n, a, b in counts if a != b)
    return found
