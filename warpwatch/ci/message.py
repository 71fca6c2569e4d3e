"""A judgement in words: the comment, the check and the verdict file. Nothing is markup but ours."""

from __future__ import annotations

from collections import Counter
from typing import Any

from warpwatch.judge.pairs.commits import Comparison
from warpwatch.report.words import SHAPES, quantity

from .pull_request import Judgement

MARKER = "<!-- warpwatch: the verdict on this pull request -->"
MAX_COMMENT_BYTES = 60_000
SCHEMA_VERSION = 1
_ROWS = 30
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
    """The one comment on the pull request: verdict first, then what to do, then the table."""
    pair = [f"`{commit[:10]}`" for commit in (judgement.base, judgement.head) if commit]
    lines = [MARKER, f"**Warpwatch: {title(judgement)}**", "", " → ".join(pair), ""]
    lines += _problem(judgement)
    lines += [f"- refused: {code(reason, 400)}" for reason in judgement.refused[:20]]
    lines += [f"- missing: {code(name)} delivered nothing" for name in judgement.missing_shards]
    lines += [f"- {note}" for note in judgement.notes]
    if judgement.conclusion == "failure" and not judgement.refused:
        lines += [
            "",
            f"See it locally: `warpwatch compare --recorded {judgement.base[:10]} "
            f"{judgement.head[:10]}`; accept it on purpose: `warpwatch accept "
            f"{_finding(judgement)} --owner NAME --reason WHY`.",
        ]
    elif not judgement.refused and (command := _again(judgement)):
        lines += ["", f"Measure what could not be told once more, both commits: `{command}`."]
    told = [c for c in judgement.comparisons if _is_told(c)]
    lines += _table([c for c in told if not _is_noise(c)])
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
    where = f"{series.workload} @ {series.target}" if series.target else series.workload
    verdict = f"{SHAPES[comparison.verdict]} {comparison.verdict}"
    if comparison.accepted:
        verdict += f", {code(comparison.accepted)}"
    cells = (
        verdict,
        quantity(comparison.before, unit),
        quantity(comparison.after, unit),
        code(series.meaning.metric or series.key.benchmark),
        code(where),
    )
    return f"| {' | '.join(cells)} |"


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[: limit - 100].decode(errors="ignore")
    kept = kept[: kept.rfind("\n")]
    end = f"\n\n{_FOLD_END}" if "\n<details>" in kept else ""
    return f"{kept}\n\nCut here: the rest is in the report.{end}\n"
