"""From where on a change counts: relative and absolute, for every metric, in one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from warpwatch import project

SCHEMA_VERSION = 1


def default_file() -> Path:
    """``reports/thresholds.toml`` of the project, else the file that Warpwatch brings along."""
    own = project.folder() / "reports" / "thresholds.toml"
    return own if own.is_file() else Path(__file__).with_name("thresholds.toml")


@dataclass(frozen=True)
class Threshold:
    """``relative`` and ``absolute`` (in the metric's unit) must both be passed by a change.

    ``resolve``: a measurement too coarse to see this relative change is inconclusive rather than
    unchanged.
    """

    relative: float
    absolute: float
    resolve: float

    def passed(self, base: float, head: float) -> bool:
        """Whether the difference of the two levels counts."""
        difference = abs(head - base)
        return difference > self.absolute and difference > self.relative * abs(base)


@dataclass(frozen=True)
class Thresholds:
    default: Threshold
    metrics: Mapping[str, Threshold]
    false_discovery_rate: float

    def of(self, metric: str) -> Threshold:
        return self.metrics.get(metric, self.default)


_KEYS = tuple(field.name for field in fields(Threshold))


def load(path: Path | None = None) -> Thresholds:
    """Read ``path``, by default :func:`default_file`; ``ValueError`` lists every mistake."""
    path = path or default_file()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from error
    mistakes: list[str] = []
    known = ("schema_version", "false_discovery_rate", "default", "metric")
    mistakes += [f"{key}: unknown key, expected one of {known}" for key in data if key not in known]
    version = data.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        mistakes.append(f"schema_version: expected {SCHEMA_VERSION}, got {version!r}")
    rate: Any = data.get("false_discovery_rate")
    if not _number(rate) or not 0.0 < rate < 1.0:
        mistakes.append(f"false_discovery_rate: expected a number in 0 to 1, got {rate!r}")
    default = _table(data.get("default"), "default", mistakes)
    missing = [key for key in _KEYS if key not in default]
    mistakes += [f"[default] {key}: is missing" for key in missing]
    metrics = data.get("metric", {})
    if not isinstance(metrics, dict):
        mistakes.append(f"metric: expected tables [metric.NAME], got {metrics!r}")
        metrics = {}
    tables = {
        name: _table(value, f"metric.{name}", mistakes) for name, value in sorted(metrics.items())
    }
    if not mistakes:
        base = Threshold(**default)
        read = {name: replace(base, **table) for name, table in tables.items()}
        for name, threshold in (("default", base), *((f"metric.{k}", v) for k, v in read.items())):
            if threshold.resolve < threshold.relative:
                mistakes.append(
                    f"[{name}] resolve: expected at least relative "
                    f"({threshold.relative:g}), got {threshold.resolve:g}"
                )
    if mistakes:
        raise ValueError(f"{path}: " + "; ".join(mistakes))
    return Thresholds(default=base, metrics=read, false_discovery_rate=float(rate))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(value: Any, name: str, mistakes: list[str]) -> dict[str, float]:
    if not isinstance(value, dict):
        mistakes.append(f"[{name}]: expected a table, got {value!r}")
        return {}
    good = {}
    for key, number in value.items():
        if key not in _KEYS:
            mistakes.append(f"[{name}] {key}: unknown key, expected one of {_KEYS}")
        elif not _number(number) or not 0.0 <= number < float("inf"):
            mistakes.append(f"[{name}] {key}: expected a number from 0 up, got {number!r}")
        else:
            good[key] = float(number)
    return good
