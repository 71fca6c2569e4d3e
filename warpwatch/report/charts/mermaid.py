"""A chart that GitHub draws within a comment: text of Mermaid, in which no name of a result is."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MOST_PERCENT = 1000.0


def shares(ratios: Sequence[float]) -> list[str]:
    """Bars of times at head in percent of those at base, and a line at 100 %.

    Args:
        ratios: Head over base. A bar is known by its number, counted from 1: a name would come
            from a result, and nothing of a result is read as Mermaid's text.

    Returns:
        Lines of Markdown; none without ratios. A bar above 1000 % is cut there.

    Examples:
        >>> shares([1.25, 0.5])[4:7]
        ['y-axis "% of base" 0 --> 130', 'bar [125, 50]', 'line [100, 100]']
    """
    known = [min(100 * one, _MOST_PERCENT) for one in ratios if math.isfinite(one) and one >= 0]
    if not known:
        return []
    top = 10 * math.ceil(max(*known, 100.0) / 10 + 0.5)
    numbers = ", ".join(f'"{number}"' for number in range(1, len(known) + 1))
    return [
        "```mermaid",
        "xychart-beta",
        'title "Time at head, in percent of base"',
        f"x-axis [{numbers}]",
        f'y-axis "% of base" 0 --> {top}',
        f"bar [{', '.join(f'{one:.4g}' for one in known)}]",
        f"line [{', '.join(['100'] * len(known))}]",
        "```",
    ]
