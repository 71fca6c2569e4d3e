"""Which way is better for a benchmark of any project, and what its numbers mean."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from .benchmark import Benchmark
from .core import Better

Role = Literal["verdict", "evidence"]

# Units of which more is better; anything unknown is taken as asv takes it: lower is better.
_RATES = ("flop", "b", "ib", "it", "op", "row", "item", "sample", "image", "img", "token", "tok")
_HIGHER_WORDS = ("higher", "flops", "fps", "iops", "hz", "hertz", "throughput", "accuracy", "gbps")
_PREFIXES = ("", "k", "m", "g", "t", "p")


@dataclass(frozen=True)
class Meaning:
    """What a benchmark measures, as the judge needs it."""

    unit: str
    better: Better | None
    role: Role
    exact: bool
    instrument: str
    metric: str
    # The folder the measured code lies in, where the benchmark says so.
    sources: str = ""
    # What is measured, where the benchmark says so: a function of the package.
    kernel: str = ""
    # Why a verdict metric is evidence of this call, "" where it is not.
    explains: str = ""


@dataclass(frozen=True)
class Directions:
    """A project's own words: directions by benchmark pattern, then unit; weights of workloads."""

    benchmarks: Mapping[str, Better] = field(default_factory=dict)
    units: Mapping[str, Better] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def weight_of(self, workload: str) -> float:
        """How much a workload matters when findings are ranked; 1 where nobody said."""
        fits = (w for pattern, w in self.weights.items() if fnmatchcase(workload, pattern))
        return next(fits, 1.0)

    def of(self, benchmark: Benchmark) -> Meaning:
        """The meaning of ``benchmark``: its own attributes first, then this table, then units."""
        own = benchmark.attributes
        unit = benchmark.unit or _unit_by_name(benchmark.name)
        role: Role = "evidence" if own.get("role") == "evidence" else "verdict"
        better: Better | None
        if "better" in own:
            better = _better(own["better"])
        else:
            better = self._configured(benchmark.name, unit)
        if better is None:
            role = "evidence"
        return Meaning(
            unit,
            better,
            role,
            own.get("exact") is True,
            _text(own.get("instrument")),
            _text(own.get("metric")),
            _text(own.get("sources")),
            _text(own.get("kernel")),
        )

    def _configured(self, name: str, unit: str) -> Better:
        for pattern, better in self.benchmarks.items():
            if fnmatchcase(name, pattern):
                return better
        folded = unit.casefold().strip()
        for known, better in self.units.items():
            if known.casefold() == folded:
                return better
        return "higher" if _is_more_better(folded) else "lower"


def read_directions(path: Path) -> Directions:
    """A TOML file with the tables ``[benchmarks]`` (patterns), ``[units]`` and ``[weights]``
    (patterns of workloads)."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from None
    problems = [
        f"[{name}] is unknown: expected [benchmarks], [units] or [weights]"
        for name in data
        if name not in ("benchmarks", "units", "weights")
    ]
    tables: dict[str, dict[str, Better]] = {}
    for name in ("benchmarks", "units"):
        table = data.get(name, {})
        tables[name] = {}
        if not isinstance(table, dict):
            problems.append(f"{name}: expected a table, got {table!r}")
            continue
        for key, value in table.items():
            better = _better(value)
            if better is None:
                problems.append(f'[{name}] {key!r}: expected "lower" or "higher", got {value!r}')
            else:
                tables[name][key] = better
    weights = data.get("weights", {})
    if not isinstance(weights, dict):
        problems.append(f"weights: expected a table, got {weights!r}")
        weights = {}
    problems += [
        f"[weights] {key!r}: expected a number from 0 to 1e6, got {value!r}"
        for key, value in weights.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6
    ]
    if problems:
        raise ValueError(f"{path}: " + "; ".join(problems))
    return Directions(tables["benchmarks"], tables["units"], weights)


def _text(value: object) -> str:
    return value[:200] if isinstance(value, str) else ""


def _better(value: object) -> Better | None:
    for known in get_args(Better):
        if value == known:
            return known  # type: ignore[no-any-return]
    return None


def _unit_by_name(name: str) -> str:
    function = name.rpartition(".")[2]
    if function.startswith(("time_", "timeraw_")) or "::" in name:  # the latter are pytest's
        return "seconds"
    return "bytes" if function.startswith(("mem_", "peakmem_")) else ""


def _is_more_better(unit: str) -> bool:
    """Whether ``unit`` is a rate of work, such as TFLOP/s, GB/s or tokens/s, or says so."""
    amount, separator, per = unit.replace(" ", "").replace("per", "/").partition("/")
    if separator:
        amounts = {
            prefix + rate + plural
            for prefix in _PREFIXES
            for rate in _RATES
            for plural in ("", "s")
        }
        return per in ("s", "sec", "second") and amount in amounts | {"req", "requests", "frames"}
    words = {prefix + word for prefix in _PREFIXES for word in _HIGHER_WORDS}
    return unit in words or "higher" in unit
