"""Why a compiled metric has no value at a commit: the kernel is there, and does not compile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.predicted.verdict import FAILURES
from warpwatch.judge.results.history import SeriesInfo, Table

_CALL_FAILED = "call failed"


def reason(
    table: Table, row: int, columns: Sequence[int | None], evidence: Evidence | None = None
) -> str:
    """Say at which of two commits the call of a compiled series does not compile.

    Args:
        table: The series' table.
        row: Its row.
        columns: Of base and head, ``None`` where one was not measured here.
        evidence: Where it is said whether a compiler refused the kernel or its host code raised.

    Returns:
        One clause; "" where both have a value, or another reason.

    Example:
        >>> reason(table, row, (0, 1))
        'head does not compile'
    """
    info = table.series[row]
    failures = table.row_of(FAILURES, info.workload, info.target)
    if info.meaning.instrument != "compiled" or failures is None:
        return ""
    return "; ".join(
        f"{side} {_failure(info, table.commits[column].hash, evidence)}"
        for side, column in zip(("base", "head"), columns, strict=True)
        if column is not None
        and not math.isfinite(table.values[row, column])
        and 0 < table.values[failures, column] < math.inf
    )


def _failure(info: SeriesInfo, commit: str, evidence: Evidence | None) -> str:
    """Host code that raises counts as a failure, too: only the evidence keeps the two apart."""
    triton = info.key.environment.removeprefix("triton ")
    statuses = evidence.statuses(commit, triton) if evidence else {}
    raised = statuses.get((info.workload, info.target)) == _CALL_FAILED
    return "has no code of it: the call raises" if raised else "does not compile"
