"""A judgement in words: the comment, the check and the verdict file. Nothing is markup but ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from warpwatch.ci.pull_request import Judgement
from warpwatch.judge.pairs.commits import WORSE, Comparison, needs
from warpwatch.report.view import many
from warpwatch.report.words import legend

from .changes import (
    FOLD_END,
    code,
    costs,
    foldable,
    is_compiled,
    is_gone,
    is_noise,
    is_shown,
    named,
    row,
    table,
    worst,
)

MARKER = "<!-- warpwatch: the verdict on this pull request -->"
MAX_COMMENT_BYTES = 60_000
SCHEMA_VERSION = 1
_MOST_REASONS = 8
_WORDS = {
    "success": "no regression",
    "failure": "regressed",
    "neutral": "inconclusive",
    "action_required": "not all was measured",
}


def title(judgement: Judgement) -> str:
    """The verdict in one line.

    Args:
        judgement: The verdict.

    Returns:
        A line without any text of unknown origin.

    Example:
        >>> title(judgement)
        'regressed: 4 regressed, 10 unchanged'
    """
    if judgement.problem:
        return "could not judge: the judge itself has failed"
    if judgement.refused:
        return f"refused: {judgement.refusal}"
    counts = Counter(map(_word, _judged(judgement)))
    words = [f"{count} {word}" for word, count in counts.items()]
    if not judgement.comparisons and judgement.conclusion == "success":
        words = ["the measured package is the same"]
    if shards := len(judgement.missing_shards):
        words.append(f"{shards} {'shard' if shards == 1 else 'shards'} missing")
    return f"{_WORDS[judgement.conclusion]}: {', '.join(words) or 'nothing was measured'}"


def comment(judgement: Judgement, report_url: str = "") -> str:
    """The one comment on the pull request: the verdict, its cost, the worst three, what to do, and
    the table.

    Args:
        judgement: The verdict.
        report_url: Where the report is, if anywhere.

    Returns:
        Markdown of at most ``MAX_COMMENT_BYTES``.

    Example:
        >>> comment(judgement).splitlines()[1]
        '**Warpwatch: regressed: 4 regressed, 10 unchanged**'
    """
    pair = [f"`{commit[:10]}`" for commit in (judgement.base, judgement.head) if commit]
    lines = [MARKER, f"**Warpwatch: {title(judgement)}**", "", " → ".join(pair), ""]
    lines += _problem(judgement)
    lines += [f"- refused: {code(reason, 400)}" for reason in judgement.refused[:20]]
    lines += [f"- missing: {code(name)} delivered nothing" for name in judgement.missing_shards]
    lines += [f"- {note}" for note in judgement.notes]
    lines += _lost(judgement)
    shown = [c for c in judgement.comparisons if is_shown(c)]
    lines += costs(judgement.comparisons)
    lines += worst(shown)
    if judgement.conclusion == "failure" and not judgement.refused:
        lines += ["", _advice(judgement)]
    elif not judgement.refused and (command := _again(judgement)):
        lines += ["", f"Measure once more what could not be decided, both commits: `{command}`."]
        lines += _more(judgement.comparisons)
    lines += foldable([c for c in shown if not is_noise(c)])
    for line in legend(c.verdict for c in shown):
        lines += ["", f"*{line}*"]
    if report_url:
        lines += ["", f"[The run]({report_url})"]
    folded = [c for c in shown if is_noise(c)]
    if folded:
        explain = sum(c.series.meaning.role == "evidence" for c in folded)
        noisy = len(folded) - explain
        parts = [f"{many(noisy, 'noisy metric')} that cannot be distinguished"] if noisy else []
        parts += [f"evidence, which raises no alarm: {many(explain, 'value')}"] if explain else []
        lines += ["", f"<details><summary>{'; '.join(parts)}</summary>"]
        lines += [*table(folded), "", FOLD_END]
    return _cut("\n".join(lines) + "\n", MAX_COMMENT_BYTES)


def summary(judgement: Judgement) -> str:
    """The step summary: every verdict that is not `unchanged`.

    Args:
        judgement: The verdict.

    Returns:
        Markdown of less than the megabyte that GitHub takes.

    Example:
        >>> summary(judgement).splitlines()[0]
        '## regressed: 4 regressed, 10 unchanged'
    """
    lines = [f"## {title(judgement)}", "", *_problem(judgement)]
    lines += [f"- refused: {code(reason, 400)}" for reason in judgement.refused]
    lines += [f"- {note}" for note in judgement.notes]
    lines += _lost(judgement)
    shown = [c for c in judgement.comparisons if c.verdict != "unchanged"]
    lines += ["", "| verdict | base | head | metric | of |", "|---|--:|--:|---|---|"]
    lines += map(row, shown)
    for line in legend(c.verdict for c in shown):
        lines += ["", f"*{line}*"]
    return _cut("\n".join(lines) + "\n", 900_000)


def document(judgement: Judgement) -> dict[str, Any]:
    """The verdict file.

    Args:
        judgement: The verdict.

    Returns:
        What JSON can hold, texts of unknown origin as they came.

    Example:
        >>> document(judgement)["counts"]
        {'regressed': 4, 'unchanged': 10}
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "conclusion": judgement.conclusion,
        "base": judgement.base,
        "head": judgement.head,
        "counts": dict(Counter(c.verdict for c in _judged(judgement))),
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


