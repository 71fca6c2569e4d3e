"""How many workloads, targets, devices and commits there are."""

from __future__ import annotations

import json

from benchmarks import workloads
from tools.docs.figures.markdown import table
from tools.root import ROOT
from warpwatch.commands import COMMANDS
from warpwatch.config import metrics
from warpwatch.config.targets import TARGETS


def of_workloads() -> str:
    """Count the workloads of our own benchmarks.

    Returns:
        The number of those that every commit is measured on.
    """
    return str(len(workloads.all_workloads()))


def of_pairs() -> str:
    """Count the pairs of workload and target that every commit is compiled for.

    Returns:
        Their number.
    """
    return str(len(workloads.fixed_set()))


def of_targets() -> str:
    """Count the targets that are compiled for by default.

    Returns:
        Their number.
    """
    return str(len(TARGETS))


def of_devices() -> str:
    """Count the datasheets of GPUs.

    Returns:
        Their number.
    """
    return str(len(list((ROOT / "warpwatch" / "devices").glob("*.toml"))))


def of_commits() -> str:
    """Count the commits with published results.

    Returns:
        Their number.
    """
    files = (ROOT / "reports" / "published").glob("*/*-kernels-*.json")
    return str(len({json.loads(one.read_text(encoding="utf-8"))["commit_hash"] for one in files}))


def all_of_them() -> str:
    """Write all counts.

    Returns:
        A table.
    """
    rows = [
        ("workloads of our benchmarks", of_workloads()),
        ("pairs of workload and target that every commit is compiled for", of_pairs()),
        ("targets that are compiled for by default", of_targets()),
        ("metrics", str(len((*metrics.COMPILED, *metrics.MEASURED)))),
        ("GPUs with a datasheet", of_devices()),
        ("commits with results published from an H200", of_commits()),
        ("commands", str(len(COMMANDS))),
    ]
    return table(["there are", "how many"], rows, right=[1])
