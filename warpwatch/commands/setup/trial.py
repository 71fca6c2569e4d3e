"""Tries what a history will ask of each workload, at one commit: its kernel, and its inputs.

A process of its own, started by ``doctor`` next to the exported package of that commit. Nothing is
launched and nothing is compiled. It prints a JSON object: by workload what is wrong, or nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from warpwatch.config import isolation, targets
from warpwatch.config import package as configuration
from warpwatch.instruments.compiled.formats import errors
from warpwatch.instruments.compiled.record import callables
from warpwatch.instruments.compiled.record.call import record
from warpwatch.workload.base import Workload
from warpwatch.workload.call import CallWorkload
from warpwatch.workload.kernel import absent, find_kernel


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what measured code prints must not come between the answers
    isolation.measured()
    package = configuration.load()
    chosen = targets.get(package.targets[0]) if package.targets else targets.KNOWN[0]
    found: dict[str, str] = {}
    for workload in configuration.workloads().all_workloads():
        found[workload.name] = _tried(workload, package.name, chosen)
    with answers:
        json.dump(found, answers)
    return 0


def _tried(workload: Workload, package: str, target: targets.Target) -> str:
    """What is wrong with a workload, in one line; empty where nothing is."""
    wrong: list[str] = []

    def inputs() -> Any:
        try:
            kernel = find_kernel(importlib.import_module(package), workload.kernel)
        except Exception as error:  # a package may raise anything
            wrong.append(f"import {package}: {errors.located(error, package)}")
            return None
        if kernel is None:
            wrong.append(absent(sys.modules[package], workload.kernel))
            return None
        if isinstance(workload, CallWorkload):
            try:
                callables.check(workload.function, workload.arguments)
            except callables.UsageError as error:
                wrong.append(str(error))
                return None
        return workload.inputs("cpu", values="none")

    try:
        record(lambda _: None, target, inputs=inputs)
    except Exception as error:  # the user's workload may raise anything
        wrong.append(f"inputs: {errors.located(error, package)}")
    return wrong[0] if wrong else ""


if __name__ == "__main__":
    sys.exit(main())
