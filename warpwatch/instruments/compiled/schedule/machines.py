"""The machines that the model of time knows: how each reads its code, and whether that was checked.

The scheduler that is followed (:mod:`.issue`) is one and the same. A machine turns its instructions
into steps, and says how far memory is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.code import Program

from . import cdna, controls, pipes
from .pipes import Step


@dataclass(frozen=True)
class Machine:
    """``steps`` reads a kernel's binary and its program. ``first_clocks`` are what the first block
    waits for memory longer than those after it. ``checked`` says whether predictions were compared
    with counters of a card: only then is their error known."""

    steps: Callable[[bytes, Program, Device], Iterable[Step]]
    first_clocks: int
    checked: bool


def _hopper(binary: bytes, program: Program, device: Device) -> Iterable[Step]:
    listed = zip(program.instructions, controls.of_cubin(binary), strict=False)
    return (pipes.step(one, control, device) for one, control in listed)


def _cdna(binary: bytes, program: Program, device: Device) -> Iterable[Step]:
    return (cdna.step(one, device) for one in program.instructions)


_HOPPER = Machine(_hopper, 2 * pipes.FROM_MEMORY - pipes.FROM_L2, checked=True)
_CDNA = Machine(_cdna, cdna.FROM_MEMORY - cdna.FROM_L2, checked=False)
MACHINES = {"sm_90": _HOPPER, **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), _CDNA)}
"""By target."""
CHECKED = tuple(target for target, machine in MACHINES.items() if machine.checked)
"""Targets whose predictions give verdicts."""
