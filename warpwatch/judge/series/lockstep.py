"""Many series judged side by side: what each of them asks for next is worked out for all at once.

A series has a few hundred points, and to look at them takes less time than to say so to numpy. So
the judgement of a series is a generator: it gives a function of many, and what it wants of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")
Work = Generator[tuple[Callable[[Any], list[Any]], Any], Any, Result]

_SIDE_BY_SIDE = 96


def together(works: Iterable[Work[Result]]) -> list[Result]:
    """The results of all works, in their order.

    Args:
        works: each yields a function, which takes a list of questions, and its own question. It is
            sent the answer.

    Returns:
        What the works return.
    """
    waiting = enumerate(works)
    found: dict[int, Result] = {}
    asked: dict[Callable[[Any], list[Any]], list[tuple[int, Work[Result], Any]]] = {}
    count = 0

    def go_on(number: int, work: Work[Result], answer: Any) -> int:
        try:
            function, question = work.send(answer)
        except StopIteration as end:
            found[number] = end.value
            return 0
        asked.setdefault(function, []).append((number, work, question))
        return 1

    while True:
        while count < _SIDE_BY_SIDE and (new := next(waiting, None)):
            count += go_on(*new, None)
        if not asked:
            break
        # The question that most of them have: the others wait until more have theirs.
        function = max(asked, key=lambda one: len(asked[one]))
        those = asked.pop(function)
        answers = function([question for _, _, question in those])
        count -= len(those)
        for (number, work, _), answer in zip(those, answers, strict=True):
            count += go_on(number, work, answer)
    return [found[number] for number in range(len(found))]
