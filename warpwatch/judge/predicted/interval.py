"""How sure a predicted change is: the interval of a ratio of two predicted times.

Predictions of two versions of one call err alike, so that their ratio is surer than either. It
errs by a share of how far it is from 1, and by a little in any case. The share is calibrated on
the first half of the published history by split conformal prediction (Vovk et al., *Algorithmic
Learning in a Random World*, 2005): of the changes of time there, as many as the confidence says
were within it. So it holds the noise of the measurement, too. Of a few values of the part in any
case, the least was taken that gives most changes of the first half their verdict, and none a wrong
one.
``python -m tools.docs.results`` prints how it does on the second half.
"""

from __future__ import annotations

import math

CONFIDENCE = 0.9
# Of the logarithm of a ratio, however small it is.
_LEAST = 0.08
# Of what `scale` says; a test holds it against the calibration.
WIDTH = 0.45


def scale(ratio: float) -> float:
    """How far a predicted ratio may err, in logarithms, but for ``WIDTH``."""
    return _LEAST + abs(math.log(ratio))


def of_ratio(ratio: float) -> tuple[float, float]:
    """The interval that holds the true ratio.

    Args:
        ratio: Later predicted time over earlier.

    Returns:
        Its ends.

    Example:
        >>> low, high = of_ratio(1.0)
        >>> low < 1 < high
        True
    """
    half = WIDTH * scale(ratio)
    return ratio * math.exp(-half), ratio * math.exp(half)


def verdict(ratio: float) -> int:
    """What a predicted ratio says.

    Args:
        ratio: Later predicted time over earlier.

    Returns:
        1 where the later one is slower, -1 where it is faster, 0 where the interval holds 1.
    """
    low, high = of_ratio(ratio)
    return int(low > 1) - int(high < 1)
