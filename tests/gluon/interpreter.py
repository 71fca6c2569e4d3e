"""Our own kernels in the simulator: calls on CPU tensors take what serves on Hopper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from kernels.attention.hopper.backward.one_pass import sums as hopper_sums
from kernels.device import hopper_rings
from kernels.runtime import targets
from warpwatch.simulator.machine import engines
from warpwatch.simulator.session.launch import Launches, simulated
from warpwatch.simulator.words import language


def _specialise(
    consume: Any, consumed: Any, produce: Any, produced: Any, consumers: int, registers: Any = None
) -> None:
    parts = [(consume, (*consumed, i)) for i in range(consumers)]
    language.LANGUAGE.warp_specialize([*parts, (produce, produced)], [*[4] * (consumers - 1), 1])


# Words of our own, which Gluon does not have.
language.STANDS_FOR.update(
    {
        id(hopper_rings.partition_barrier): language.nothing,
        id(hopper_rings.specialise): _specialise,
        id(hopper_sums.add_to_global): engines.add_to_global,
    }
)


@contextmanager
def hopper_on_the_cpu(multiprocessors: int = 4, seed: int = 0) -> Iterator[Launches]:
    """Inside, calls of ``kernels`` on CPU tensors take what serves on Hopper, interpreted.

    For a process in which Triton interprets: its own interpreter runs what is no Gluon.
    """
    if not targets.interpreting():
        raise RuntimeError("expected TRITON_INTERPRET=1, which Triton reads when it is imported")
    plain = (targets.current, targets.multiprocessors)
    for one in walk_packages(import_module("kernels").__path__, "kernels."):
        if ".hopper." in one.name:
            import_module(one.name)
    everywhere = _without_launch_order()
    hopper_target = targets.Target("sm_90", "cuda", 90)
    targets.current = lambda: hopper_target
    targets.multiprocessors = lambda: multiprocessors
    try:
        with simulated(seed, strict=True) as launches:
            yield launches
    finally:
        targets.current, targets.multiprocessors = plain
        for module, name, value in everywhere:
            setattr(module, name, value)


def _without_launch_order() -> list[tuple[Any, str, Any]]:
    """Triton's interpreter does not know what orders overlapping launches: here none overlap."""
    found = []
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("kernels."):
            for name in ("gdc_wait", "gdc_launch_dependents"):
                if hasattr(module, name):
                    found.append((module, name, getattr(module, name)))
                    setattr(module, name, language.nothing)
    return found
