"""When the gate of a pull request looks at its pairs, and how much makes it believe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

_KNOWN_QUIET = 4


@dataclass(frozen=True)
class Plan:
    """When the gate looks, and what it takes to believe.

    ``explore``: pairs at each look, and the two-sided p-value that raises an alarm there.
    ``confirm``: fresh pairs at each look after an alarm; ``fresh_p`` is the one-sided p-value
    they must reach by themselves, ``pooled_p`` the two-sided one of all pairs, ``noisy_p`` that of
    a series too noisy to show what is asked for. The ``first`` pairs are measured side by side: at
    their end ``fewest_fresh`` of them or more may confirm an alarm. No alarm is believed before
    ``least_believed`` pairs, nor is a change called too small to count before ``least_quiet``.
    """

    explore: tuple[tuple[int, float], ...] = (
        (3, 0.003),
        (4, 0.004),
        (5, 0.006),
        (6, 0.006),
        (8, 0.006),
        (12, 0.01),
        (16, 0.02),
    )
    confirm: tuple[int, ...] = (4, 8, 12, 16)
    first: int = 8
    fewest_fresh: int = 2
    fresh_p: float = 0.15
    pooled_p: float = 0.001
    noisy_p: float = 0.0003
    most_pairs: int = 24
    least_believed: int = 8
    least_quiet: int = 8
    # Before the end of the first pairs, an alarm has to stand even were the noise so many times it.
    early_noise: float = 2.0

    @property
    def least(self) -> int:
        """Pairs with which a change can be noticed and confirmed."""
        return self.explore[0][0] + self.fewest_fresh

    def within(self, most_pairs: int) -> Plan:
        """The same plan with a smaller or larger budget of pairs."""
        if most_pairs < self.least:
            raise ValueError(
                f"pairs: expected at least {self.least} ({self.explore[0][0]} to notice a change "
                f"and {self.fewest_fresh} fresh ones to confirm it), got {most_pairs}"
            )
        smaller = replace(
            self,
            most_pairs=most_pairs,
            first=min(self.first, most_pairs),
            least_believed=min(self.least_believed, most_pairs),
        )
        kept = tuple(look for look in self.explore if any(smaller.confirming(look[0])))
        return replace(smaller, explore=kept)

    def confirming(self, explored: int) -> Iterator[int]:
        """How many pairs there are in total at each look that may confirm an alarm.

        Args:
            explored: The pairs that raised it.

        Yields:
            Totals, ascending, within the budget.

        Examples:
            >>> list(Plan().confirming(5)), list(Plan().confirming(12))
            ([8, 9, 13, 17, 21], [16, 20, 24])
        """
        totals = {explored + fresh for fresh in self.confirm}
        if explored + self.fewest_fresh <= self.first:
            totals.add(self.first)
        yield from sorted(one for one in totals if self.least_believed <= one <= self.most_pairs)

    def known(self) -> Plan:
        """The plan where earlier results say how noisy a series is: it looks from one pair on. The
        first looks ask for more, since a prior may be wrong and one pair cannot say so."""
        first = ((1, 0.0002), (2, 0.0005))
        later = tuple(look for look in self.explore if look[0] > first[-1][0])
        return replace(
            self,
            explore=first + later,
            confirm=(self.fewest_fresh, *self.confirm),
            least_believed=first[0][0] + self.fewest_fresh,
            least_quiet=_KNOWN_QUIET,
        )
