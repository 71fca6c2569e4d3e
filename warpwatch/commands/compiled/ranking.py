"""Every configuration of an autotuned kernel, the one with the shortest predicted time first.

Where a target has no prediction the bound takes its place. It is no time: it says which
configurations cannot be fast, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from warpwatch.instruments.compiled.measure import jobs
from warpwatch.instruments.compiled.schedule import machines, prediction
from warpwatch.judge.predicted import interval

MOST = 64  # configurations of one call


def others(results: Sequence[jobs.Result]) -> list[jobs.Job]:
    """The jobs that are left after one of each call.

    Args:
        results: Of each call and target, in whichever configuration.

    Returns:
        One job for each number that a space of the call has.
    """
    found = []
    for one in results:
        spaces = one.evidence.get("tuned", [])
        count = max((len(space["configurations"]) for space in spaces), default=0)
        found += [replace(one.job, configuration=number) for number in range(min(count, MOST))]
    return found


def lines(results: Sequence[jobs.Result]) -> list[str]:
    """The ranking as text.

    Args:
        results: Of each call and target, those in one configuration of each number among them.

    Returns:
        A heading for each call, target and kernel, and a line for each configuration.
    """
    ranked: dict[tuple[str, str, str], dict[str, tuple[float, str]]] = {}
    failed: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in results:
        if one.job.configuration is None:
            spaces = {s["kernel"]: s["configurations"] for s in one.evidence.get("tuned", [])}
            for kernel, configurations in spaces.items():
                place = (one.job.name, one.job.target, kernel)
                ranked.setdefault(place, {})
                failed[place] = dict.fromkeys(configurations[:MOST], "does not compile or fit")
    for one in results:
        if one.job.configuration is None:
            continue
        for space in one.evidence.get("tuned", []):
            place = (one.job.name, one.job.target, space["kernel"])
            launched = one.evidence["launches"]
            predicted = one.evidence.get("predicted") or [None] * len(launched)
            launches = [
                (launch, time)
                for launch, time in zip(launched, predicted, strict=False)
                if launch["kernel"] == space["kernel"]
            ]
            if launches and place in ranked:
                ranked[place][space["recorded"]] = _described(launches)
                failed[place].pop(space["recorded"], None)
    said = []
    for place, found in ranked.items():
        by = "predicted time" if place[1] in prediction.TARGETS else "bound"
        said.append(f"{place[0]} {place[1]} {place[2]}: {len(found) + len(failed[place])}"
                    f" configurations, by their {by}")  # fmt: skip
        listed = sorted((us, f"  {us:9.1f} us  {more}  {name}") for name, (us, more)
                        in found.items())  # fmt: skip
        said += [text for _, text in listed]
        said += _how_sure(place[1], [us for us, _ in listed])
        said += [f"          -      {why}  {name}" for name, why in failed[place].items()]
    return said or ["no kernel of these calls is autotuned over several configurations"]


def _how_sure(target: str, times: Sequence[float]) -> list[str]:
    """How sure it is that the first configuration is faster than the second."""
    if len(times) < 2 or target not in prediction.TARGETS or not times[0] > 0:
        return []
    if target not in machines.CHECKED:
        return [
            "  predicted and not checked against a machine: how sure the order is, nobody knows"
        ]
    ends = interval.of_ratio(times[1] / times[0])
    least, most = (f"{100 * (end - 1):.0f}" for end in ends)
    sure = f"with {100 * interval.CONFIDENCE:.0f} % confidence"
    if ends[0] > 1:
        return [f"  the first is faster: the second takes {least} to {most} % longer {sure}"]
    return [f"  the first two cannot be distinguished: the second takes {least} to +{most} %"
            f" longer {sure}"]  # fmt: skip


def _described(launches: Sequence[tuple[Any, Any]]) -> tuple[float, str]:
    """The time of a kernel's launches, and what else speaks for or against its code."""
    times = [time or launch["bound"] for launch, time in launches]
    first, limit = launches[0][0], times[0]["limited_by"]
    spilled, blocks = first["spilled_bytes"], first["occupancy"]["blocks"]
    us = sum(one["us"] for one in times)
    return us, f"{limit:7s} {spilled} bytes spilled, {blocks} blocks"
