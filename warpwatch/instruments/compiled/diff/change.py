"""One metric before and after, and how grave its change is."""

from __future__ import annotations

from dataclasses import dataclass

_GRAVEST = (
    "compile_failures",
    "predicted_us",
    "tensor_core_level",
    "advisories",
    "spilled_bytes",
    "copied_bytes",
    "launches",
    "async_copy_level",
    "global_instructions",
    "shared_instructions",
    "bound_us",
    "blocks_in_flight",
)


@dataclass(frozen=True)
class Change:
    """One metric, before and after. ``better`` is ``None`` where it has no direction."""

    metric: str
    old: float
    new: float
    better: bool | None

    @property
    def gravity(self) -> tuple[int, float]:
        """Sorts the gravest first: by what is lost, then by how much."""
        kind = _GRAVEST.index(self.metric) if self.metric in _GRAVEST else len(_GRAVEST)
        return kind, -abs(self.new - self.old) / (abs(self.old) or 1)

    def __str__(self) -> str:
        return f"{self.metric} {number(self.old)} -> {number(self.new)}"


def number(value: float) -> str:
    """A value as text: whole where it is, else with two places."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
