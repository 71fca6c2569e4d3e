"""Which forms meet which targets or masks where a compilation of every pair takes minutes.

``make test-every-pair`` lets every form meet all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from warpwatch.config.targets import Target, get

Form = TypeVar("Form")
Other = TypeVar("Other")

EVERY_PAIR = bool(os.environ.get("WARPWATCH_EVERY_PAIR"))
# One of each is compiled for: Hopper, where the kernels are tuned, and of each vendor another.
KINDS = tuple(
    tuple(map(get, names))
    for names in (("sm_90",), ("sm_80", "sm_100"), ("gfx90a", "gfx942", "gfx950"))
)


def meet(forms: Sequence[Form], *groups: Sequence[Other]) -> list[tuple[Form, Other]]:
    """Each form with one of each group, taken in turn; or with all, if every pair is requested."""
    if EVERY_PAIR:
        return [(form, other) for form in forms for group in groups for other in group]
    return [
        (form, group[place % len(group)]) for place, form in enumerate(forms) for group in groups
    ]


def on_targets(*forms: Form) -> list[tuple[Form, Target]]:
    """Each form with a target of each kind: see :func:`meet`."""
    return meet(forms, *KINDS)
