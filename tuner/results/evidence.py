"""Confirming samples in one cache state, as logarithms of speedups by process.

The process is the unit of replication. Knows nothing of who wins.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from statistics import median

from tuner.engine.fleet import BASELINE, Confirmed
from tuner.journal.facts import ConfirmationSampled
from tuner.journal.history import History
from tuner.results.result import Cell
from tuner.results.statistics import Noise, compare

MIN_PROCESSES = 2
"""Fewer fresh processes confirm nothing."""


class Samples:
    """What fresh processes saw, by trial and shape, less that of whoever failed."""

    def __init__(
        self,
        confirmations: Iterable[Confirmed | ConfirmationSampled],
        cache: str,
        failed: Collection[int],
    ) -> None:
        self.cache = cache
        self._times: dict[tuple[int, int], dict[int, float]] = {}
        for confirmation in confirmations:
            for sample in confirmation.samples:
                valid = math.isfinite(sample.median_ns) and sample.median_ns > 0
                if sample.cache == cache and sample.trial not in failed and valid:
                    times = self._times.setdefault((sample.trial, sample.shape), {})
                    times[confirmation.process] = sample.median_ns
        self.trials = sorted({trial for trial, _ in self._times if trial != BASELINE})

    def logs(self, trial: int, shape: int, against: int = BASELINE) -> dict[int, float]:
        """By process, the logarithm of how much faster ``trial`` is than ``against``."""
        own, other = self._times.get((trial, shape), {}), self._times.get((against, shape), {})
        return {p: math.log(other[p] / own[p]) for p in own if p in other}

    def noise_at(self, shape: int) -> Noise:
        """From process to process, of all trials together."""
        return Noise.pooled([list(self.logs(trial, shape).values()) for trial in self.trials])


class Evidence(Samples):
    """The samples of a run and their noise; shapes count tune, then held-out ones."""

    def __init__(self, history: History, cache: str) -> None:
        super().__init__(history.confirmations, cache, history.refuted)
        shapes = history.experiment.shapes
        self.weights = [binding.weight for binding in (*shapes.tune, *shapes.held_out)]
        self.noise = [self.noise_at(shape) for shape in range(len(self.weights))]
        tune = range(len(shapes.tune))
        self.noise_over_all = Noise.pooled(
            [list(self.over(dict.fromkeys(tune, trial)).values()) for trial in self.trials]
        )
        self.cells = sum(
            self.seen(trial, shape) for trial in self.trials for shape in range(len(self.weights))
        )

    def time(self, trial: int, shape: int) -> float | None:
        """The median over processes of the per-process medians."""
        times = self._times.get((trial, shape))
        return median(times.values()) if times else None

    def seen(self, trial: int, shape: int) -> bool:
        """Whether it ran there in enough processes."""
        return len(self.logs(trial, shape)) >= MIN_PROCESSES

    def over(self, chosen: Mapping[int, int]) -> dict[int, float]:
        """By process, the weighted mean of log speedups over shapes, where all were seen.

        ``chosen`` maps each shape to the trial, or the incumbent, that serves it.
        """
        logs = [self.logs(trial, shape) for shape, trial in chosen.items()]
        weights = [self.weights[shape] for shape in chosen]
        common = set(logs[0]).intersection(*logs[1:]) if logs else set()
        return {
            process: math.fsum(w * log[process] for w, log in zip(weights, logs, strict=True))
            / math.fsum(weights)
            for process in sorted(common)
        }

    def cell(self, trial: int, shape: int, comparisons: int) -> Cell:
        """The judged cell; empty where it was not seen enough."""
        if not self.seen(trial, shape):
            return Cell(shape=shape, time_ns=None, speedup=None)
        logs = list(self.logs(trial, shape).values())
        found = compare(logs, self.noise[shape], comparisons)
        time = self.time(trial, shape)
        return Cell(shape=shape, time_ns=time, speedup=found.speedup, comparison=found)
