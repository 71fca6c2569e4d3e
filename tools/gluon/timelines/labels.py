"""Notes what a program does under the names that its kernel has for products and copies."""

from __future__ import annotations

import linecache
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tools.gluon.timelines.scenes import Scene
from warpwatch.simulator.timeline.log import Log

ASSIGNED = re.compile(r"^\s*(\w+)(?:, \w+)* = ")
MEMORY = re.compile(r"shared memory (\d+)")
PRODUCER = re.compile(r"partition \d+ \(_?produce\)")


class NamedLog(Log):
    """A log whose products carry the variable that each is assigned to, the innermost first."""

    def multiplies(self, who: Any, product: Any) -> None:
        """A product of the matrix unit."""
        super().multiplies(who, product)
        last = self.spans[-1]
        self.spans[-1] = type(last)(
            last.track, last.kind, " ".join(_variables()), last.begin, last.end, last.site
        )


def _variables() -> list[str]:
    found = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if "/kernels/" in frame.f_code.co_filename:
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if match := ASSIGNED.match(line):
                found.append(match[1])
        frame = frame.f_back
    return found


@dataclass(frozen=True)
class Box:
    """A box of the picture: ``text`` is written into it, ``hint`` is shown by the pointer."""

    row: str
    kind: str
    begin: int
    end: int
    text: str = ""
    hint: str = ""


def boxes(log: Log, scene: Scene) -> list[Box]:
    """Name what a program did.

    Args:
        log: The program's.
        scene: The names of its memory and of its products.

    Returns:
        Boxes in the order of their beginning. Words that follow one another are one box.

    Raises:
        ValueError: A copy or a product has no name in ``scene``.
    """
    found: list[Box] = []
    numbers: Counter[str] = Counter()
    for span in sorted(log.spans, key=lambda one: (one.track, one.begin)):
        row, text, hint = _row(span.track, scene), "", ""
        if span.kind in ("product", "copy in"):
            of = row.partition(":")[0]
            product = span.kind == "product"
            name = _product(span.what, of, scene) if product else _ring(span.what, scene)
            numbers[f"{row} {name}"] += 1
            text = f"{name}{numbers[f'{row} {name}']}"
        elif span.kind == "copy out":
            text = "out"
        elif span.kind == "wait":
            hint = _waited(span.what, scene)
        last = found[-1] if found else None
        words = span.kind == "word"
        if words and last and (last.row, last.kind, last.end) == (row, "word", span.begin):
            found[-1] = Box(row, "word", last.begin, span.end)
        else:
            found.append(Box(row, span.kind, span.begin, span.end, text, hint))
    return found


def _row(track: str, scene: Scene) -> str:
    who, _, unit = track.partition(": ")
    if track == "copy engine":
        return track
    if PRODUCER.fullmatch(who):
        return "producer warp"
    number = 0 if who == "the default partition" else int(who.split()[1])
    name = f"warpgroup {number}"
    name = scene.rows.get(name, name)
    return f"{name.partition(':')[0]}: products" if unit else name


def _product(variables: str, warpgroup: str, scene: Scene) -> str:
    for one in variables.split():
        for name in (f"{warpgroup}/{one}", one):
            if name in scene.products:
                return scene.products[name]
    raise ValueError(f"products: expected a name for one of {variables!r} in {scene.kernel}")


def _ring(what: str, scene: Scene) -> str:
    match = MEMORY.search(what)
    if match is None or int(match[1]) not in scene.rings:
        raise ValueError(f"rings: expected a name for {what!r} in {scene.kernel}")
    return scene.rings[int(match[1])]


def _waited(what: str, scene: Scene) -> str:
    match = MEMORY.search(what)
    if match is None:
        return what
    number = int(match[1])
    for after, state in ((1, "full"), (2, "empty")):
        if number - after in scene.rings and number not in scene.rings:
            stage = what.partition("barrier ")[2].split()[0]
            phase = what.partition("phase ")[2].split()[0]
            ring = scene.rings[number - after]
            return f"wait until stage {stage} of {ring} is {state}, phase {phase}"
    return "wait for a barrier"
