"""A judgement in words: the comment, the check and the verdict file. Nothing is markup but ours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from warpwatch.judge.pairs.commits import Comparison, needs
from warpwatch.judge.pairs.run_verdict import PREDICTED
from warpwatch.report.charts import mermaid
from warpwatch.report.charts.roofs import SECONDS
from warpwatch.report.view import many
from warpwatch.report.words import SHAPES, legend, number, quantity

from .pull_request import Judgement

MARKER = "<!-- warpwatch: the verdict on this pull request -->"
MAX_COMMENT_BYTES = 60_000
SCHEMA_VERSION = 1
_ROWS = 30
_OPEN_ROWS = 8  # of the table; more are folded, as the worst are named above it
_WORST, _BARS, _COSTS = 3, 12, 6
_FOLD_END = "</details>"
_WORDS = {
    "success": "no regression",
    "failure": "regressed",
    "neutral": "inconclusive",
    "action_required": "not all was measured",
}


def code(value: str, limit: int = 200) -> str:
    """Text of unknown origin as a code span: there no markup, link or mention is read."""
    printable = "".join(c if c.isprintable() else " " for c in value[:limit])
    return f"`{printable.replace('`', chr(39)).replace('|', '¦').strip() or ' '}`"


def title(judgement: Judgement) -> str:
    """The verdict in one line."""
    counts = _counts(judgement)
    if judgement.problem:
        return "could not judge: the judge itself has failed"
    if judgement.refused:
        return f"refused: {judgement.refusal}"
    words = [f"{count} {word}" for word, count in counts.items()]
    if not judgement.comparisons and judgement.conclusion == "success":
        words = ["the measured package is the same"]
    if shards := len(judgement.missing_shards):
        words.append(f"{shards} {'shard' if shards == 1 else 'shards'} missing")
    return f"{_WORDS[judgement.conclusion]}: {', '.join(words) or 'nothing was measured'}"


def comment(judgement: Judgement, report_url: str = "") -> str:
    """The one comment on the pull request: the verdict, what it costs, the worst three, what to do,
    and the table."""
    pair = [f"`{commit[:10]}`" for commit in (judgement.base, judgement.head) if commit]
    lines = [MARKER, f"**Warpwatch: {title(judgement)}**", "", " → ".join(pair), ""]
    lines += _problem(judgement)
    lines += [f"- refused: {code(reason, 400)}" for reason in judgement.refused[:20]]
    lines += [f"- missing: {code(name)} delivered nothing" for name in judgement.missing_shards]
    lines += [f"- {note}" for note in judgement.notes]
    told = [c for c in judgement.comparisons if _is_told(c)]
    lines += _costs(judgement.comparisons)
    lines += _worst(told)
    if judgement.conclusion == "failure" and not judgement.refused:
        lines += [
            "",
            f"See it locally: `warpwatch compare --recorded {judgement.base[:10]} "
            f"{judgement.head[:10]}`; accept it on purpose: `warpwatch accept "
            f"{_finding(judgement)} --owner NAME --reason WHY`.",
        ]
    elif not judgement.refused and (command := _again(judgement)):
        lines += ["", f"Measure what could not be told once more, both commits: `{command}`."]
        lines += _more(judgement.comparisons)
    lines += _foldable([c for c in told if not _is_noise(c)])
    for line in legend(c.verdict for c in told):
        lines += ["", f"*{line}*"]
    if report_url:
        lines += ["", f"[The run]({report_url})"]
    noisy = [c for c in told if _is_noise(c)]
    if noisy:
        lines += ["", f"<details><summary>{len(noisy)} noisy metrics that cannot be told"]
        lines[-1] += " apart, or only explain</summary>"
        lines += [*_table(noisy), "", _FOLD_END]
    return _cut("\n".join(lines) + "\n", MAX_COMMENT_BYTES)


def summary(judgement: Judgement) -> str:
    """The step summary: every verdict that is not `unchanged`."""
    lines = [f"## {title(judgement)}", "", *_problem(judgement)]
    lines += [f"- refused: {code(reason, 400)}" for reason in judgement.refused]
    lines += [f"- {note}" for note in judgement.notes]
    told = [c for c in judgement.comparisons if c.verdict != "unchanged"]
    lines += ["", "| verdict | base | head | metric | of |", "|---|--:|--:|---|---|"]
    return _cut("\n".join([*lines, *(_row(c) for c in told)]) + "\n", 900_000)


def document(judgement: Judgement) -> dict[str, Any]:
    """The verdict file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "conclusion": judgement.conclusion,
        "base": judgement.base,
        "head": judgement.head,
        "counts": dict(_counts(judgement)),
        "missing_shards": list(judgement.missing_shards),
        "refused": list(judgement.refused),
        "notes": list(judgement.notes),
        "problem": judgement.problem,
    }


