"""When the gate of a pull request looks at its pairs, and how much makes it believe."""

from __future__ import annotations

from dataclasses import dataclass, replace

_KNOWN_QUIET = 4


@dataclass(frozen=True)
class Plan:
    """When the gate looks, and what it takes to believe.

    ``explore``: pairs at each look, and the two-sided p-value that raises an alarm there.
    ``confirm``: fresh pairs at each look after an alarm; ``fresh_p`` is the one-sided p-value
    they must reach by themselves, ``pooled_p`` the two-sided one of all pairs.
    """

    explore: tuple[tuple[int, float], ...] = (
        (4, 0.001),
        (6, 0.004),
        (8, 0.006),
        (12, 0.01),
        (16, 0.02),
    )
    confirm: tuple[int, ...] = (4, 8, 12, 16)
    fresh_p: float = 0.15
    pooled_p: float = 0.001
    most_pairs: int = 24
    # From so many pairs on a change is called too small to count.
    least_quiet: int = 8

    def within(self, most_pairs: int) -> Plan:
        """The same plan with a smaller or larger budget of pairs."""
        least = self.explore[0][0] + self.confirm[0]
        if most_pairs < least:
            raise ValueError(
                f"pairs: expected at least {least} ({self.explore[0][0]} to notice a change and "
                f"{self.confirm[0]} fresh ones to confirm it), got {most_pairs}"
            )
        kept = tuple(look for look in self.explore if look[0] + self.confirm[0] <= most_pairs)
        return replace(self, explore=kept, most_pairs=most_pairs)

    def known(self) -> Plan:
        """The plan where earlier results say how noisy a series is: it looks from one pair on. The
        first looks ask for more, since a prior may be wrong and one pair cannot say so."""
        first = ((1, 0.0002), (2, 0.0005))
        later = tuple(look for look in self.explore if look[0] > first[-1][0])
        return replace(
            self, explore=first + later, confirm=(2, *self.confirm), least_quiet=_KNOWN_QUIET
        )
