"""Confidence intervals and verdicts of speedups.

The unit of replication is the process: each fresh process times baseline and candidate interleaved
and yields one log speedup. The interval is Student's t on their mean, with a standard deviation
pooled over all finalists on the same shape, where they share the device's noise. Its level holds
for the whole run: :data:`ERROR_RATE` is divided by the number of comparisons (Bonferroni).
Finalists also share the baseline's noise, half the variance of a log ratio, so their deviations
are correlated by 1/2: F of them with d degrees of freedom each are worth
``F d / (1 + (F - 1) / 4)``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["faster", "same", "slower", "unclear"]

ERROR_RATE = 0.01
"""Probability that any verdict of a run is wrong when there is no difference."""

MARGIN = 0.01
"""Relative difference up to which configurations count as equal."""

MAX_SPREAD = 0.10
"""Largest spread of the baseline against itself at which *same* is still a verdict."""

MAX_FACTOR = 100.0
"""Largest half-width of an interval, as a factor; a wider one is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviation of a log ratio between processes, and its degrees of freedom."""

    sigma: float
    freedom: float

    @classmethod
    def pooled(cls, groups: Sequence[Sequence[float]]) -> "Noise":
        """The noise pooled over groups with different means."""
        repeated = [group for group in groups if len(group) > 1]
        if not repeated:
            return cls(sigma=math.inf, freedom=0.0)
        squares = 0.0
        for group in repeated:
            mean = math.fsum(group) / len(group)
            squares += math.fsum((x - mean) ** 2 for x in group)
        freedom = sum(len(group) - 1 for group in repeated)
        return cls(
            sigma=math.sqrt(squares / freedom), freedom=freedom / (1 + (len(repeated) - 1) / 4)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A speedup (above 1 is faster) with its interval, from ``processes`` processes.

    ``low`` and ``high`` are ``None`` if the interval is too wide to show.
    """

    speedup: float
    low: float | None
    high: float | None
    verdict: Verdict
    processes: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.speedup:.3f}×"
        return f"{self.speedup:.3f}× [{self.low:.3f}, {self.high:.3f}]"

    @property
    def surely_faster(self) -> bool:
        """Whether the interval is above 1, however small the gain."""
        return self.low is not None and self.low > 1


def compare(logs: Sequence[float], noise: Noise, comparisons: int) -> Comparison:
    """The verdict on log speedups, one per process.

    *Same*: the interval lies inside ±max(1 %, A/A spread), where the spread, twice the half-width
    but at most 10 %, is what comparing the baseline with itself would show. *Faster* and *slower*:
    the difference exceeds 1 % and its interval excludes 0. Otherwise *unclear*.

    There is at least one log; ``comparisons`` is the number of verdicts in the whole run.
    """
    mean = math.fsum(logs) / len(logs)
    half = math.inf
    if noise.freedom:
        quantile = _quantile(1 - ERROR_RATE / max(1, comparisons) / 2, noise.freedom)
        half = quantile * noise.sigma / math.sqrt(len(logs))
    known = half <= math.log(MAX_FACTOR)
    margin = math.log1p(MARGIN)
    spread = min(2 * half, math.log1p(MAX_SPREAD))
    verdict: Verdict = "unclear"
    if abs(mean) + half <= max(margin, spread):
        verdict = "same"
    elif known and abs(mean) > max(margin, half):
        verdict = "faster" if mean > 0 else "slower"
    return Comparison(
        speedup=math.exp(mean),
        low=math.exp(mean - half) if known else None,
        high=math.exp(mean + half) if known else None,
        verdict=verdict,
        processes=len(logs),
    )


def _quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
