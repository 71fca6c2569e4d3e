"""Judges two measured commits: every series at both, by the gate's code and thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings import longer_times
from warpwatch.judge.model import search_space, thresholds
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.model.names import home, params
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.results.history import UNASKED, History, SeriesInfo, Table
from warpwatch.judge.results.result_file import ABSENT, FAILED
from warpwatch.judge.series.withheld import withheld
from warpwatch.judge.statistics.stored import Stored

from . import not_compiled
from .gate import judge_exact
from .judgement import Judgement
from .run_verdict import PREDICTED, Judged, RunVerdict, of_time, settle
from .stored_runs import judge_stored

Floats = NDArray[np.float64]

_WANDER_POINTS = 8
WORSE: tuple[Verdict, ...] = ("regressed", "missing")
# What is said of evidence in the place of a verdict.
MOVES: dict[Verdict, str] = {"regressed": "worse", "improved": "better"}
_KNOWN = ("unchanged", "improved", "regressed", "mixed", "missing")
ORDER: tuple[Verdict, ...] = (
    "missing",
    "regressed",
    "mixed",
    "inconclusive",
    "improved",
    "not applicable",
    "unchanged",
)


@dataclass(frozen=True)
class Comparison:
    """One series at two commits."""

    series: SeriesInfo
    verdict: Verdict
    before: float | None
    after: float | None
    reason: str = ""
    # The findings of the history that made it worse, and who accepted them and why.
    findings: tuple[str, ...] = ()
    accepted: str = ""
    # As many more measurements of both like these would decide it, and would take so long. 0 where
    # nobody can tell; the time is that of the one that needs most.
    more: int = 0
    more_s: float = 0.0


@dataclass(frozen=True)
class Compared:
    """All comparisons of two commits, what matters most first, and the run they make."""

    comparisons: tuple[Comparison, ...]
    run: RunVerdict

    @property
    def exit_code(self) -> int:
        """0 clean, 1 where something is worse that nobody accepted, 3 where it cannot be told."""
        verdicts = {c.verdict for c in self._asked}
        if any(c.verdict in WORSE and not c.accepted for c in self._asked):
            return 1
        open_ = verdicts & {"inconclusive", "mixed"}
        return 0 if self.judged and not open_ and self._enough else 3

    @property
    def judged(self) -> int:
        """How many series that may raise an alarm could be judged."""
        return sum(c.verdict in _KNOWN for c in self._asked)

    @property
    def measured(self) -> int:
        """How many of them have a value at base: to these head is to be held."""
        return sum(c.before is not None for c in self._asked)

    @property
    def _asked(self) -> list[Comparison]:
        return [c for c in self.comparisons if c.series.meaning.role == "verdict"]

    @property
    def _enough(self) -> bool:
        judged = sum(c.before is not None and c.verdict in _KNOWN for c in self._asked)
        return 2 * judged >= self.measured


def compare(
    history: History, base: str, newer: str, evidence: Evidence | None = None
) -> list[Comparison]:
    """Every series with an entry at one of the commits, what matters most first."""
    return list(judge_commits(history, base, newer, thresholds.load(), evidence).comparisons)


def judge_commits(
    history: History,
    base: str,
    newer: str,
    limits: Thresholds,
    evidence: Evidence | None = None,
) -> Compared:
    """Judge two measured commits with the gate's code, false alarms bounded over all series.

    Args:
        history: What was measured.
        base: The commit that is compared with.
        newer: The commit that is judged.
        limits: From where on a change counts.
        evidence: Where predicted times are, which weigh the compiled metrics of a call.

    Returns:
        A comparison of each series, what matters most first.
    """
    found: list[tuple[SeriesInfo, Judged]] = []
    for table in history.tables:
        columns = [table.column_of(commit) for commit in (base, newer)]
        if columns == [None, None]:
            continue
        for row, info in enumerate(table.series):
            values = [
                ABSENT if column is None else float(table.values[row, column]) for column in columns
            ]
            if values == [ABSENT, ABSENT]:
                continue
            judgement = _judge(table, row, columns[0], columns[1], limits)
            unsaid = withheld(table, row, columns)
            if unsaid and judgement.verdict in ("regressed", "improved"):
                judgement = _plain(unsaid.verdict, unsaid.reason)
            if judgement.verdict == "not applicable":
                said = not_compiled.reason(table, row, columns, evidence)
                judgement = replace(judgement, reason=said or judgement.reason)
            if info.meaning.explains:
                reason = "; ".join(filter(None, (judgement.reason, info.meaning.explains)))
                judgement = replace(judgement, reason=reason)
            found.append((info, _judged(info, values[0], values[1], judgement)))
    found += _predicted([info for info, _ in found], evidence, base, newer)
    run = settle([judged for _, judged in found], limits.false_discovery_rate)
    comparisons = [
        Comparison(
            _explaining(info) if one.evidence else info,
            one.judgement.verdict,
            _value(one.base),
            _value(one.head),
            "" if one.judgement.verdict == "unchanged" and one.exact else one.judgement.reason,
            more=one.judgement.more_pairs if one.judgement.verdict == "inconclusive" else 0,
        )
        for (info, _), one in zip(found, run.judged, strict=True)
    ]
    comparisons.sort(key=lambda c: (ORDER.index(c.verdict), -_weight(c), c.series.key.label))
    most = max(comparisons, key=needs, default=None)
    if most and needs(most):
        each = sum(history.seconds(most.series.key, commit) for commit in (base, newer))
        comparisons[comparisons.index(most)] = replace(most, more_s=most.more * each)
    return Compared(tuple(comparisons), run)


def needs(comparison: Comparison) -> int:
    """How many more measurements would decide it, where an alarm may come of it."""
    return comparison.more if comparison.series.meaning.role == "verdict" else 0


def _judged(info: SeriesInfo, base: float, newer: float, judgement: Judgement) -> Judged:
    return Judged(
        metric=info.meaning.metric or info.key.benchmark,
        subject=subject(info),
        unit=info.meaning.unit,
        base=base,
        head=newer,
        judgement=judgement,
        exact=info.meaning.exact or judgement.test in ("exact", "none"),
        instrument=info.meaning.instrument,
        evidence=info.meaning.role == "evidence",
    )


def _predicted(
    infos: Sequence[SeriesInfo], evidence: Evidence | None, base: str, newer: str
) -> list[tuple[SeriesInfo, Judged]]:
    """The predicted times of all compiled calls, each as a series of its own."""
    found: dict[str, tuple[SeriesInfo, Judged]] = {}
    for info in infos if evidence else ():
        triton = info.key.environment.removeprefix("triton ")
        name, place = subject(info), (info.workload, info.target)
        if evidence and info.meaning.instrument == "compiled" and name not in found:
            time = longer_times.between(evidence, place, triton, (base, newer))
            if time is not None:
                found[name] = _series_of_time(info), of_time(name, time)
    return list(found.values())


def _series_of_time(info: SeriesInfo) -> SeriesInfo:
    """The series that the predicted time would be of, next to one of the same call."""
    meaning = replace(info.meaning, unit="us", better="lower", role="verdict", metric=PREDICTED)
    key = replace(info.key, benchmark=f"compiled.{PREDICTED}")
    return replace(info, key=key, meaning=replace(meaning, exact=True, explains=""))


def _explaining(info: SeriesInfo) -> SeriesInfo:
    return replace(info, meaning=replace(info.meaning, role="evidence"))


def _judge(
    table: Table,
    row: int,
    before_column: int | None,
    after_column: int | None,
    limits: Thresholds,
) -> Judgement:
    if before_column is None or after_column is None:
        which = "base" if before_column is None else "head"
        return _plain("inconclusive", f"{which} was not measured here")
    for which, column in (("base", before_column), ("head", after_column)):
        if table.methods[row, column] == UNASKED:
            return _plain("not applicable", f"nobody asked for it at {which}")
    before, after = (float(table.values[row, c]) for c in (before_column, after_column))
    if after == FAILED and before == FAILED:
        return _plain("unchanged", "fails at both")
    if after == FAILED:
        return _plain("missing", "fails at head")
    if not math.isfinite(after):
        if after == ABSENT and math.isfinite(before):
            return _plain("missing", "has no result at head")
        return _plain("not applicable", _absent(before))
    if not math.isfinite(before):
        if before == FAILED:
            return _plain("improved", "failed at base")
        return _plain("not applicable", "new")
    meaning = table.series[row].meaning
    same = table.methods[row, before_column] == table.methods[row, after_column]
    if not same or table.platforms[before_column] != table.platforms[after_column]:
        return _plain("inconclusive", "the method or the platform changed between the two")
    if meaning.metric == search_space.METRIC and after != before:
        return _plain("inconclusive", search_space.OTHER)
    if meaning.better is None or after == before:
        return _plain("unchanged", "")
    threshold = limits.of(meaning.metric)
    if meaning.exact:
        return judge_exact(before, after, meaning.better, threshold)
    sides = [
        Stored(
            float(table.values[row, column]),
            float(table.low[row, column]),
            float(table.high[row, column]),
        )
        for column in (before_column, after_column)
    ]
    usual, lone = wander(table, row)
    return judge_stored(sides[0], sides[1], meaning.better, threshold, usual, lone)


def _absent(before: float) -> str:
    """Why there is no value at head: of a kernel without matrix products there are tensor-core
    metrics at neither commit."""
    neither = not math.isfinite(before) and before not in (FAILED, ABSENT)
    return "does not apply at either commit" if neither else "head has no such kernel"


def _plain(verdict: Verdict, reason: str) -> Judgement:
    nan = float("nan")
    return Judgement(verdict, nan, (nan, nan), 1.0, 1, nan, "none", "none", reason)


def wander(table: Table, row: int) -> tuple[float, float]:
    """How far results of neighbouring commits lie apart when nothing changed: relative, robust.

    The second is for results of which nothing else is known, NaN where too few tell it: most of
    them may be equal, so what nine of ten do not exceed counts, too.
    """
    present = table.present(row)
    values = table.values[row, present[max(table.borders(row), default=0) :]]
    values = values[np.isfinite(values) & (values > 0)]
    if len(values) < _WANDER_POINTS:
        return 0.0, math.nan
    return spread(values), spread_of_lone(values)


def spread(values: Floats) -> float:
    """How far neighbouring positive values lie apart: relative, robust."""
    return 1.4826 * float(np.median(_apart(values)))


def spread_of_lone(values: Floats) -> float:
    """The same where most may be equal: what nine of ten do not exceed counts, too."""
    return max(spread(values), float(np.quantile(_apart(values), 0.9)) / 1.645)


def _apart(values: Floats) -> Floats:
    found: Floats = np.abs(np.diff(np.log(values))) / math.sqrt(2.0)
    return found


def _value(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _weight(comparison: Comparison) -> float:
    before, after = comparison.before, comparison.after
    if before is None or after is None or before * after <= 0:
        return math.inf
    # Not of the quotient, which may be too small for a float.
    return abs(math.log(abs(after)) - math.log(abs(before)))


def subject(info: SeriesInfo) -> str:
    target = f" @ {info.target}" if info.target else ""
    plain = params(info.key) if info.workload == info.key.benchmark else info.workload
    where = f" on {home(info.key)}" if info.key.machine else ""
    return f"{plain}{target}{where}"
