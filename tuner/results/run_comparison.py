"""Compares two finished runs shape by shape: what the second exports against the first.

Two runs of the same kernel are compared by their speedups over it, which were measured beside it in
the same processes: what a clock or a temperature did between the runs cancels out. The speedup of
the kernel itself is 1 by definition and has no noise. No interval is narrower than those which the
runs have alone, which also allow for the choice among trials and for early stops.

Runs of different kernels are compared by what they minimised, their times or energies, in which the
baseline has noise, too.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from tuner.candidate import BASELINE
from tuner.experiment.digest import kernel_digest
from tuner.experiment.model import ShapeBinding
from tuner.experiment.objective import Objective
from tuner.journal.history import History
from tuner.results.evidence import MIN_PROCESSES, Evidence, weighted_means
from tuner.results.statistics import EXACT, Comparison, Noise, compare_apart
from tuner.results.summary import summarise

By = Literal["speedup"] | Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a run launches on a shape: a configuration, or the baseline.

    ``millijoules`` per launch are known where energy was measured.
    """

    configuration: str
    baseline: bool
    time_ns: float | None
    millijoules: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeComparison:
    """The second run against the first on a shape; no ``comparison`` where one did not time it."""

    shape: str
    held_out: bool
    first: Exported
    second: Exported
    comparison: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """All shapes that both runs have, compared by speedups or else by what was minimised.

    ``mean`` is over those that are tune shapes of both, with the weights of the first.
    ``only_first`` and ``only_second`` are the shapes that one run has and the other has not.
    """

    by: By
    shapes: tuple[ShapeComparison, ...]
    mean: Comparison | None
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


class _Side:
    """One run: its shapes, what it exports on each, and its samples as logs by process."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.evidence = Evidence(history, history.experiment.measure.cache)
        shapes = history.experiment.shapes
        self.bindings = (*shapes.tune, *shapes.held_out)
        self.tune = len(shapes.tune)
        self.portfolio = summarise(history).portfolio
        self.serves = self.portfolio.serves if self.portfolio else (BASELINE,) * len(self.bindings)

    def index(self, binding: ShapeBinding) -> int | None:
        symbols = [one.symbols for one in self.bindings]
        return symbols.index(binding.symbols) if binding.symbols in symbols else None

    def lacking_in(self, other: "_Side") -> tuple[str, ...]:
        """The shapes of this run that the other one has not."""
        return tuple(str(one) for one in self.bindings if other.index(one) is None)

    def exported(self, shape: int) -> Exported:
        trial = self.serves[shape]
        return Exported(
            configuration="the baseline"
            if trial == BASELINE
            else str(self.history.configuration(trial)),
            baseline=trial == BASELINE,
            time_ns=self.evidence.time(trial, shape),
            millijoules=self.evidence.millijoules(trial, shape),
        )

    def logs(self, shape: int, by: By) -> dict[int, float]:
        """By process, the log of speedup, or of 1 / cost, of what is exported."""
        trial = self.serves[shape]
        return (
            self.evidence.logs(trial, shape)
            if by == "speedup"
            else self.evidence.inverse_costs(trial, shape)
        )

    def exact(self, shapes: list[int], by: By) -> bool:
        """Whether the baseline serves all these shapes, whose speedup is 1 by definition."""
        return by == "speedup" and all(self.serves[shape] == BASELINE for shape in shapes)

    def noise(self, shape: int, by: By) -> Noise:
        """Between processes, pooled over all that was timed on the shape."""
        if self.exact([shape], by):
            return EXACT
        if by == "speedup":
            return self.evidence.noise[shape]
        timed = (BASELINE, *self.evidence.trials)
        costs = [self.evidence.inverse_costs(trial, shape) for trial in timed]
        return Noise.pooled([list(each.values()) for each in costs])

    def means(self, shapes: list[int], weights: list[float], by: By) -> list[float]:
        """By process, the weighted mean of the logs over shapes; only complete processes."""
        logs = [self.logs(shape, by) for shape in shapes]
        return list(weighted_means(logs, weights).values())

    def noise_of_mean(self, means: list[float], shapes: list[int], by: By) -> Noise:
        return EXACT if self.exact(shapes, by) else Noise.pooled([means])

    def half_width(self, shapes: list[int], by: By) -> float:
        """That of the run's own interval: on a single shape, or else of its mean."""
        if self.portfolio is None or by != "speedup" or self.exact(shapes, by):
            return 0.0
        if len(shapes) > 1:
            return self.portfolio.comparison.half_width
        own = self.portfolio.cells[shapes[0]].comparison
        return own.half_width if own else math.inf


def compare_runs(first: History, second: History) -> RunComparison:
    """The second run against the first, by what each exports; above 1 the second is faster.

    Both minimise the same objective: *faster* means less of it.
    """
    one, two = _Side(first), _Side(second)
    kernels = [kernel_digest(history.experiment.kernel) for history in (first, second)]
    by: By = "speedup" if kernels[0] == kernels[1] else first.experiment.objective
    pairs = [
        (index, other)
        for index, binding in enumerate(one.bindings)
        if (other := two.index(binding)) is not None
    ]
    comparisons = len(pairs) + 1
    shapes = tuple(
        ShapeComparison(
            shape=str(one.bindings[index]),
            held_out=index >= one.tune or other >= two.tune,
            first=one.exported(index),
            second=two.exported(other),
            comparison=_compared(
                list(one.logs(index, by).values()),
                list(two.logs(other, by).values()),
                (one.noise(index, by), two.noise(other, by)),
                comparisons,
                max(one.half_width([index], by), two.half_width([other], by)),
            ),
        )
        for index, other in pairs
    )
    found = RunComparison(
        by=by,
        shapes=shapes,
        mean=None,
        only_first=one.lacking_in(two),
        only_second=two.lacking_in(one),
    )
    tuned = [pair for pair in pairs if pair[0] < one.tune and pair[1] < two.tune]
    if len(tuned) == 1:  # the mean of one shape is that shape, with what is known of its noise
        only = shapes[pairs.index(tuned[0])]
        return replace(found, mean=only.comparison)
    weights = [one.bindings[index].weight for index, _ in tuned]
    firsts, seconds = [index for index, _ in tuned], [other for _, other in tuned]
    before, after = one.means(firsts, weights, by), two.means(seconds, weights, by)
    noise = one.noise_of_mean(before, firsts, by), two.noise_of_mean(after, seconds, by)
    least = max(one.half_width(firsts, by), two.half_width(seconds, by))
    mean = _compared(before, after, noise, comparisons, least)
    return replace(found, mean=mean)


def _compared(
    first: list[float],
    second: list[float],
    noise: tuple[Noise, Noise],
    comparisons: int,
    least: float,
) -> Comparison | None:
    if min(len(first), len(second)) < MIN_PROCESSES:
        return None
    return compare_apart(first, second, noise, comparisons, least=least)
