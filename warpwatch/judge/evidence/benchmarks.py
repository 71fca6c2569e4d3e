"""How many values asv's benchmarks have at some commits, and which of them failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from warpwatch.judge.results.asv_results import read_result
from warpwatch.judge.results.result_file import FAILED, Row
from warpwatch.judge.results.strict_json import RejectedError

_NO_RESULTS = ("benchmarks.json", "machine.json")
_COMPILED = "compiled."  # its pairs are counted with their reasons: see ``coverage``


@dataclass(frozen=True)
class Counted:
    """Values of the benchmarks that run something.

    Attributes:
        measured: Values that are there.
        failed: Values that should be there, by benchmark.
        unread: Files that could not be read, each with what is wrong.
        compiled: Values of the compiled benchmarks that were asked for.
    """

    measured: int
    failed: tuple[tuple[str, int], ...]
    unread: tuple[str, ...]
    compiled: int = 0

    def lines(self, most: int = 8) -> list[str]:
        """What a person reads at the end of a run; nothing where nothing was asked."""
        missing = sum(count for _, count in self.failed)
        if not self.measured and not missing:
            return []
        total = self.measured + missing
        said = [f"benchmarks: {self.measured} of {total} values measured"]
        said += [f"  {count} failed: {name}" for name, count in self.failed[:most]]
        if len(self.failed) > most:
            said.append(f"  and {len(self.failed) - most} more benchmarks")
        return said + [f"not read: {one}" for one in self.unread[:most]]


def counted(
    folder: Path, commits: Collection[str], patterns: Sequence[str], since_ns: int
) -> Counted:
    """Count what asv recorded.

    Args:
        folder: The folder of asv's results.
        commits: Full hashes; files of other commits are passed over.
        patterns: What was asked for, as asv's ``--bench``; empty means all.
        since_ns: Where files were written since, only those count: others are of earlier runs.

    Returns:
        The values of all benchmarks, the compiled ones apart.
    """
    short = {commit[:8] for commit in commits}
    found = [
        path
        for path in sorted(folder.glob("*/*.json"))
        if path.name not in _NO_RESULTS and path.name[:8] in short
    ]
    fresh = [path for path in found if path.stat().st_mtime_ns >= since_ns]
    measured, compiled, unread = 0, 0, []
    failed: Counter[str] = Counter()
    for path in fresh or found:
        try:
            result = read_result(path)
        except RejectedError as error:
            unread.append(str(error))
            continue
        for row in result.rows:
            asked = _asked(row, patterns)
            if not any(asked):
                continue
            values = result.values[row.offset : row.offset + row.size][np.array(asked)]
            if row.benchmark.startswith(_COMPILED):
                compiled += int(np.isfinite(values).sum())
                continue
            measured += int(np.isfinite(values).sum())
            missing = int((values == FAILED).sum())
            if missing:
                failed[row.benchmark] += missing
    return Counted(measured, tuple(failed.most_common()), tuple(unread), compiled)


def _asked(row: Row, patterns: Sequence[str]) -> list[bool]:
    """Which values of a benchmark a pattern has meant: asv searches its name, and the name with the
    parameters of each value."""
    if not patterns or any(re.search(one, row.benchmark) for one in patterns):
        return [True] * row.size
    names = (f"{row.benchmark}({', '.join(values)})" for values in product(*row.params))
    return [any(re.search(one, name) for one in patterns) for name in names]