def _problem(judgement: Judgement) -> list[str]:
    if not judgement.problem:
        return []
    return [
        f"- {code(judgement.problem, 400)}",
        "- this says nothing about the pull request: run the job again, and report it if it stays",
    ]


def _finding(judgement: Judgement) -> str:
    """The first finding that nobody accepted; only a history on the branch knows findings."""
    for one in judgement.comparisons:
        if one.findings and not one.accepted:
            return one.findings[0]
    return "FINDING"


def _again(judgement: Judgement) -> str:
    """What measures the two commits side by side; "" where nothing is inconclusive."""
    open_ = [
        c.series
        for c in judgement.comparisons
        if c.verdict == "inconclusive" and c.series.meaning.role == "verdict"
    ]
    if not open_:
        return ""
    pair = f"{judgement.base[:10]} {judgement.head[:10]}"
    # Our own tool knows our instruments alone; the names of others are not trusted in a command.
    ours = any(series.meaning.instrument for series in open_)
    return f"warpwatch compare {pair}" if ours else f"asv continuous {pair}"


def _more(comparisons: Sequence[Comparison]) -> list[str]:
    """Of what could not be told: how much more of the same would tell the one that needs most."""
    one = max(comparisons, key=needs, default=None)
    if one is None or not needs(one):
        return []
    metric = code(one.series.meaning.metric or one.series.key.benchmark)
    times = many(one.more, "more measurement") + " like these"
    if one.more_s:
        times = f"{max(one.more_s, 1.0):,.0f} s of measuring, {times},"
    return [f"{metric} of {_named(one)} is the noisiest: about {times} would decide it."]


def _counts(judgement: Judgement) -> Counter[str]:
    return Counter(c.verdict for c in judgement.comparisons if c.series.meaning.role == "verdict")


def _is_told(comparison: Comparison) -> bool:
    return comparison.verdict not in ("unchanged", "not applicable")


def _is_noise(comparison: Comparison) -> bool:
    """What nobody has to act on: evidence, and a noisy metric that cannot be told from base."""
    meaning = comparison.series.meaning
    return meaning.role == "evidence" or (
        comparison.verdict == "inconclusive" and not meaning.exact
    )


def _costs(comparisons: Sequence[Comparison]) -> list[str]:
    """The time that the changes cost or save, for each metric of time and place: predicted where it
    was compiled, measured where a GPU ran it. Then a chart of the calls that changed."""
    places: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        if _is_time(one):
            places.setdefault(_place(one), []).append(one)
    lines, bars = [], []
    for (metric, place), found in places.items():
        moved = [one for one in found if one.verdict in ("regressed", "improved")]
        if not moved:
            continue
        bars += moved
        unit = found[0].series.meaning.unit
        whole = sum(one.before or 0.0 for one in found)
        added = sum((one.after or 0.0) - (one.before or 0.0) for one in moved)
        said = "Predicted" if _is_predicted(found[0]) else "Measured"
        verb = "more" if added > 0 else "less"
        lines.append(
            f"- {said} on {code(place)}: **{quantity(abs(added), unit)} {verb}** for one call of "
            f"each of {many(len(found), 'workload')}, which took {quantity(whole, unit)} at base "
            f"(**{_percent(added / whole)}**, {code(metric)})"
        )
    if len(lines) > _COSTS:
        lines = [*lines[:_COSTS], f"- and on {len(lines) - _COSTS} more"]
    bars.sort(key=lambda one: -abs(math.log(_ratio(one))))
    return ["", *lines, *_chart(bars)] if lines else []


def _chart(moved: Sequence[Comparison]) -> list[str]:
    """Bars of the calls that moved most, and who they are below, as no name may be in a chart."""
    shown = sorted(moved[:_BARS], key=lambda one: -_ratio(one))
    if len(shown) < 2:
        return []
    more = len(moved) - len(shown)
    lines = ["", *mermaid.shares([_ratio(one) for one in shown]), ""]
    lines += [f"{i}. {_named(one)}: {_percent(_ratio(one) - 1)}" for i, one in enumerate(shown, 1)]
    return [*lines, "", f"{more} more moved by less."] if more else lines


