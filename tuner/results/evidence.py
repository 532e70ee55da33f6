"""Confirmation samples in one cache state, as log speedups by process.

The process is the unit of replication.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from tuner.candidate import BASELINE
from tuner.experiment.objective import ENERGY_SHARE, Objective
from tuner.journal.facts import ConfirmationSampled, Sample
from tuner.journal.history import History
from tuner.results.result import Cell
from tuner.results.statistics import Comparison, Noise, compare

MIN_PROCESSES = 2
"""Fresh processes that a confirmation needs at least."""


class Samples:
    """Samples of fresh processes, by trial and shape, without those of failed trials.

    Speedups are the baseline's cost ÷ that of a trial, in what the ``objective`` minimises.
    """

    def __init__(
        self,
        confirmations: Iterable[ConfirmationSampled],
        cache: str,
        failed: Collection[int],
        objective: Objective = "time",
    ) -> None:
        self.cache = cache
        self._share = ENERGY_SHARE[objective]
        self._taken: dict[tuple[int, int], dict[int, Sample]] = {}
        self._serialised: dict[tuple[int, int], dict[int, Sample]] = {}
        for confirmation in confirmations:
            for sample in confirmation.samples:
                cost = sample.cost(self._share)
                valid = cost is not None and math.isfinite(cost) and cost > 0
                if sample.cache == cache and sample.trial not in failed and valid:
                    found = self._serialised if sample.serialised else self._taken
                    by_process = found.setdefault((sample.trial, sample.shape), {})
                    by_process[confirmation.process] = sample
        self.trials = sorted({trial for trial, _ in self._taken if trial != BASELINE})

    def logs(self, trial: int, shape: int, against: int = BASELINE) -> dict[int, float]:
        """By process, the log speedup of ``trial`` over ``against``."""
        return self._logs(self._taken.get((trial, shape), {}), shape, against)

    def inverse_costs(self, trial: int, shape: int) -> dict[int, float]:
        """By process, the log of 1 / cost, from nanoseconds and millijoules."""
        samples = self._taken.get((trial, shape), {})
        costs = {process: sample.cost(self._share) for process, sample in samples.items()}
        return {process: -math.log(cost) for process, cost in costs.items() if cost}

    def serialised_logs(self, trial: int, shape: int) -> dict[int, float]:
        """By process, the log speedup over the baseline of a trial that was timed serialised."""
        return self._logs(self._serialised.get((trial, shape), {}), shape, BASELINE)

    def _logs(self, own: Mapping[int, Sample], shape: int, against: int) -> dict[int, float]:
        other = self._taken.get((against, shape), {})
        pairs = {p: (sample.cost(self._share), other[p]) for p, sample in own.items() if p in other}
        return {
            process: math.log(reference / cost)
            for process, (cost, sample) in pairs.items()
            if cost and (reference := sample.cost(self._share))
        }

    def noise_at(self, shape: int) -> Noise:
        """The noise between processes, pooled over all trials."""
        return Noise.pooled([list(self.logs(trial, shape).values()) for trial in self.trials])


def weighted_means(
    logs: Sequence[Mapping[int, float]], weights: Sequence[float]
) -> dict[int, float]:
    """By process, the weighted mean over shapes of what ``logs`` has; only complete processes."""
    common = set(logs[0]).intersection(*logs[1:]) if logs else set()
    return {
        process: math.fsum(w * log[process] for w, log in zip(weights, logs, strict=True))
        / math.fsum(weights)
        for process in sorted(common)
    }


class Evidence(Samples):
    """The samples of a run and their noise; shapes are numbered tune first, then held-out."""

    def __init__(self, history: History, cache: str) -> None:
        objective = history.experiment.objective
        super().__init__(history.confirmations, cache, history.failed_later, objective)
        self.at_most = history.experiment.confirm.processes
        shapes = history.experiment.shapes
        self.weights = [binding.weight for binding in (*shapes.tune, *shapes.held_out)]
        self.noise = [self.noise_at(shape) for shape in range(len(self.weights))]
        tune = range(len(shapes.tune))
        self.noise_of_mean = Noise.pooled(
            [list(self.mean_logs(dict.fromkeys(tune, trial)).values()) for trial in self.trials]
        )
        self.confirmed_cells = sum(
            self.confirmed(trial, shape)
            for trial in self.trials
            for shape in range(len(self.weights))
        )

    def time(self, trial: int, shape: int) -> float | None:
        """The median over processes of the per-process medians."""
        samples = self._taken.get((trial, shape), {}).values()
        return median(one.median_ns for one in samples) if samples else None

    def millijoules(self, trial: int, shape: int) -> float | None:
        """The median over processes of the energy of a launch, where it is measured."""
        samples = self._taken.get((trial, shape), {}).values()
        found = [one.millijoules for one in samples if one.millijoules is not None]
        return median(found) if found else None

    def unseen(self, trial: int, shape: int) -> float | None:
        """The median over processes of the time on inputs never seen ÷ that on repeated ones."""
        samples = self._taken.get((trial, shape), {}).values()
        found = [one.unseen for one in samples if one.unseen is not None]
        return median(found) if found else None

    def baseline_scatter(self, shape: int) -> float | None:
        """Median absolute deviation of the baseline's per-process medians ÷ their median."""
        middle = self.time(BASELINE, shape)
        if middle is None:
            return None
        times = [one.median_ns for one in self._taken[BASELINE, shape].values()]
        return median(abs(time - middle) for time in times) / middle

    def confirmed(self, trial: int, shape: int) -> bool:
        """Whether enough processes timed the trial on the shape."""
        return len(self.logs(trial, shape)) >= MIN_PROCESSES

    def mean_logs(self, serving: Mapping[int, int]) -> dict[int, float]:
        """By process, the weighted mean log speedup over shapes; only complete processes.

        ``serving`` maps each shape to the trial that serves it.
        """
        logs = [self.logs(trial, shape) for shape, trial in serving.items()]
        return weighted_means(logs, [self.weights[shape] for shape in serving])

    def compared(self, logs: Sequence[float], noise: Noise, comparisons: int) -> Comparison:
        """The verdict on log speedups by process, of as many as the experiment allows."""
        return compare(logs, noise, comparisons, at_most=self.at_most)

    def serialised_mean(self, trial: int, shapes: Sequence[int]) -> float | None:
        """The weighted mean speedup of a trial that was timed serialised on all these shapes."""
        logs = [list(self.serialised_logs(trial, shape).values()) for shape in shapes]
        if not all(logs):
            return None
        weights = [self.weights[shape] for shape in shapes]
        means = (math.fsum(log) / len(log) for log in logs)
        total = math.fsum(w * mean for w, mean in zip(weights, means, strict=True))
        return math.exp(total / math.fsum(weights))

    def cell(self, trial: int, shape: int, comparisons: int) -> Cell:
        """The cell with its verdict; empty if too few processes timed it."""
        if not self.confirmed(trial, shape):
            return Cell(shape=shape, time_ns=None, speedup=None)
        logs = list(self.logs(trial, shape).values())
        comparison = self.compared(logs, self.noise[shape], comparisons)
        plain = list(self.serialised_logs(trial, shape).values())
        return Cell(
            shape=shape,
            time_ns=self.time(trial, shape),
            speedup=comparison.speedup,
            comparison=comparison,
            millijoules=self.millijoules(trial, shape),
            serialised_ns=median(one.median_ns for one in self._serialised[trial, shape].values())
            if plain
            else None,
            serialised=self.compared(plain, self.noise[shape], comparisons)
            if len(plain) >= MIN_PROCESSES
            else None,
            unseen=self.unseen(trial, shape),
        )
