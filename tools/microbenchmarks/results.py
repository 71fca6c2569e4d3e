"""The rows of the table, as they are printed and kept."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.docs.figures.markdown import table

from .programs.benchmark import Benchmark

_HEAD = ("benchmark", "constant", "unit", "used", "simulated", "measured", "spread", "published")


@dataclass
class Row:
    """One benchmark: what the model uses and predicts, and what the card took.

    Attributes:
        name: Of the benchmark.
        constant: In ``schedule/pipes.py``, or a key of the device.
        unit: Of the values.
        how: One line.
        published: A published value.
        used: The value of the constant.
        simulated: What the model predicts for the program.
        measured: The median of the launches.
        low: The least of the launches.
        high: The most.
        failed: Why nothing was measured; empty otherwise.
        clocks: Of each launch, by the number of steps.
    """

    name: str
    constant: str
    unit: str
    how: str
    published: str
    used: float | None
    simulated: float | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    failed: str = ""
    clocks: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def of(cls, one: Benchmark) -> Row:
        """Begin the row of a benchmark.

        Args:
            one: The benchmark.

        Returns:
            Its row, with nothing measured.
        """
        return cls(one.name, one.constant, one.unit, one.how, one.published, one.used)

    def take(self, one: Benchmark, answer: Mapping[str, Any]) -> None:
        """Take what the card answered.

        Args:
            one: The benchmark.
            answer: Its clocks, or an error.
        """
        if "error" in answer:
            self.failed = str(answer["error"])
            return
        self.clocks = answer["clocks"]
        launches = [{int(n): value for n, value in each.items()} for each in self.clocks]
        middle = {n: statistics.median(each[n] for each in launches) for n in one.counts}
        try:
            self.measured = one.value(middle)
            values = [one.value(each) for each in launches]
        except ValueError as error:
            self.failed = str(error)
            return
        self.low, self.high = min(values), max(values)


def document(rows: list[Row], card: Mapping[str, Any]) -> dict[str, Any]:
    """Put everything together that is kept.

    Args:
        rows: Of the table.
        card: Its name and architecture; empty without one.

    Returns:
        What is written as JSON.
    """
    import triton
    from triton import knobs

    return {
        "card": card.get("card", ""),
        "architecture": card.get("architecture", 0),
        "triton": triton.__version__,
        "ptxas": knobs.nvidia.ptxas.version,
        "python": platform.python_version(),
        "rows": [asdict(row) for row in rows],
    }


def simulated_again(before: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Take what was measured before, and what the model uses and predicts now.

    Args:
        before: A document with measurements.
        made: One without.

    Returns:
        The document of both; a row that one of them has not is as it is in the other.
    """
    now = {row["name"]: row for row in made["rows"]}
    ours = ("constant", "used", "simulated", "how", "published")
    rows = [
        {**row, **{key: now[row["name"]][key] for key in ours if row["name"] in now}}
        for row in before["rows"]
    ]
    return {**before, "rows": rows}


def kept(made: Mapping[str, Any]) -> str:
    """Write the document.

    Args:
        made: By :func:`document`.

    Returns:
        JSON with one row a line.
    """
    rows = ",\n".join(f"  {json.dumps(row)}" for row in made["rows"])
    head = json.dumps({**made, "rows": []}, indent=1).removesuffix("[]\n}")
    return f"{head}[\n{rows}\n ]\n}}\n"


def number(value: float | None) -> str:
    """Write a value.

    Args:
        value: Of a row.

    Returns:
        Three digits and more; a dash for none.
    """
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Write the cells of a row.

    Args:
        row: As it is kept.

    Returns:
        One for each heading.
    """
    low, high = row["low"], row["high"]
    return (
        row["name"],
        row["constant"],
        row["unit"],
        number(row["used"]),
        number(row["simulated"]),
        "failed" if row["failed"] else number(row["measured"]),
        f"{number(low)} to {number(high)}" if low is not None else "–",
        row["failed"].splitlines()[0] if row["failed"] else row["published"],
    )


def line(row: Row) -> str:
    """Write a row as it is measured.

    Args:
        row: The row.

    Returns:
        One line.
    """
    return " | ".join(cells(asdict(row)))


def table_of(made: Mapping[str, Any]) -> str:
    """Write the table.

    Args:
        made: By :func:`document`.

    Returns:
        Markdown.
    """
    return table(_HEAD, map(cells, made["rows"]), right=[3, 4, 5, 6])
