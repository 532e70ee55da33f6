"""When a timing has gone on for long enough: it is sure, or surely too slow.

Owns the statistics, free of assumptions on the distribution of the noise.
"""

import math
from collections.abc import Sequence

MARGIN = {False: 0.10, True: 1.0}
"""How far above a cut-off every burst must lie, on a GPU and on a CPU device.

Medians of one kernel on an H100 lie within 5 % of each other from process to process (those of
small kernels, hot; 1 % and less for large ones), on two shared cores within 70 %.
"""

HICCUP_NS = 100_000
"""What the host may add to a burst: work was seen 70–110 µs late on an H100, bursts in a row."""

LEAST_BURSTS, LEAST_LAUNCHES = 2, 8
"""Fewer prove nothing."""


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


def hopeless(bursts: Sequence[tuple[float, int]], cutoff_ns: float, *, cpu: bool) -> bool:
    """Whether every burst so far, warm-up included, was surely above the cut-off.

    Noise makes slower rather than faster, so the least of the bursts counts: a kernel as fast as
    the cut-off is given up only if each of them, two at least, was slower than it by the margin
    *and*, where launches are timed together, by a hiccup of the host. If one burst is so with
    chance p, two that err alone are with p². The best of all lies at or below the cut-off but for
    the luck of the k-th best, which the margin has room for as well; on noise as recorded on an
    H100, with hiccups in runs of three, it was not lost once in 18,000 searches. Where buffers lie
    is common to all timings of a kernel in one process: that too is for the margin.

    Args:
        bursts: nanoseconds of the fastest launch, or the mean of all, and how many were launched.
        cutoff_ns: what is above leads nowhere.
        cpu: whether the device is a processor that others use too.
    """
    if len(bursts) < LEAST_BURSTS or sum(count for _, count in bursts) < LEAST_LAUNCHES:
        return False
    limit = cutoff_ns * (1 + MARGIN[cpu])
    hiccup = 0.0 if cpu else HICCUP_NS
    return all(time > limit + hiccup / launches for time, launches in bursts)
