"""Fields of ``regressions.json``, read from the code that writes it."""

from __future__ import annotations

import ast
from functools import cache

from tools.docs.figures.markdown import table
from tools.root import ROOT
from warpwatch.report.json_feed import SCHEMA_VERSION

_SOURCE = ROOT / "warpwatch" / "report" / "json_feed.py"
_DOCUMENT = {
    "schema_version": f"{SCHEMA_VERSION}; a field may be added without a new version",
    "commits_measured": "how many commits have results",
    "newest_commit": "the newest of them, or `null`",
    "findings": "the findings, the costliest first",
    "longer_times": "predicted times that got surely longer and that no finding holds",
    "coverage": "how many series could be judged",
    "notices": "texts that a reader must see, such as a result file that was rejected",
}
_COVERAGE = {
    "series": "series that may raise an alarm",
    "judged": "how many of them were judged",
    "not_judged": "how many were not, by reason",
    "enough": "whether at least half were judged",
}
_FINDING = {
    "id": "twelve hexadecimal digits, which `accept` and `bisect` take",
    "verdict": "`regressed`, `improved`, `missing` or `not applicable`",
    "kind": "`slower`, `faster`, `lost`, `flaky` or `failed build`",
    "status": "`open`, `recovered` or `improved`",
    "accepted": "who accepted it, until when and why; else empty",
    "commits": "the commits that may hold the cause, oldest first",
    "likeliest": "the commit of the range to look at first",
    "range_confidence": "the probability that they do; 1 where an exact metric names the commit",
    "cost": "seconds that one run of the suite loses; an order, not a measurement",
    "cause": "`kernel`, `dependency`, `machine`, `harness` or `unknown`",
    "why": "the evidence for the cause",
    "reasons": "the changes of compiled metrics, as sentences",
    "predicted": "the verdict from the predicted time of its call; empty where none is predicted",
    "page": "the path of its page on the site",
    "changes": "the series that changed",
}
_CHANGE = {
    "machine": "where it was measured; empty for compiled series",
    "environment": "asv's name of the environment",
    "benchmark": "asv's name of the benchmark",
    "params": "its parameters",
    "metric": "the metric",
    "workload": "the workload",
    "target": "the target it was compiled for, or the peer",
    "unit": "the unit of both values",
    "better": "`lower` or `higher`",
    "verdict": "the verdict on this series",
    "kind": "`hurt`, `helped`, `lost` or `gained`: "
    "the older [words](../glossary.md#verdicts) for regressed, improved, missing and new",
    "before": "the level before the step, or `null`",
    "after": "the level after it, or `null`",
    "last_good": "the last commit at the level before",
    "first_commit": "the first commit at the level after",
    "confidence": "how sure the step is, from 0 to 1",
    "page": "the path of the series' page, with its section",
}


_LONGER = {
    "workload": "the workload",
    "target": "the target it was compiled for",
    "base": "the last commit before with a predicted time of it",
    "head": "the commit at which it is longer",
    "before_us": "the predicted time at `base`, in microseconds",
    "after_us": "the predicted time at `head`",
    "least_ratio": "the low end of the interval of their ratio",
    "most_ratio": "its high end",
    "stands": "whether the newest predicted time is longer still",
    "page": "the path of the page of `head`",
}


@cache
def _written() -> dict[str, tuple[str, ...]]:
    """By function, the keys of the largest literal that it writes."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.parse(_SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            literals = [one for one in ast.walk(node) if isinstance(one, ast.Dict)]
            largest = max(literals, key=lambda one: len(one.keys), default=None)
            if largest is not None:
                found[node.name] = tuple(
                    str(key.value) for key in largest.keys if isinstance(key, ast.Constant)
                )
    return found


def _fields(keys: tuple[str, ...], meanings: dict[str, str]) -> str:
    if set(keys) != set(meanings):
        odd = ", ".join(sorted(set(keys) ^ set(meanings)))
        raise ValueError(f"regressions.json: {odd}: give each a meaning in {__name__}")
    return table(["field", "meaning"], [(f"`{key}`", meanings[key]) for key in keys])


def document() -> str:
    """Write the fields of the document.

    Returns:
        A table.
    """
    return _fields(_written()["regressions"], _DOCUMENT)


def coverage() -> str:
    """Write the fields of ``coverage``.

    Returns:
        A table.
    """
    return _fields(tuple(_COVERAGE), _COVERAGE)


def finding() -> str:
    """Write the fields of a finding.

    Returns:
        A table.
    """
    return _fields(_written()["finding_document"], _FINDING)


def longer() -> str:
    """Write the fields of a predicted time that got longer.

    Returns:
        A table.
    """
    return _fields(_written()["_longer"], _LONGER)


def change() -> str:
    """Write the fields of a changed series.

    Returns:
        A table.
    """
    return _fields(_written()["_change"], _CHANGE)
