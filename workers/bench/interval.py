"""When a timing is sure enough: the interval of its median, free of assumptions on the noise."""

import math
from collections.abc import Sequence


def settled(samples: Sequence[float], until: float | None) -> bool:
    """Whether the 95 % interval of the median is at most this share of it; if asked for at all.

    The interval lies between two order statistics, whose ranks follow from the binomial
    distribution (in its normal approximation); six samples are the least that have one.
    """
    if until is None:
        return True
    count = len(samples)
    below = math.floor(count / 2 - 0.98 * math.sqrt(count))
    if count < 6:
        return False
    ordered = sorted(samples)
    lower, upper = ordered[max(below, 0)], ordered[count - 1 - max(below, 0)]
    return upper - lower <= until * ordered[count // 2]
