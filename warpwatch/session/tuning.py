"""A kernel's configuration: which one a call chooses, what others there are, what they would do.

The measured package chooses by functions ``choose*`` that return a frozen dataclass, whose fields
say by themselves which values there are: ``field(metadata={"values": (1, 2)})``. For the time of a
call another choice can be put in their place, so any configuration can be compiled, checked and
timed without a change of the package.

Configurations are compiled side by side, in as many workers as there are cores: one that ends its
compiler, or hangs on the card, costs itself alone.
"""

from __future__ import annotations

import importlib
import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from types import ModuleType
from typing import Any

from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.config.targets import Target
from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.outcome import Outcome
from warpwatch.workload.base import Inputs, Values, Workload

from .session import side_by_side

Config = Any  # the measured package's own dataclass

TILES = (16, 32, 64, 128, 256)
WARPS = (4, 8)
STAGES = (1, 2, 3, 4)
# Enough to rank by; the ones that matter are told apart by more.
MOST_SAMPLES = 30
# A worker holds a context and a workload's inputs on the card.
MOST_WORKERS = 16
HUNG_SECONDS = 5.0


@dataclass(frozen=True)
class Candidate:
    """A configuration with the compiled instrument's word on it. ``condemned`` says why it is not
    worth a run, or nothing."""

    config: Config
    values: Mapping[str, float]
    condemned: str = ""

    @property
    def bound_us(self) -> float:
        return self.values.get("bound_us", math.nan)


def _modules() -> list[ModuleType]:
    root = configuration.load().name
    return [
        module
        for name, module in list(sys.modules.items())
        if (name == root or name.startswith(f"{root}.")) and module is not None
    ]


@contextmanager
def choosing(choice: Callable[[Config], Config]) -> Iterator[list[Config]]:
    """While active, ``choice`` of what the package chooses is what it gets. Yields the list of
    the package's own choices, filled call by call."""
    seen: list[Config] = []

    def instead(chooser: Callable[..., Config]) -> Callable[..., Config]:
        def choose(*args: Any, **kwargs: Any) -> Config:
            config = chooser(*args, **kwargs)
            if not is_dataclass(config):
                return config
            seen.append(config)
            return choice(config)

        return choose

    choosers = {
        function: instead(function)
        for module in _modules()
        for name, function in vars(module).items()
        if name.startswith("choose")
        and callable(function)
        and getattr(function, "__module__", None) == module.__name__
    }
    # A chooser may have been imported by name: it is replaced wherever the package holds it.
    held = [
        (module, name, value)
        for module in _modules()
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__hash__", None) and value in choosers
    ]
    for module, name, value in held:
        setattr(module, name, choosers[value])
    try:
        yield seen
    finally:
        for module, name, value in held:
            setattr(module, name, value)


def space(base: Config, *, limit: int, seed: int = 0) -> list[Config]:
    """At most ``limit`` configurations, ``base`` first, then those that differ in fewest fields;
    what is left out of equals is drawn at random, the same for a seed.

    A field has the values that its metadata give; without any every tile, number of warps and of
    stages is tried, by its name. What the dataclass refuses with ``ValueError`` there is not.
    """
    axes = {
        field.name: dict.fromkeys((getattr(base, field.name), *_values(field)))
        for field in fields(base)
    }
    others = [
        config
        for values in itertools.product(*axes.values())
        for config in _made(base, dict(zip(axes, values, strict=True)))
        if config != base
    ]
    random.Random(seed).shuffle(others)
    others.sort(key=lambda config: sum(getattr(config, n) != getattr(base, n) for n in axes))
    return [base, *others[: limit - 1]]


def _values(field: Field[Any]) -> Sequence[Any]:
    if "values" in field.metadata:
        return tuple(field.metadata["values"])
    if field.name.startswith("block_"):
        return TILES
    named = {"num_warps": WARPS, "num_stages": STAGES, "stages": STAGES}
    return named.get(field.name, ())


def _made(base: Config, values: Mapping[str, Any]) -> Iterator[Config]:
    try:
        yield replace(base, **values)
    except ValueError:
        return


def own_choice(workload: Workload, target: Target) -> Config:
    """What the package chooses for ``workload`` on ``target``; ``ValueError`` if it has no say."""
    from warpwatch.instruments import compiled

    __import__(configuration.load().name)
    # Twice at most: a kernel for one architecture is loaded, with its table, at its first call.
    for _ in range(2):
        with choosing(lambda config: config) as seen:
            measured = compiled.measure(workload, target)
        if seen:
            break
    else:
        why = measured.detail or "its package has no function choose*"
        raise ValueError(f"{workload.name} chooses no configuration on {target.name}: {why}")
    return seen[0]


