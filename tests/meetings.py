"""Which forms meet which targets or masks where a compilation of every pair takes minutes.

A pull request waits for ``make test``. The nightly ``make test-every-pair`` lets every form meet
all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from warpwatch.config.targets import Target, get

Form = TypeVar("Form")
Other = TypeVar("Other")

EVERY_PAIR = bool(os.environ.get("WARPWATCH_EVERY_PAIR"))
# Hopper first, for which the kernels are tuned. The vendors alternate, so that of two forms each
# compiles one.
TURNS = tuple(map(get, ("sm_90", "gfx942", "sm_100", "gfx950", "sm_80", "gfx90a")))


def meet(forms: Sequence[Form], others: Sequence[Other]) -> list[tuple[Form, Other]]:
    """Pair each form with one of the others, taken in turn.

    Args:
        forms: Such as workloads.
        others: Such as masks.

    Returns:
        The pairs; each form with all others if every pair is requested.
    """
    if EVERY_PAIR:
        return [(form, other) for form in forms for other in others]
    return [(form, others[place % len(others)]) for place, form in enumerate(forms)]


def on_targets(*forms: Form) -> list[tuple[Form, Target]]:
    """Pair each form with one target: see :func:`meet`."""
    return meet(forms, TURNS)
