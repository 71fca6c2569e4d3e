"""The kernels of two files, paired: by name, else by equal code, else the only ones left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpwatch.instruments.compiled.formats.job import Job
from warpwatch.instruments.compiled.measure.jobs import Result


def aligned(old: Sequence[Result], new: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Pair the kernels of two files.

    Args:
        old: The kernels of one file, each name once for a target.
        new: Those of the other.

    Returns:
        Both sides, of equal length and under the names of the second. A kernel that one file
        lacks is not measured there.
    """
    pairs: list[tuple[Result, Result]] = []
    rest = [list(old), list(new)]
    for key in (_name, _code, _target):
        for one in list(rest[0]):
            alike = [[other for other in side if key(other) == key(one)] for side in rest]
            if len(alike[0]) == len(alike[1]) == 1:
                pairs.append((one, alike[1][0]))
                rest[0].remove(one)
                rest[1].remove(alike[1][0])
    pairs += [(one, _lacking(one.job, "the second file has no such kernel")) for one in rest[0]]
    pairs += [(_lacking(one.job, "the first file has no such kernel"), one) for one in rest[1]]
    return [replace(one, job=other.job) for one, other in pairs], [other for _, other in pairs]


def _name(one: Result) -> tuple[str, ...]:
    return one.job.target, one.job.name


def _code(one: Result) -> tuple[str, ...]:
    return one.job.target, *(launch["code"] for launch in one.evidence.get("launches", []))


def _target(one: Result) -> tuple[str, ...]:
    return (one.job.target,)


def _lacking(job: Job, why: str) -> Result:
    return Result(job, "not measured", why)
