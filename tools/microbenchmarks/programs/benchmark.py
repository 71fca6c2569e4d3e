"""One row of the table: a constant, its program, and how a number comes out of two timings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .ptx import Code

Data = Literal["none", "zeros", "first cache", "L2", "memory", "stream"]
"""What the kernel finds in device memory: nothing; zeros; a chain of pointers that the first cache
holds, or L2, or neither; more than L2 holds, to be read once."""

LATENCY, CLOCKS, LANES, BYTES, SHARE = (
    "clocks",
    "clocks each",
    "lanes a clock",
    "bytes a clock",
    "share of the datasheet",
)

_IN_QUEUE = 8  # numbers of loads that a queue is filled with


@dataclass(frozen=True)
class Benchmark:
    """A program and its reading.

    Attributes:
        name: Of the row.
        constant: In ``schedule/pipes.py``, or a key of the device.
        used: The value that the model uses, in ``unit``.
        unit: Of the value.
        how: One line.
        published: A published value or the datasheet's, with its source.
        code: Makes the parts of a kernel.
        opcode: A pattern of the instructions that are timed.
        each: How many of them a step has.
        count: Steps of the shorter kernel.
        threads: Of its block.
        amount: What a step of a warp does, in the unit: lanes, bytes, or floating-point operations
            over those that the datasheet allows in a clock. 0 for clocks.
        data: What the kernel finds in device memory.
        reading: How the value comes out of the timings: *slope* is clocks of a further step,
            *intercept* what remains for no step at all, *mean* the clocks of each of all steps, and
            *queue* the clocks of work that had been issued and not begun when a warp first waited.
        needs: The least target, such as 90; ``only`` that one where it is set.
    """

    name: str
    constant: str
    used: float | None
    unit: str
    how: str
    published: str
    code: Code
    opcode: str
    each: float = 1
    count: int = 128
    threads: int = 32
    amount: float = 0.0
    data: Data = "none"
    reading: Literal["slope", "intercept", "mean", "queue"] = "slope"
    needs: int = 80
    only: bool = False
    counts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        numbers = [one * self.count for one in range(1, _IN_QUEUE + 1)]
        counts = (1, *numbers) if self.reading == "queue" else numbers[:2]
        object.__setattr__(self, "counts", tuple(counts))

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern of its opcode."""
        return re.compile(self.opcode)

    @property
    def warps(self) -> int:
        """Warps of its block."""
        return -(-self.threads // 32)

    def runs_on(self, target: int) -> bool:
        """Whether a card can run it.

        Args:
            target: Such as 90.

        Returns:
            Whether it can.
        """
        return target == self.needs if self.only else target >= self.needs

    def value(self, clocks: Mapping[int, float]) -> float:
        """Read the value out of two timings.

        Args:
            clocks: Of the kernel with each number of steps.

        Returns:
            The value in its unit.

        Raises:
            ValueError: Twice the steps took no longer.
        """
        *_, before, last = self.counts
        slope = (clocks[last] - clocks[before]) / (last - before)
        if slope <= 0:
            raise ValueError(
                f"{before} steps took {clocks[before]:.0f} clocks, {last} took {clocks[last]:.0f}"
            )
        if self.reading == "mean":
            return clocks[last] / last / self.each
        if self.reading == "intercept":
            return clocks[before] - before * slope
        if self.reading == "queue":
            return max((n - 1) * slope - (clocks[n] - clocks[1]) for n in self.counts)
        return self.amount * self.warps / slope if self.amount else slope / self.each
