"""How values, ratios, times and verdicts read on a page; shapes so that colour is never needed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from warpwatch.judge.model.core import MEANINGS, Change, Finding, Verdict
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.judge.series.noise import MEANING as NOISE_MEANING
from warpwatch.judge.series.noise import Noise

SHAPES = {
    "regressed": "▼",
    "hurt": "▼",
    "improved": "▲",
    "helped": "▲",
    "missing": "✕",
    "lost": "✕",
    "gained": "✚",
    "other space": "◇",
    "unchanged": "●",
    "mixed": "◆",
    "inconclusive": "◇",
    "not applicable": "○",
}
_GONE = "no value any more"
# Of what could speak against a value.
NOTHING, UNKNOWN = "nothing", "not kept"
_LEAST_NOISE = 20  # points; one outlier among fewer would make a class
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def number(value: float) -> str:
    """At most four significant digits, whole numbers in full."""
    if not math.isfinite(value):
        return "—"
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    if 1e4 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.3e}"


def quantity(value: float | None, unit: str) -> str:
    """``value`` with its unit, in the prefix one would say aloud."""
    if value is None or not math.isfinite(value):
        return "—"
    if unit in ("seconds", "s"):
        return _scaled(value, _SECONDS)
    if unit in ("bytes", "B"):
        return _scaled(value, _BYTES)
    if unit == "hash":
        return f"{int(value):08x}" if value else "none"
    if unit in ("", "unit", "count", "level", "ratio"):
        return number(value)
    return f"{number(value)} {'µs' if unit == 'us' else unit}"


def _scaled(value: float, prefixes: tuple[tuple[float, str], ...]) -> str:
    for factor, prefix in prefixes:
        if abs(value) >= factor:
            return f"{number(value / factor)} {prefix}"
    factor, prefix = prefixes[-1]
    return f"{number(value / factor)} {prefix}"


def size(change: Change, unit: str) -> str:
    """How much a change of values in ``unit`` changed: percent, or a factor where percent would be
    unreadable."""
    step = change.step
    if kind(change) == "other space":
        return "another"
    if math.isnan(step.before) or math.isnan(step.after):
        return ""  # gained or lost: the word says it all
    if step.before == 0:
        return f"from 0 to {quantity(step.after, unit)}"
    if change.ratio >= 3:
        return f"{change.ratio:.3g}x"
    return f"{100 * (change.ratio - 1):+.3g} %"


def share(value: float) -> str:
    """A relative change as percent, as far as percent can be read."""
    if not math.isfinite(value):
        return "no change"
    return f"{value:.1%}" if value < 10.0 else "only a change of more than 1000 %"


def headed(change: Change, unit: str, status: str) -> str:
    """The size of the largest change of a finding and whether it stays, in a sentence."""
    found = size(change, unit)
    if kind(change) == "other space":
        return "which configuration is faster a GPU must say"
    if not found:
        return "no value for a while, recovered since" if status == "recovered" else _GONE
    stays = {"open": "still there", "recovered": "recovered since", "improved": "an improvement"}
    return f"{found} at most; {stays[status]}"


def opened(text: str) -> str:
    """As a sentence begins: only its first letter is changed."""
    return text[:1].upper() + text[1:]


def stake(finding: Finding, status: str) -> str:
    """What a finding costs or saves."""
    verb = "saves" if status == "improved" else "costs" if status == "open" else "cost"
    return f"{verb} {quantity(finding.cost, 'seconds')} a run of the suite"


def shown(bounds: Sequence[str], *, is_time: bool) -> str:
    """What charts of calls show: without a GPU a time is a bound, on the first of the targets."""
    if bounds:
        return f"not timed: the least time that {bounds[0]} needs, read from code,"
    return "time" if is_time else "value"


# Units of time, as asv's benchmarks and ours name them.
TIMES = frozenset({"s", "seconds", "ms", "us", "ns"})
# Of each kind of change the verdict: the kinds themselves are read by programs only.
WORDS: Mapping[Kind, str] = {
    "hurt": "regressed",
    "lost": "missing",
    "helped": "improved",
    "gained": "new",
    "other space": "other space",
}


def word(change: Change) -> str:
    """The verdict of a change, as a comparison of two commits has it; *new* where a value begins
    that had not failed before."""
    found = kind(change)
    judged = found == "lost" or (found == "gained" and change.verdict == "improved")
    return change.verdict if judged else WORDS[found]


def each_word(changes: Iterable[Change]) -> str:
    """The verdicts of several changes, each once.

    Args:
        changes: Such as those of one kind at a commit.

    Returns:
        Such as "missing" or "missing, not applicable".

    Example:
        >>> each_word(gone)  # one failed, one does not apply any more
        'missing, not applicable'
    """
    return ", ".join(dict.fromkeys(map(word, changes)))


_UNEXPLAINED: tuple[Verdict, ...] = ("missing", "mixed", "inconclusive", "not applicable")


def legend(found: Iterable[Verdict]) -> list[str]:
    """Say what the verdicts of a table mean, where their words do not say it.

    Args:
        found: The verdicts of all rows.

    Returns:
        A line for each such verdict among them, in one order.

    Example:
        >>> legend(["regressed", "missing", "missing"])
        ['missing: base has a value, and head has none or fails']
    """
    known = set(found)
    return [f"{one}: {MEANINGS[one]}" for one in _UNEXPLAINED if one in known]


def noise(found: Noise, brief: bool) -> str:
    """The noise of a series: its class, what that means, how large it is, how it is judged."""
    if found.points < _LEAST_NOISE:
        have = f"{found.points} commit{'s are' if found.points != 1 else ' is'} too few"
        return f"Noise: {have} to say of which kind; {_LEAST_NOISE} would tell."
    size = f"{100 * found.sigma:.2g} %" if found.sigma < 1 else f"{found.sigma:.3g}"
    if brief:
        return f"Noise: {found.kind}, {size}"
    how = {"pairs": "pairs of neighbours", "distribution": "whole distributions"}
    judged = how.get(found.test, "levels")
    return (
        f"Noise: {found.kind} ({NOISE_MEANING[found.kind]}), {size} of the level over "
        f"{found.points} commits; a gate compares {judged}."
    )


@lru_cache(maxsize=4096)
def day(time_s: int) -> str:
    return _time("%Y-%m-%d", time_s)


def moment(time_s: int) -> str:
    return _time("%Y-%m-%d %H:%M UTC", time_s)


def _time(form: str, time_s: int) -> str:
    try:
        return time.strftime(form, time.gmtime(time_s))
    except (OverflowError, OSError, ValueError):
        return "unknown"