def judge(
    workload: Workload,
    target: Target,
    configs: Sequence[Config],
    tell: Callable[[Candidate], None] = lambda _: None,
    *,
    on_gpu: bool = False,
) -> list[Candidate]:
    """Compile every one of ``configs`` for ``target`` and condemn it for what no run can mend: it
    does not compile or fit, it spills, or it falls below the first one's level of tensor-core
    instructions. ``tell`` hears of each as it is compiled, before levels are compared. With
    ``on_gpu`` each that passes is run once as well, so that its code is in Triton's cache."""
    by_name = {describe(config): config for config in configs}
    request = {
        **_choices(workload, configs),
        "mode": "configurations",
        "target": target.name,
        "on_gpu": on_gpu,
    }

    def candidate(outcome: Outcome) -> Candidate:
        return _candidate(by_name[outcome.workload], outcome)

    found = side_by_side(request, list(by_name), MOST_WORKERS, lambda one: tell(candidate(one)))
    candidates = [candidate(found[name]) for name in by_name]
    level = candidates[0].values.get("tensor_core_level", 0.0)
    return [_held_against(level, one) for one in candidates]


def _choices(workload: Workload, configs: Sequence[Config]) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "modules": [module.__name__ for module in _modules()],
        "choices": {describe(config): _settings(config) for config in configs},
    }


def timing_request(workload: Workload, configs: Sequence[Config], seed: int) -> dict[str, Any]:
    """What a worker is asked that times ``configs`` beside each other, by their descriptions."""
    limits = {"max_samples": MOST_SAMPLES}
    return {**_choices(workload, configs), "mode": "choices", "seed": seed, "limits": limits}


def chosen_here(request: Mapping[str, Any], name: str) -> Any:
    """A worker's part of it: the workload that is called by the choice called ``name``."""
    workload = configuration.workloads().get(request["workload"])
    return _Timed(workload, request["modules"], request["choices"][name], name)


def _candidate(config: Config, outcome: Outcome) -> Candidate:
    values: Mapping[str, float] = outcome.evidence.get("values", {})
    condemned = ""
    if outcome.status != "ok":
        condemned = outcome.detail or outcome.status
    elif values.get("spilled_bytes", 0) > 0:
        condemned = f"spills {values['spilled_bytes']:.0f} bytes a thread"
    return Candidate(config, values, condemned)


def _held_against(level: float, candidate: Candidate) -> Candidate:
    reached = candidate.values.get("tensor_core_level", level)
    if candidate.condemned or not reached < level:
        return candidate
    return replace(candidate, condemned=f"tensor-core level {reached:.0f} instead of {level:.0f}")


def _settings(config: Config) -> dict[str, Any]:
    """What a worker makes ``config`` of, from the package's own choice of that kind."""
    plain = {field.name: getattr(config, field.name) for field in fields(config)}
    told = {name: value for name, value in plain.items() if isinstance(value, int | str | None)}
    return {"kind": type(config).__name__, "fields": told}


@dataclass(frozen=True)
class _Chosen:
    """A workload whose calls choose otherwise, for the compiled instrument."""

    workload: Workload
    modules: Sequence[str]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def kernel(self) -> str:
        return self.workload.kernel

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        # A kernel for one architecture is loaded, with its table, at its first call: too late.
        for module in self.modules:
            importlib.import_module(module)
        return self.workload.inputs(device, seed, values)

    def call(self, inputs: Inputs) -> Any:
        def instead(own: Config) -> Config:
            mine = type(own).__name__ == self.settings["kind"]
            return replace(own, **self.settings["fields"]) if mine else own

        with choosing(instead):
            return self.workload.call(inputs)


@dataclass(frozen=True)
class _Timed(_Chosen):
    """The same for the GPU, by the choice's name; all else is the workload's own."""

    choice: str

    missing = ""  # it was compiled: it is there

    @property
    def name(self) -> str:
        return self.choice

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workload, name)


def compile_here(request: Mapping[str, Any], name: str) -> Outcome:
    """A worker's part of :func:`judge`: the outcome of the choice called ``name``, with the
    compiled metrics as evidence."""
    from warpwatch.instruments import compiled

    workload = configuration.workloads().get(request["workload"])
    chosen: Any = _Chosen(workload, request["modules"], request["choices"][name])
    measured = compiled.measure(chosen, targets.get(request["target"]))
    values = {"values": dict(measured.values)}
    if measured.status != "ok":
        return Outcome(name, "failed", measured.detail or measured.status, evidence=values)
    if request["on_gpu"] and not measured.values.get("spilled_bytes", 0) > 0:
        import torch

        try:
            chosen.call(workload.inputs("cuda"))
            if not _ends(torch.cuda.Event()):  # type: ignore[no-untyped-call]
                why = f"it runs for more than {HUNG_SECONDS:.0f} s"
                return Outcome(name, "hung", why, evidence=values)
        except Exception as error:  # a configuration may do anything
            status, why = measuring.status_of(error), measuring.first_line(error)
            return Outcome(name, status, why, evidence=values)
    return Outcome(name, "ok", evidence=values)


def _ends(event: Any) -> bool:
    """Whether what was launched ends before long; a ring of too few stages waits for ever."""
    event.record()
    until = time.monotonic() + HUNG_SECONDS
    while not event.query():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def describe(config: Config) -> str:
    """A row for the package's table, as Python."""
    inner = ", ".join(f"{field.name}={getattr(config, field.name)!r}" for field in fields(config))
    return f"{type(config).__name__}({inner})"
