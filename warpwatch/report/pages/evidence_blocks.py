"""What a finding's page shows beside its numbers: samples, notes, the card, environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.evidence.measured import CardState
from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.model.core import Change, Finding
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.results.strict_json import Fields, RejectedError, load, parse
from warpwatch.judge.series.changes import ends
from warpwatch.report import words
from warpwatch.report.charts import strips
from warpwatch.report.charts.series import title_of

_MOST_CARDS, _MOST_NOTES = 6, 12
_HEAD_BYTES = 64 * 1024
_TOOLS = {
    "card": "card",
    "driver": "driver",
    "runtime": "CUDA or ROCm runtime",
    "torch": "torch",
    "triton": "Triton",
    "assembler": "assembler",
}

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Samples:
    """Before and after of one noisy series, drawn."""

    title: str
    chart: Markup
    note: str


def samples(judgement: Judgement, finding: Finding) -> Samples | None:
    """The samples of the last good and the first bad commit; where asv kept none, those the
    instruments kept; else the stored intervals."""
    noisy = (c for c in finding.changes if not judgement.info(c.series).meaning.exact)
    change = next(noisy, None)
    if change is None:
        return None
    table, row = judgement.places[change.series]
    info = table.series[row]
    sides = sides_of(judgement, change)
    names = (f"before, {sides[0][:10]}", f"after, {sides[1][:10]}")
    title = title_of(info)
    found = [table.samples(row, commit) or _kept(judgement, info, commit) for commit in sides]
    if all(found):
        note = f"{len(found[0])} and {len(found[1])} samples; the long stroke is their median."
        rows = [strips.of_samples(name, group) for name, group in zip(names, found, strict=True)]
        return Samples(title, strips.draw(rows, info.meaning.unit), note)
    intervals = [
        strip
        for name, commit in zip(names, sides, strict=True)
        for strip in _interval(table, row, commit, name)
    ]
    if len(intervals) < 2:
        return None
    chart = strips.draw(intervals, info.meaning.unit)
    note = "The bar is the 99 % interval of the median; asv kept no single samples."
    return Samples(title, chart, note)


def notes(judgement: Judgement, finding: Finding) -> list[tuple[str, str]]:
    """What was assumed while the finding's calls were recorded, such as that a value which nobody
    computed is 0; each once, with where."""
    evidence = judgement.evidence
    found: dict[str, dict[str, None]] = {}
    for change, info in members_of(judgement, finding):
        for commit in sides_of(judgement, change):
            for triton in tritons_of(evidence, info, commit):
                for place, said in evidence.notes(commit, triton).items():
                    if place[0] == info.workload and info.target in ("", place[1]):
                        for text in said:
                            found.setdefault(text, {})[f"{place[0]} on {place[1]}"] = None
    return [(text, _places(list(where))) for text, where in list(found.items())[:_MOST_NOTES]]


def _places(where: Sequence[str]) -> str:
    more = f" and {len(where) - 3} more" if len(where) > 3 else ""
    return ", ".join(where[:3]) + more


def cards(judgement: Judgement, finding: Finding) -> list[tuple[str, tuple[Row, ...]]]:
    """For each noisy series, the card before and after: clock, power, temperature, throttling."""
    found = []
    for change, info in members_of(judgement, finding):
        key = (info.workload, info.meaning.metric)
        states = [
            judgement.evidence.states(commit).get(key) for commit in sides_of(judgement, change)
        ]
        if any(states):
            before, after = (state or CardState() for state in states)
            title = f"{info.meaning.metric} of {info.workload}"
            found.append((title, tuple(_card_rows(before, after))))
    return found[:_MOST_CARDS]


def measured_on_a_card(judgement: Judgement, finding: Finding) -> bool:
    """By the instrument that keeps the card's state with its times; others know nothing of it."""
    infos = (judgement.info(change.series) for change in finding.changes)
    return any(info.key.machine and info.meaning.instrument == "latency" for info in infos)


