"""By what a call is judged: its time, or the cycles of its kernels where it is short.

Of a call of less than 20 us, the launch is a large part. Times of identical code differ between
processes by up to 27 %, at one clock, while cycles from start to end of a kernel agree within 2 %.
So the cycles decide, and the time explains. Cycles that SMs were active on average explain, too:
they say how busy a card was, and a short call rarely fills one.

A long call fills the card and hides its launch: there the time decides, with the cycles of the SMs.
"""

from __future__ import annotations

import math

SHORT_US = 20.0
TIME, CYCLES = "latency_cold", "kernel_cycles"
# The newest values whose middle says how long a call takes, as it is now.
NEWEST = 5
_OF_SHORT = (TIME, "sm_cycles")


def is_short(us: float, has_cycles: bool) -> bool:
    """Whether a call is judged by cycles.

    Args:
        us: Its cold time; NaN where it is not known.
        has_cycles: Whether the cycles of its kernels were counted.

    Returns:
        False where nobody counted: then the time is all there is.

    Examples:
        >>> is_short(12.0, True), is_short(12.0, False), is_short(25.0, True)
        (True, False, False)
    """
    return has_cycles and math.isfinite(us) and us < SHORT_US


def explains(metric: str, short: bool) -> str:
    """Why a metric only explains what others say of the same call.

    Args:
        metric: Its name.
        short: Whether the call is judged by cycles.

    Returns:
        One sentence; empty where the metric has the role that it is registered with.

    Examples:
        >>> explains("latency_cold", True)
        'evidence: calls below 20 us are judged by kernel_cycles'
        >>> explains("latency_cold", False)
        ''
    """
    if short and metric in _OF_SHORT:
        return f"evidence: calls below {SHORT_US:.0f} us are judged by {CYCLES}"
    if not short and metric == CYCLES:
        return f"evidence: calls of {SHORT_US:.0f} us or more are judged by time"
    return ""
