"""Runs host code in several orders and gathers what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from warpwatch.simulator.errors import EndlessError
from warpwatch.simulator.machine.order import STEPS
from warpwatch.simulator.session import host
from warpwatch.simulator.session.launch import simulated
from warpwatch.simulator.session.report import Report, report_of, told
from warpwatch.simulator.timeline.log import Log
from warpwatch.simulator.values import unwritten
from warpwatch.simulator.words import language


@dataclass(frozen=True)
class Findings:
    """What runs of host code showed: faults, each once, and how many runs and launches there
    were."""

    reports: tuple[Report, ...]
    runs: int
    launches: int

    @property
    def unknown(self) -> tuple[Report, ...]:
        """Those that say that the simulator does not know a word."""
        return tuple(one for one in self.reports if one.word)


def check(
    function: Callable[[], object],
    seeds: Sequence[int],
    card: host.Card | None = None,
    strict: bool = False,
    logs: list[Log] | None = None,
    steps: int = STEPS,
) -> Findings:
    """Run host code once for every seed, its launches simulated.

    Args:
        function: The host code. It may make its tensors on ``cuda`` or on the CPU.
        seeds: Each draws one order in which programs and partitions run.
        card: The GPU that host code sees; Hopper if none is named.
        strict: Whether barriers want a fence behind their init.
        logs: Where it is noted what the first programs of the last run did.
        steps: How many steps of loops each program may take.

    Returns:
        What was found. A run ends at its first fault. A word that is not known ends them all, and
        so do an endless loop and a fault where ``logs`` are kept: they show the run that has it.

    Raises:
        ValueError: The host code ends itself, as ``pytest.skip`` and ``sys.exit`` do.
    """
    found: dict[tuple[object, ...], Report] = {}
    runs = launches = 0
    card = card or host.Card()
    language.judged[:] = [card.number] if card.judged else []
    for seed in seeds:
        notes = unwritten.Unwritten()
        if logs is not None:
            logs.clear()
        random.seed(seed)
        torch.manual_seed(seed)
        unwritten.watched.append(notes)
        try:
            with (
                host.shown(card, notes.watch),
                simulated(seed, strict, logs, steps) as launched,
            ):
                try:
                    function()
                except Exception as error:
                    report = report_of(error, seed)
                    found.setdefault(report.key, report)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # pytest's outcomes are no Exceptions, either
                    raise ValueError(f"the host code ends itself: {told(error)}") from None
            runs += 1
            launches += len(launched.kernels)
        finally:
            unwritten.watched.pop()
        ends = any(one.word or one.kind == EndlessError.kind for one in found.values())
        if ends or (found and logs is not None):
            break
    return Findings(tuple(found.values()), runs, launches)
