"""The gates' part of the scorecard: what they say of pairs, with and without a prior."""

from __future__ import annotations

from collections.abc import Sequence

from warpwatch.judge.model import short_calls
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.prior import MOST_WEIGHT
from warpwatch.judge.statistics.recorded import Recording

from . import error_rates
from .error_rates import Noise
from .tables import SEED, share, table, tell

HEADING = "## The gate of a pull request: at most 24 pairs\n"
_OURS, _SHORT = "recorded H200, ours above 20 us", "recorded H200, ours below 20 us"
_BY_TIME = f"{_SHORT}, where nobody counts"
_LOGNORMAL = "lognormal 1 %"
_WITH_PRIORS = (_LOGNORMAL, _OURS, _SHORT)
# By how many times the truth a prior says how far runs lie apart.
_TOLD = (("right", 1.0), ("0.2 times", 0.2), ("5 times", 5.0))
_HEADS = ("head slower by", "gates", "regressed", "improved", "pairs, mean / most",
          f"decided in {Plan.first}")  # fmt: skip


def section(recorded: Sequence[Recording], gates: int, again: str = "") -> str:
    """The tables.

    Args:
        recorded: Runs of a real card.
        gates: How many a row.
        again: Says that this part was measured by a run of its own.

    Returns:
        Markdown from the heading on.
    """
    pools = _pools(recorded)
    lines = [_row((name,), pool, change, gates) for name, pool, changes in pools
             for change in changes]  # fmt: skip
    known = [
        _row((name, said), pool, change, gates, times)
        for name, pool, changes in pools
        if name in _WITH_PRIORS
        for said, times in _TOLD
        for change in changes
    ]
    return (
        HEADING
        + f"\n{again}"
        + "*Regressed* is the power where head is slower, and a false alarm where it is not.\n"
        "The range holds the true rate with 95 %.\n\n"
        + table(["noise", *_HEADS], lines)
        + "\n*Ours* leaves out cuBLAS and cuDNN, which no pull request changes.\n"
        "Each recording is judged as the product judges: calls below 20 us by `kernel_cycles`,\n"
        "where they were counted, all others by their time.\n"
        "\n### With a prior\n\n"
        f"A prior has {MOST_WEIGHT:.0f} degrees of freedom at most, as much as four pairs show.\n"
        "Runs that lie far further apart than it says, or far closer, refute it: then the gate\n"
        "judges all pairs without it.\n\n" + table(["noise", "the prior says", *_HEADS], known)
    )


def renewed(page: str, recorded: Sequence[Recording], gates: int, versions: str) -> str:
    """A written page with its gates' part measured again.

    Args:
        page: The page.
        recorded: Runs of a real card.
        gates: How many a row.
        versions: With which software.

    Returns:
        The page; the part says which run wrote it.

    Raises:
        ValueError: The page has no such part.
    """
    before, heading, rest = page.partition(HEADING)
    if not heading:
        raise ValueError("the page has no part on gates: it is no scorecard")
    _, mark, after = rest.partition("\n## ")
    again = (
        f"Measured again by `warpwatch scorecard --only-gates --gates {gates}`\n({versions}).\n\n"
    )
    return before + section(recorded, gates, again) + mark + after


def _pools(recorded: Sequence[Recording]) -> list[tuple[str, list[Noise], tuple[float, ...]]]:
    """Each noise by its name, and by how much head is slower."""
    ours = [one for one in recorded if "@" not in one.workload]
    short = [one for one in ours if one.us < short_calls.SHORT_US]
    counted = [one for one in short if one.metric == short_calls.CYCLES]
    found: list[tuple[str, list[Noise], tuple[float, ...]]] = [
        (_LOGNORMAL, [error_rates.made("lognormal", 0.01)], (0.02, 0.0)),
        ("gpu-like 1 %", [error_rates.made("gpu-like", 0.01)], (0.02, 0.0)),
        ("lognormal 0.5 %", [error_rates.made("lognormal", 0.005)], (0.02, 0.03)),
    ]
    for name, pool, changes in (
        ("recorded H200, all workloads", list(recorded), (0.0, 0.02)),
        (
            "recorded H200, spread up to 1.5 %",
            [one for one in recorded if one.spread <= 0.015],
            (0.0, 0.02),
        ),
        (_OURS, [one for one in ours if one not in short], (0.0, 0.02)),
        (_SHORT, counted, (0.0, 0.04)),
        (_BY_TIME, [one.by_time for one in short], (0.0, 0.04)),
    ):
        if pool:
            found.append((name, [one.resampled for one in pool], changes))
    return found


def _row(
    names: tuple[str, ...],
    pool: Sequence[Noise],
    change: float,
    gates: int,
    told: float | None = None,
) -> list[str]:
    metric = short_calls.CYCLES if names[0] == _SHORT else short_calls.TIME
    rate = error_rates.gates(pool, change, gates, SEED, told, metric)
    tell(f"gates: {', '.join(names)}, change {change:.0%}")
    return [
        *names,
        f"{change:.0%}",
        f"{rate.gates}",
        share(rate.regressed, rate.gates),
        share(rate.improved, rate.gates),
        f"{rate.pairs:.1f} / {rate.most_pairs}",
        f"{rate.first_batch / rate.gates:.1%}",
    ]
