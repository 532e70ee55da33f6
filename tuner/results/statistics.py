"""Confidence intervals and verdicts of speedups.

The unit of replication is the process: each fresh process times baseline and candidate interleaved
and yields one log speedup. The interval is Student's t on their mean, with a standard deviation
pooled over all finalists on the same shape, where they share the device's noise. Its level holds
for the whole run: :data:`ERROR_RATE` is divided by the number of comparisons (Bonferroni).
Finalists also share the baseline's noise, half the variance of a log ratio, so their deviations
are correlated by 1/2: F of them with d degrees of freedom each are worth
``F d / (1 + (F - 1) / 4)``.

Confirmation may stop early. It looks at the verdicts after each process, so their error rate is
spent over the looks (Kim and DeMets 1987): up to the n-th of at most N processes a share of
``(n / N) ** 3``. The interval after n processes has the part of the error rate that this look
spends. By Bonferroni all intervals of all looks hold at once in 99 % of runs, so the last one may
be reported whenever, and for whatever reason, confirmation stops (repeated confidence intervals:
Jennison and Turnbull 1989).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["faster", "same", "slower", "unclear"]

FEWEST = 3
"""Processes after which confirmation looks at the verdicts for the first time."""

_SPENDING = 3
"""Exponent by which the error rate is spent: most of it at the last look, as if there were one."""

ERROR_RATE = 0.01
"""Probability that any verdict of a run is wrong when there is no difference."""

MARGIN = 0.01
"""Relative difference up to which configurations count as equal."""

MAX_SPREAD = 0.10
"""Largest spread of the baseline against itself at which *same* is still a verdict."""

MAX_FACTOR = 100.0
"""Largest half-width of an interval, as a factor; a wider one is not shown."""

WIDE = 0.40
"""Half-width of an interval, as a relative difference, beyond which a figure is too vague to quote
alone, and to hold when measured again, however surely it is above or below 1."""


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


EXACT = Noise(sigma=0.0, freedom=math.inf)
"""The noise of what holds by definition, not by measurement."""


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
        return interval_text(self.speedup, self.low, self.high)

    @property
    def half_width(self) -> float:
        """Half of the interval's width, as a log; infinite if that is not known."""
        return half_width(self.low, self.high)

    @property
    def width(self) -> float:
        """The interval's width as a share of the speedup; infinite if that is not known."""
        if self.low is None or self.high is None:
            return math.inf
        return (self.high - self.low) / self.speedup

    @property
    def caution(self) -> str:
        """The interval for a command's last line if it is wide though the verdict is sure."""
        if self.verdict not in ("faster", "slower") or not is_wide(self.low, self.high):
            return ""
        return f" interval=[{self.low:.2f},{self.high:.2f}]"

    @property
    def surely_faster(self) -> bool:
        """Whether the interval is above 1, however small the gain."""
        return self.low is not None and self.low > 1

    @property
    def decided(self) -> bool:
        """Whether further processes need not be asked: faster, slower, or within 1 % of 1."""
        if self.low is None or self.high is None:
            return False
        return self.verdict in ("faster", "slower") or max(self.high, 1 / self.low) <= 1 + MARGIN

    @property
    def gain_decided(self) -> bool:
        """The same of a gain on the incumbent, which also need not be known below 1 %."""
        return self.decided or (self.high is not None and self.high <= 1 + MARGIN)


def half_width(low: float | None, high: float | None) -> float:
    """Half of an interval's width, as a log; infinite without one."""
    return math.log(high / low) / 2 if low and high else math.inf


def is_wide(low: float | None, high: float | None) -> bool:
    """Whether an interval is wider than :data:`WIDE`."""
    return half_width(low, high) > math.log1p(WIDE)


def interval_text(speedup: float, low: float | None, high: float | None) -> str:
    """A speedup with its interval, if that is known."""
    if low is None or high is None:
        return f"{speedup:.3f}×"
    return f"{speedup:.3f}× [{low:.3f}, {high:.3f}]"


def compare(
    logs: Sequence[float], noise: Noise, comparisons: int, *, at_most: int | None = None
) -> Comparison:
    """The verdict on log speedups, one per process.

    *Same*: the interval lies inside ±max(1 %, A/A spread), where the spread, twice the half-width
    but at most 10 %, is what comparing the baseline with itself would show. *Faster* and *slower*:
    the difference exceeds 1 % and its interval excludes 0. Otherwise *unclear*.

    Args:
        logs: at least one.
        noise: between processes.
        comparisons: the number of verdicts in the whole run.
        at_most: how many processes there may be, if it is looked at the verdict after each.
    """
    mean = math.fsum(logs) / len(logs)
    half = math.inf
    if noise.freedom:
        rate = ERROR_RATE * _spent_at(len(logs), at_most or 1) / max(1, comparisons)
        quantile = _quantile(1 - rate / 2, noise.freedom)
        half = quantile * noise.sigma / math.sqrt(len(logs))
    return _judged(mean, half, len(logs))


def compare_apart(
    first: Sequence[float],
    second: Sequence[float],
    noise: tuple[Noise, Noise],
    comparisons: int,
    *,
    least: float = 0.0,
) -> Comparison:
    """The verdict on ``second`` against ``first``, log speedups by process of separate runs.

    Nothing pairs the processes, so both runs' noise counts (Welch's t test); verdicts as in
    :func:`compare`.

    Args:
        first: at least one.
        second: at least one.
        noise: between processes, of each run.
        comparisons: the number of verdicts in all.
        least: the half-width, as a log, that the interval has at least.
    """
    mean = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    half = math.inf
    if all(one.freedom for one in noise):
        sizes = (len(first), len(second))
        parts = [one.sigma**2 / size for one, size in zip(noise, sizes, strict=True)]
        squares = math.fsum(part**2 / one.freedom for part, one in zip(parts, noise, strict=True))
        total = math.fsum(parts)
        freedom = total**2 / squares if squares else noise[0].freedom + noise[1].freedom
        half = _quantile(1 - ERROR_RATE / max(1, comparisons) / 2, freedom) * math.sqrt(total)
    return _judged(mean, max(half, least), min(len(first), len(second)))


def _judged(mean: float, half: float, processes: int) -> Comparison:
    """The verdict on a mean log speedup with the half-width of its interval."""
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
        processes=processes,
    )


def _spent_at(processes: int, at_most: int) -> float:
    """The share of the error rate for the look after so many processes."""
    last = min(processes, at_most)
    before = last - 1 if last > FEWEST else 0
    return float((last / at_most) ** _SPENDING - (before / at_most) ** _SPENDING)


def _quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