def _worst(told: Sequence[Comparison]) -> list[str]:
    """The worst three for the worse, times first: they are what everybody waits for."""
    worse = [
        one
        for one in told
        if one.verdict in ("regressed", "missing") and not one.accepted and not _is_noise(one)
    ]
    if len(worse) <= _WORST and not any(map(_is_time, worse)):
        return []  # the table is as short
    worse.sort(key=lambda one: not _is_time(one))
    lines = ["", f"Worst of {len(worse)}:" if len(worse) > 1 else "The one that is worse:", ""]
    for one in worse[:_WORST]:
        series, unit = one.series, one.series.meaning.unit
        moved = f"{quantity(one.before, unit)} to {quantity(one.after, unit)}"
        size = f", **{_percent(_ratio(one) - 1)}**" if _has_ratio(one) else ""
        metric = code(series.meaning.metric or series.key.benchmark)
        shape = f"{SHAPES[one.verdict]} {one.verdict}"
        why = f": {code(one.reason, 400)}" if series.meaning.metric == PREDICTED else ""
        lines.append(f"- **{shape}**: {metric} of {_named(one)}, {moved}{size}{why}")
    return lines


def _is_time(comparison: Comparison) -> bool:
    """A verdict metric of time of our own code; a target of a measured one names a peer."""
    series = comparison.series
    meaning = series.meaning
    is_ours = _is_predicted(comparison) or not series.target
    is_time = meaning.unit in SECONDS and meaning.better == "lower" and meaning.role == "verdict"
    return is_ours and is_time and _has_ratio(comparison)


def _is_predicted(comparison: Comparison) -> bool:
    return comparison.series.meaning.instrument == "compiled"


def _has_ratio(comparison: Comparison) -> bool:
    sides = (comparison.before, comparison.after)
    return all(one is not None and math.isfinite(one) and one > 0 for one in sides)


def _ratio(comparison: Comparison) -> float:
    """Head over base, within what a float and a chart can hold."""
    before, after = comparison.before, comparison.after
    if not before or not after:
        return 1.0
    return math.exp(min(max(math.log(after) - math.log(before), -20.0), 20.0))


def _percent(change: float) -> str:
    size = abs(100 * change)
    return f"{'+' if change > 0 else '−'}{number(float(f'{size:.3g}'))} %"


def _place(comparison: Comparison) -> tuple[str, str]:
    series = comparison.series
    where = series.target if _is_predicted(comparison) else series.key.machine
    return series.meaning.metric or "time", where or series.key.environment


def _named(comparison: Comparison) -> str:
    series = comparison.series
    return code(f"{series.workload} @ {series.target}" if series.target else series.workload)


def _foldable(told: list[Comparison]) -> list[str]:
    if len(told) <= _OPEN_ROWS:
        return _table(told)
    head = f"<details><summary>All {len(told)} that changed or cannot be told apart</summary>"
    return ["", head, *_table(told), "", _FOLD_END]


def _table(told: list[Comparison]) -> list[str]:
    if not told:
        return []
    lines = ["", "| verdict | base | head | metric | of |", "|---|--:|--:|---|---|"]
    lines += [_row(c) for c in told[:_ROWS]]
    more = len(told) - _ROWS
    return [*lines, "", f"{more} more are in the step summary."] if more > 0 else lines


def _row(comparison: Comparison) -> str:
    series = comparison.series
    unit = series.meaning.unit
    verdict = f"{SHAPES[comparison.verdict]} {comparison.verdict}"
    if comparison.accepted:
        verdict += f", {code(comparison.accepted)}"
    cells = (
        verdict,
        quantity(comparison.before, unit),
        quantity(comparison.after, unit),
        code(series.meaning.metric or series.key.benchmark),
        _named(comparison),
    )
    return f"| {' | '.join(cells)} |"


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[: limit - 100].decode(errors="ignore")
    kept = kept[: kept.rfind("\n")]
    is_open = kept.count("\n<details>") > kept.count(f"\n{_FOLD_END}")
    end = f"\n\n{_FOLD_END}" if is_open else ""
    return f"{kept}\n\nCut here: the rest is in the report.{end}\n"
