"""Which changes share one cause, and the range of commits that holds it.

Every change knows an interval that holds its commit with 95 %. Changes are one finding where their
intervals agree. The costliest change leads: the range that is shown lies within its interval, and
only changes that can lie in that range are counted with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .attribution import Ranged

_MISSES = 0.05  # of intervals that hold 95 %
_LEAST_SURE = 0.8
_MANY = 1000  # members: their misses are as good as certain


@dataclass(frozen=True)
class Group:
    """Changes of one cause, the costliest first, and the positions that may hold it; ``sure`` is
    the probability that they do."""

    members: tuple[Ranged, ...]
    first: int
    last: int
    sure: float


def grouped(ranged: Sequence[Ranged], costs: Sequence[float]) -> list[Group]:
    """Changes of one direction as groups.

    An instrument without noise knows the commit: it is asked first. A level that is another after
    commits without a value may have changed at any of them: the commit that mended the failure does
    not place it, so the two are apart. Of many intervals a few miss their commit, and a range that
    all of them share would be too narrow; as many may disagree as leaves a probability of
    ``_LEAST_SURE``.

    Args:
        ranged: changes, each with its interval.
        costs: of each change, in the same order.

    Returns:
        Groups that together hold every change once, the one with the costliest change first.
    """
    firsts = np.array([one.first for one in ranged], dtype=np.int64)
    lasts = np.array([one.last for one in ranged], dtype=np.int64)
    places = np.array([one.at for one in ranged], dtype=np.int64)
    exact = np.array([one.info.meaning.exact for one in ranged], dtype=bool)
    gap = np.array([knows and one.is_over_a_gap for knows, one in zip(exact, ranged, strict=True)])
    cost = np.asarray(costs, dtype=np.float64)
    free = np.ones(len(ranged), dtype=bool)
    groups: list[_Held] = []
    for leader in np.lexsort((lasts, -cost)).tolist():
        if not free[leader]:
            continue
        apart_from = exact & exact[leader] & (gap != gap[leader])
        close = (firsts <= lasts[leader]) & (lasts >= firsts[leader])
        near = np.flatnonzero(free & close & ~apart_from)
        apart = np.abs(places[near] - places[leader])
        order = near[np.lexsort((-cost[near], apart, ~exact[near], near != leader))]
        core = _Core(int(firsts[leader]), int(lasts[leader]))
        for index in order.tolist():
            core.join(index, int(firsts[index]), int(lasts[index]), bool(exact[index]))
        low, high = core.range()
        if not core.exact:
            low, high = min(low, int(places[leader])), max(high, int(places[leader]))
        held = [i for i in core.members if firsts[i] <= high and lasts[i] >= low]
        free[held] = False
        groups.append(_Held([leader, *(i for i in held if i != leader)], low, high, core.sure))
    _move_to_own(groups, firsts, lasts, places, exact)
    found = []
    for one in groups:
        members = [one.members[0], *sorted(one.members[1:], key=lambda i: -cost[i])]
        found.append(Group(tuple(ranged[i] for i in members), one.low, one.high, one.sure))
    return found


@dataclass(frozen=True)
class _Held:
    """A group while it is made: the numbers of its members, the leader first."""

    members: list[int]
    low: int
    high: int
    sure: float


def _move_to_own(
    groups: Sequence[_Held],
    firsts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    places: NDArray[np.int64],
    exact: NDArray[np.bool_],
) -> None:
    """Move each change that most probably lies in the range of another group there.

    A costly change leads first and takes in all that can lie where it does. Of two commits that
    follow each other both have a group, and what can be due to either is due to the likelier one.
    """
    lows, highs = (np.array(ends) for ends in ([g.low for g in groups], [g.high for g in groups]))
    for number, group in enumerate(groups):
        for index in list(group.members[1:]):
            at = int(places[index])
            if exact[index] or group.low <= at <= group.high:
                continue
            others = np.flatnonzero((lows <= at) & (at <= highs))
            for other in others.tolist():
                leader = groups[other].members[0]
                if other != number and (lasts[leader] < group.low or firsts[leader] > group.high):
                    group.members.remove(index)
                    groups[other].members.append(index)
                    break


class _Core:
    """The positions that enough of the members can lie at."""

    def __init__(self, first: int, last: int):
        self.members: list[int] = []
        self.exact = False
        self._first = first
        self._covered: NDArray[np.int64] = np.zeros(last - first + 1, dtype=np.int64)
        self._allowed: NDArray[np.bool_] = np.ones(last - first + 1, dtype=bool)

    @property
    def sure(self) -> float:
        return 1.0 if self.exact else _misses(len(self.members))[1]

    def join(self, index: int, first: int, last: int, exact: bool) -> None:
        """Take in a change, if a position is left that it and enough of the others share."""
        here = slice(max(first - self._first, 0), max(last - self._first + 1, 0))
        if exact:
            allowed = np.zeros_like(self._allowed)
            allowed[here] = self._allowed[here]
        else:
            allowed = self._allowed
        count = len(self.members) + 1
        enough = self._covered[here] + 1 >= count - _misses(count)[0]
        if not (enough & allowed[here]).any():
            return
        self._covered[here] += 1
        self._allowed = allowed
        self.exact = self.exact or exact
        self.members.append(index)

    def range(self) -> tuple[int, int]:
        """The first and the last of the positions."""
        count = len(self.members)
        enough = self._covered >= count - _misses(count)[0]
        found = np.flatnonzero(enough & self._allowed)
        return self._first + int(found[0]), self._first + int(found[-1])


@cache
def _misses(count: int) -> tuple[int, float]:
    """How many of so many intervals may miss their commit, and how probable it is that no more
    do."""
    if count > _MANY:
        return int(1.5 * _MISSES * count), 1.0
    term = total = (1.0 - _MISSES) ** count
    misses = 0
    while total < _LEAST_SURE:
        misses += 1
        term *= (count - misses + 1) / misses * _MISSES / (1.0 - _MISSES)
        total += term
    return misses, total
