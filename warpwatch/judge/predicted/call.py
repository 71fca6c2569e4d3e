"""The predicted time of one call, as the compiled instrument left it in evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Parts that no kernel has by itself: SMs without work at the end, and operations of torch.
IDLE, COPIES, LAUNCHES = "idle", "copies", "launches"


@dataclass(frozen=True)
class Kernel:
    """One launch: microseconds by part, and what stands for its code."""

    name: str
    parts: Mapping[str, float]
    code: str
    grid: tuple[int, ...]

    @property
    def us(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Call:
    """The predicted time of a call: of each launch, and of torch's own operations.

    ``checked`` says whether predictions for the target were compared with a card. ``model`` stands
    for the model of time: predictions of two models are not compared.
    """

    kernels: tuple[Kernel, ...]
    copies_us: float
    checked: bool
    model: str = ""

    @property
    def us(self) -> float:
        """Microseconds of all together."""
        return sum(one.us for one in self.kernels) + self.copies_us


def of(evidence: Mapping[str, Any]) -> Call | None:
    """Read the predicted time of one call.

    Args:
        evidence: What the compiled instrument recorded of the call on one target.

    Returns:
        The time; ``None`` where none is predicted, or where a branch depends on data.
    """
    predicted, launches = evidence.get("predicted") or [], evidence.get("launches") or []
    copies = evidence.get("torch_us", 0.0 if not evidence.get("torch_ops") else None)
    if not predicted or len(predicted) != len(launches) or copies is None:
        return None
    if not all(one["sure"] and _is_time(one) for one in predicted):
        return None
    kernels = tuple(_kernel(launch, one) for launch, one in zip(launches, predicted, strict=True))
    checked = all(one.get("checked", True) for one in predicted)
    times = [copies, *(us for one in kernels for us in one.parts.values())]
    if not all(0 <= us < math.inf for us in times) or not 0 < sum(times) < math.inf:
        return None
    return Call(kernels, float(copies), checked, evidence.get("model", ""))


def _is_time(one: Mapping[str, Any]) -> bool:
    """Evidence may come from a stranger's machine."""
    return (one["clocks"] or 0) > 0 and (one["us"] or 0) > 0 and (one.get("idle") or 0) >= 0


def _kernel(launch: Mapping[str, Any], one: Mapping[str, Any]) -> Kernel:
    us_each = one["us"] / (one["clocks"] + (one.get("idle") or 0))
    clocks = {**(one.get("parts") or {one["limited_by"]: one["clocks"]}), IDLE: one.get("idle")}
    parts = {name: us_each * found for name, found in clocks.items() if found}
    return Kernel(launch["kernel"], parts, launch["code"], tuple(launch["grid"]))