def environments(judgement: Judgement, finding: Finding) -> list[Row]:
    """Every field of asv's result files that is not the same before and after, and when either
    was measured."""
    change = finding.changes[0]
    table, _ = judgement.places[change.series]
    sides = []
    for commit in sides_of(judgement, change):
        paths = table.files.get(commit, ())
        sides.append(_fields_of(paths[-1]) if paths else {})
    rows = []
    for name in sorted(sides[0].keys() | sides[1].keys()):
        before, after = (side.get(name, "—") for side in sides)
        if before != after:
            rows.append((name, before, after))
    columns = [table.column_of(commit) for commit in sides_of(judgement, change)]
    times = [int(table.started_ms[column]) if column is not None else 0 for column in columns]
    if all(times):
        before, after = (words.moment(time // 1000) for time in times)
        rows.append(("measured at", before, after))
    return rows


def toolchain(judgement: Judgement, finding: Finding) -> list[Row]:
    """The card, its driver, the packages and the assembler before and after, as evidence keeps
    them: also what is the same, because that it is the same is what a reader asks."""
    change = finding.changes[0]
    info, evidence = judgement.info(change.series), judgement.evidence
    sides: list[dict[str, str]] = []
    for commit in sides_of(judgement, change):
        found = dict(evidence.asked(commit).toolchain) if info.key.machine else {}
        for triton in tritons_of(evidence, info, commit):
            found.setdefault("triton", triton)
            if said := evidence.assembler(commit, triton):
                found["assembler"] = said
        sides.append(found)
    known = [*_TOOLS, *sorted((sides[0].keys() | sides[1].keys()) - _TOOLS.keys())]
    before, after = sides
    return [
        (_TOOLS.get(one, one), before.get(one, words.UNKNOWN), after.get(one, words.UNKNOWN))
        for one in known
        if one in before or one in after
    ]


def sides_of(judgement: Judgement, change: Change) -> tuple[str, str]:
    """The commits before and after a change."""
    return ends(*judgement.places[change.series], change)


def members_of(judgement: Judgement, finding: Finding) -> Iterator[tuple[Change, SeriesInfo]]:
    """The changes of a finding with their series, each workload, target and metric once."""
    seen: set[tuple[str, ...]] = set()
    for change in finding.changes:
        info = judgement.info(change.series)
        key = (info.workload, info.target, info.meaning.metric, change.first_commit)
        if key not in seen and len(seen) < 40:
            seen.add(key)
            yield change, info


def _kept(judgement: Judgement, info: SeriesInfo, commit: str) -> tuple[float, ...]:
    state = judgement.evidence.states(commit).get((info.workload, info.meaning.metric))
    return state.us if state and info.meaning.unit == "us" else ()


def _interval(table: Table, row: int, commit: str, name: str) -> Iterator[strips.Strip]:
    column = table.column_of(commit)
    if column is not None:
        found = (table.low[row, column], table.values[row, column], table.high[row, column])
        low, value, high = map(float, found)
        if np.isfinite(found).all():
            yield strips.Strip(name, value, interval=(low, high))


def tritons_of(evidence: Evidence, info: SeriesInfo, commit: str) -> Sequence[str]:
    """A compiled series belongs to one Triton version; a measured one may have run with any."""
    known = evidence.tritons(commit)
    own = info.key.environment.removeprefix("triton ")
    return [own] if own in known else known if info.key.machine else ()


def _card_rows(before: CardState, after: CardState) -> Iterator[Row]:
    for name, unit, values in (
        ("SM clock", "MHz", (before.mhz, after.mhz)),
        ("power", "W", (before.power_w, after.power_w)),
        ("temperature", "°C", (before.temperature_c, after.temperature_c)),
    ):
        if any(values):
            yield (name, _spread(values[0], unit), _spread(values[1], unit))
    reasons = [", ".join(state.throttled) or "no" for state in (before, after)]
    yield ("throttled", reasons[0], reasons[1])
    yield ("samples", _counted(before), _counted(after))


def _counted(state: CardState) -> str:
    apart = state.sampling.set_apart
    return f"{len(state.us)}, {apart} more set apart" if apart else str(len(state.us))


def _spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return "—"
    low, middle, high = np.quantile(np.array(values), (0.0, 0.5, 1.0)).tolist()
    if f"{low:.0f}" == f"{high:.0f}":
        return f"{middle:.0f} {unit}"
    return f"{middle:.0f} {unit} ({low:.0f} to {high:.0f})"


def _fields_of(path: Path) -> dict[str, str]:
    """What a result file says of where it was measured: machine, packages, variables."""
    data = _head_of(path)
    fields = Fields(data, [])
    found = dict(fields.texts("params"))
    found |= {f"{name} package": value for name, value in fields.texts("requirements").items()}
    found |= {f"${name}": value for name, value in fields.texts("env_vars").items()}
    environment = fields.string("env_name")
    return found | ({"environment": environment} if environment else {})


def _head_of(path: Path) -> dict[str, Any]:
    """A result file without its results, which are nearly all of it and come last."""
    try:
        with path.open("rb") as file:
            head, results, _ = file.read(_HEAD_BYTES).partition(b'"result_columns"')
        data: Any = parse(path, head.rstrip().rstrip(b",") + b"}") if results else load(path)
    except (OSError, RejectedError):
        return {}
    return data if isinstance(data, dict) else {}
