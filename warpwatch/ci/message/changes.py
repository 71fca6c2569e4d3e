"""What a comment says of each value that changed: its cost in time, the worst, a chart, a table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from warpwatch.judge.pairs.commits import MOVES, WORSE, Comparison
from warpwatch.judge.pairs.run_verdict import PREDICTED
from warpwatch.report.charts import mermaid
from warpwatch.report.charts.roofs import SECONDS
from warpwatch.report.view import many
from warpwatch.report.words import SHAPES, number, quantity

FOLD_END = "</details>"
_ROWS = 30
_OPEN_ROWS = 8  # of the table; more are folded, as the worst are named above it
_WORST, _BARS, _COSTS = 3, 12, 6
# Units that Markdown shows as they are: in no other can a link, a mention or a cell be written.
_PLAIN_UNIT = re.compile(r"[A-Za-z0-9µ%/ ^-]{0,24}")


def code(value: str, limit: int = 200) -> str:
    """Text of unknown origin as a code span: there no markup, link or mention is read.

    Args:
        value: The text.
        limit: How many of its characters are kept.

    Returns:
        One line of Markdown, which a cell of a table can hold.

    Example:
        >>> code("a | b")
        '`a ¦ b`'
    """
    printable = "".join(c if c.isprintable() else " " for c in value[:limit])
    return f"`{printable.replace('`', chr(39)).replace('|', '¦').strip() or ' '}`"


def costs(comparisons: Sequence[Comparison]) -> list[str]:
    """The time that the changes cost or save, for each metric of time and place: predicted where it
    was compiled, measured where a GPU ran it. Then a chart of the calls that changed.

    Args:
        comparisons: All of a pull request, as those that did not change are a part of the whole.

    Returns:
        Lines of Markdown; none where no time changed.

    Example:
        >>> costs(comparisons)[1]
        '- Predicted on `sm_90`: **14 µs more** for one call of each of 2 workloads, which took ...'
    """
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
        said = "Predicted" if is_compiled(found[0]) else "Measured"
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


def worst(shown: Sequence[Comparison]) -> list[str]:
    """The worst three for the worse, times first: they are what everybody waits for.

    Args:
        shown: What the comment names.

    Returns:
        Lines of Markdown; none where the table says the same as shortly.

    Example:
        >>> worst(shown)[-1]
        '- **▼ regressed**: `bound_us` of `gelu @ sm_90`, 12.66 µs to 25.32 µs, **+100 %**'
    """
    worse = [
        one
        for one in shown
        if one.verdict in WORSE and not (one.accepted or is_noise(one) or is_gone(one))
    ]
    if len(worse) <= _WORST and not any(map(_is_time, worse)):
        return []  # the table is as short
    worse.sort(key=lambda one: not _is_time(one))
    lines = ["", f"Worst of {len(worse)}:" if len(worse) > 1 else "The one that is worse:", ""]
    for one in worse[:_WORST]:
        series, unit = one.series, one.series.meaning.unit
        moved = f"{_amount(one.before, unit)} to {_amount(one.after, unit)}"
        size = f", **{_percent(_ratio(one) - 1)}**" if _has_ratio(one) else ""
        metric = code(series.meaning.metric or series.key.benchmark)
        shape = f"{SHAPES[one.verdict]} {one.verdict}"
        why = f": {code(one.reason, 400)}" if series.meaning.metric == PREDICTED else ""
        lines.append(f"- **{shape}**: {metric} of {named(one)}, {moved}{size}{why}")
    return lines


def foldable(shown: list[Comparison]) -> list[str]:
    """The table, folded where it is long.

    Args:
        shown: A row each, at most.

    Returns:
        Lines of Markdown; none without a row.

    Example:
        >>> foldable(shown)[1]
        '<details><summary>All 36 that changed or cannot be distinguished</summary>'
    """
    if len(_rows(shown)) <= _OPEN_ROWS:
        return table(shown)
    head = f"<details><summary>All {len(shown)} that changed or cannot be distinguished</summary>"
    return ["", head, *table(shown), "", FOLD_END]


def table(shown: list[Comparison]) -> list[str]:
    """The rows that a comment has room for, below their heads.

    Args:
        shown: A row each, at most.

    Returns:
        Lines of Markdown; none without a row.

    Example:
        >>> table(shown)[1]
        '| verdict | base | head | metric | of |'
    """
    if not shown:
        return []
    lines = ["", "| verdict | base | head | metric | of |", "|---|--:|--:|---|---|"]
    rows = _rows(shown)
    lines += rows[:_ROWS]
    more = len(rows) - _ROWS
    return [*lines, "", f"{more} more are in the step summary."] if more > 0 else lines


def row(comparison: Comparison) -> str:
    """One value at both commits, as a row of the table.

    Args:
        comparison: Of the value.

    Returns:
        A line of Markdown, in which each text of unknown origin is a code span.

    Example:
        >>> row(comparison)
        '| ▼ regressed | 1 | 2 | `launches` | `gelu @ sm_90` |'
    """
    series = comparison.series
    unit = series.meaning.unit
    verdict = _label(comparison)
    if comparison.accepted:
        verdict += f", {code(comparison.accepted)}"
    cells = (
        verdict,
        _amount(comparison.before, unit),
        _amount(comparison.after, unit),
        code(series.meaning.metric or series.key.benchmark),
        named(comparison),
    )
    return f"| {' | '.join(cells)} |"


def _rows(shown: Sequence[Comparison]) -> list[str]:
    """A row each; one for many values of a call that one of the commits lacks. Further values of
    the call may be there at both commits."""
    gone = Counter((c.verdict, named(c), c.accepted) for c in shown if is_gone(c))
    rows: dict[object, str] = {}
    for index, one in enumerate(shown):
        call = (one.verdict, named(one), one.accepted)
        if not is_gone(one) or gone[call] <= _WORST:
            rows[index] = row(one)
        elif call not in rows:
            sides = (many(gone[call], "value"), "—")
            base, head = sides if one.after is None else sides[::-1]
            rows[call] = f"| {_label(one)} | {base} | {head} | several | {named(one)} |"
    return list(rows.values())


def _chart(moved: Sequence[Comparison]) -> list[str]:
    """Bars of the calls that moved most, and who they are below, as no name may be in a chart."""
    shown = sorted(moved[:_BARS], key=lambda one: -_ratio(one))
    if len(shown) < 2:
        return []
    more = len(moved) - len(shown)
    lines = ["", *mermaid.shares([_ratio(one) for one in shown]), ""]
    lines += [f"{i}. {named(one)}: {_percent(_ratio(one) - 1)}" for i, one in enumerate(shown, 1)]
    return [*lines, "", f"{more} more moved by less."] if more else lines


def _place(comparison: Comparison) -> tuple[str, str]:
    series = comparison.series
    where = series.target if is_compiled(comparison) else series.key.machine
    return series.meaning.metric or "time", where or series.key.environment


def is_shown(comparison: Comparison) -> bool:
    """Whether a comment names it."""
    if comparison.series.meaning.role == "evidence" and is_gone(comparison):
        return False  # of a call that is not there, nothing has to be explained
    return comparison.verdict not in ("unchanged", "not applicable")


def is_noise(comparison: Comparison) -> bool:
    """What nobody has to act on: evidence, and a noisy metric that may be as at base."""
    meaning = comparison.series.meaning
    return meaning.role == "evidence" or (
        comparison.verdict == "inconclusive" and not meaning.exact
    )


def is_gone(comparison: Comparison) -> bool:
    """Without a value at one of the commits."""
    absent = None in (comparison.before, comparison.after)
    return absent and comparison.verdict in ("missing", "inconclusive")


def _is_time(comparison: Comparison) -> bool:
    """A verdict metric of time of our own code; a target of a measured one names a peer."""
    series = comparison.series
    meaning = series.meaning
    is_ours = is_compiled(comparison) or not series.target
    is_time = meaning.unit in SECONDS and meaning.better == "lower" and meaning.role == "verdict"
    return is_ours and is_time and _has_ratio(comparison)


def is_compiled(comparison: Comparison) -> bool:
    """Whether a compiler gave it, so that it can be had without a GPU."""
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


def _amount(value: float | None, unit: str) -> str:
    """A value with its unit, which whoever wrote the results has named."""
    said = quantity(value, unit)
    return said if _PLAIN_UNIT.fullmatch(unit) else code(said)


def _percent(change: float) -> str:
    size = abs(100 * change)
    return f"{'+' if change > 0 else '−'}{number(float(f'{size:.3g}'))} %"


def named(comparison: Comparison) -> str:
    """The workload and its target, as a code span.

    Args:
        comparison: Of one of its values.

    Returns:
        Markdown.

    Example:
        >>> named(comparison)
        '`gelu @ sm_90`'
    """
    series = comparison.series
    return code(f"{series.workload} @ {series.target}" if series.target else series.workload)


def _label(comparison: Comparison) -> str:
    """The verdict; evidence has none of its own, and says how it moved."""
    if comparison.series.meaning.role == "evidence":
        return f"· evidence: {MOVES.get(comparison.verdict, comparison.verdict)}"
    return f"{SHAPES[comparison.verdict]} {comparison.verdict}"
