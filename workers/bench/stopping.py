"""When a timing may end: it is precise enough, or surely slower than the cut-off.

Assumes nothing about the distribution of the noise.
"""

import math
from collections.abc import Sequence

MARGIN = {False: 0.10, True: 1.0}
"""How far above a cut-off every burst must lie, on a GPU and on a CPU device.

Medians of one kernel on an H100 lie within 5 % of each other from process to process (those of
small kernels, hot; 1 % and less for large ones), on two shared cores within 70 %.
"""

LEAST_BURSTS, LEAST_LAUNCHES = 2, 8
"""With fewer, a candidate is not given up."""


def precise_enough(samples: Sequence[float], until: float | None) -> bool:
    """Whether the 95 % interval of the median is at most ``until`` times it, if that is given.

    The interval lies between two order statistics, whose ranks follow from the binomial
    distribution in its normal approximation; it takes six samples.
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


def least_bursts(launches: Sequence[int]) -> int:
    """After how many bursts, of so many raced launches each, a candidate may be given up."""
    raced = 0
    for number, count in enumerate(launches, 1):
        raced += count > 0
        if raced >= LEAST_BURSTS and sum(launches[:number]) >= LEAST_LAUNCHES:
            return number
    return len(launches)


def surely_slower(bursts: Sequence[tuple[float, int]], cutoff_ns: float, *, cpu: bool) -> bool:
    """Whether every burst so far, warm-up included, was above the cut-off by more than noise.

    Noise makes launches slower rather than faster, so the fastest burst counts. The host delays
    none: a device begins a burst once all of it is queued. A kernel as fast as the cut-off is given
    up only if each of at least two bursts was slower by the margin. On noise recorded on an H100
    the best of 100 configurations was not lost once in 1,440 searches. The margin also covers the
    luck of the configuration that set the cut-off, and where buffers lie, which is common to all
    timings of a kernel in one process.

    Args:
        bursts: nanoseconds of the fastest launch, or the mean of all, and how many were launched.
        cutoff_ns: slower candidates are of no interest.
        cpu: whether the device is a processor that others use too.
    """
    if len(bursts) < LEAST_BURSTS or sum(count for _, count in bursts) < LEAST_LAUNCHES:
        return False
    limit = cutoff_ns * (1 + MARGIN[cpu])
    return all(time > limit for time, _ in bursts)
