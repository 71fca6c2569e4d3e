"""Detectors of other projects, called as ours is, where they are installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .error_rates import Detector, Floats

Others = dict[str, Detector | str]


def others() -> Others:
    """Other detectors, by name; one that cannot be imported is a line that says so."""
    found: Others = {}
    for name, load in (("asv step_detect", _asv), ("apache-otava", _otava)):
        try:
            found[name] = load()
        except ImportError as error:
            found[name] = f"not installed here ({error})"
    return found


def _asv() -> Detector:
    module: Any = importlib.import_module("asv.step_detect")

    def detect(pool: Sequence[Floats]) -> list[list[int]]:
        found = [module.detect_steps(values.tolist()) for values in pool]
        return [[step[0] for step in steps[1:]] for steps in found]

    return detect


def _otava() -> Detector:
    module: Any = importlib.import_module("otava.analysis")

    def detect(pool: Sequence[Floats]) -> list[list[int]]:
        found = [module.compute_change_points(values.tolist())[0] for values in pool]
        return [[point.index for point in points] for points in found]

    return detect