def _lost(judgement: Judgement) -> list[str]:
    lines = [f"- at head: {code(reason, 400)}" for reason in judgement.lost[:_MOST_REASONS]]
    more = len(judgement.lost) - _MOST_REASONS
    return [*lines, f"- and {many(more, 'more reason')}"] if more > 0 else lines


def _advice(judgement: Judgement) -> str:
    """What the author of a regression does. Only who has the results at hand knows findings: a pull
    request's own begins when the default branch has measured it."""
    for one in judgement.comparisons:
        if one.findings and not one.accepted:
            return (
                f"See it locally: `warpwatch compare --recorded {_pair(judgement)}`; accept it on "
                f"purpose: `warpwatch accept {one.findings[0]} --owner NAME --reason WHY`."
            )
    worse = [c for c in _judged(judgement) if c.verdict in WORSE and not c.accepted]
    return (
        f"See it locally: `{_measured_again(judgement, worse)}`. If it is meant, merge it over "
        "this check; its finding can be accepted when the default branch has measured it."
    )


def _again(judgement: Judgement) -> str:
    """What measures the two commits side by side; "" where nothing is inconclusive. A commit that
    was not measured is measured by its own job."""
    open_ = [c for c in _judged(judgement) if c.verdict == "inconclusive" and not is_gone(c)]
    return _measured_again(judgement, open_) if open_ else ""


def _measured_again(judgement: Judgement, open_: Sequence[Comparison]) -> str:
    # Our own tool knows our instruments only; the names of others are not trusted in a command.
    if not any(c.series.meaning.instrument for c in open_):
        return f"asv continuous {_pair(judgement)}"
    compiled = " --compiled-only" if all(map(is_compiled, open_)) else ""
    return f"warpwatch compare{compiled} {_pair(judgement)}"


def _pair(judgement: Judgement) -> str:
    return f"{judgement.base[:10]} {judgement.head[:10]}"


def _more(comparisons: Sequence[Comparison]) -> list[str]:
    """How many more values like these would decide the comparison that needs most."""
    one = max(comparisons, key=needs, default=None)
    if one is None or not needs(one):
        return []
    metric = code(one.series.meaning.metric or one.series.key.benchmark)
    times = many(one.more, "more measurement") + " like these"
    if one.more_s:
        times = f"{max(one.more_s, 1.0):,.0f} s of measuring, {times},"
    return [f"{metric} of {named(one)} is the noisiest: about {times} would decide it."]


def _word(comparison: Comparison) -> str:
    """The verdict as a title counts it: "no regression: 6 regressed" would contradict itself where
    all were accepted, and no value that is not there can be compared."""
    if comparison.accepted:
        return "accepted"
    is_open = comparison.verdict == "inconclusive"
    return "not measured" if is_open and is_gone(comparison) else comparison.verdict


def _judged(judgement: Judgement) -> list[Comparison]:
    return [c for c in judgement.comparisons if c.series.meaning.role == "verdict"]


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[: limit - 100].decode(errors="ignore")
    kept = kept[: kept.rfind("\n")]
    is_open = kept.count("\n<details>") > kept.count(f"\n{FOLD_END}")
    end = f"\n\n{FOLD_END}" if is_open else ""
    return f"{kept}\n\nCut here: the rest is in the report.{end}\n"
