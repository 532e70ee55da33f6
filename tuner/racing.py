"""Racing: the best trials so far, and which cells are worth the full timing protocol.

Measuring work carries *cut-offs* as of its sending: time ÷ baseline of the k-th fastest trial, over
all shapes and on each shape, times a slack where not time alone is minimised. A cell above its
shape's cut-off is cut short (:class:`tuner.trial.CutShort`), unless its configuration is within the
cut-off over all shapes. So neither a specialist is lost for its mean, nor a general configuration
for one shape. Cut-offs only fall, so old ones cut less short. How timings are taken is up to
:mod:`workers.bench.stopping`.
"""

import math
from bisect import insort
from collections.abc import Sequence

from tuner.search.port import Losses
from tuner.trial import Full, Measured, geometric_mean


class CutoffTracker:
    """The ``places`` fastest trials so far, over all shapes and on each shape, and the best one."""

    def __init__(self, places: int, weights: Sequence[float], slack: float = 1.0) -> None:
        self._places = places
        self._weights = weights
        self._slack = slack
        self._leader: tuple[float, int] | None = None
        self._best: list[list[tuple[float, int]]] = [[] for _ in range(1 + len(weights))]

    def take(self, trial: int, outcome: Measured) -> None:
        """Enter a measured trial."""
        if outcome.general and outcome.complete:
            times = [cell.time_ratio for cell in outcome.cells]
            self._enter(0, geometric_mean(times, self._weights), trial)
            mean = geometric_mean([cell.ratio for cell in outcome.cells], self._weights)
            self._leader = min(self._leader or (mean, trial), (mean, trial))
        for shape, cell in enumerate(outcome.cells):
            if isinstance(cell, Full):
                self._enter(1 + shape, cell.time_ratio, trial)

    @property
    def leader(self) -> int | None:
        """The best trial over all shapes, among those measured in full on each."""
        return self._leader[1] if self._leader else None

    @property
    def cutoffs(self) -> Losses:
        """The cut-off over all shapes, then one per shape; infinite while places are free."""
        return tuple(
            self._slack * best[-1][0] if len(best) == self._places else math.inf
            for best in self._best
        )

    def _enter(self, objective: int, ratio: float, trial: int) -> None:
        best = self._best[objective]
        insort(best, (ratio, trial))
        del best[self._places :]


def within_cutoff(shape: int, ratio: float, cutoffs: Losses) -> bool:
    """Whether a cell's time ratio is within its shape's cut-off; true without cut-offs."""
    return not cutoffs or ratio <= cutoffs[1 + shape]


def within_mean_cutoff(outcome: Measured, weights: Sequence[float], cutoffs: Losses) -> bool:
    """Whether a configuration serves every shape, and its mean is within the cut-off."""
    ratios = [cell.time_ratio for cell in outcome.cells]
    return outcome.general and (not cutoffs or geometric_mean(ratios, weights) <= cutoffs[0])
