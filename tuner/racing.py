"""Racing: who leads so far, and which cells are worth the full protocol.

A bench job carries *cut-offs* as of its sending: time ÷ baseline of the k-th best so far, over all
shapes and on each. A cell that stays above its shape's is given up (:class:`tuner.trial.Short`),
unless its configuration leads over all shapes; so a specialist is not lost for its mean, nor a
general configuration for one shape. Cut-offs only fall, so that old ones give up less. Knows
nothing of how timings are taken; that is :mod:`workers.bench.stopping`.
"""

import math
from bisect import insort
from collections.abc import Sequence

from tuner.search.port import Losses
from tuner.trial import Full, Measured, geometric_mean


class CutoffTracker:
    """The ``places`` best trials so far, over all shapes and on each."""

    def __init__(self, places: int, weights: Sequence[float]) -> None:
        self._places = places
        self._weights = weights
        self._best: list[list[tuple[float, int]]] = [[] for _ in range(1 + len(weights))]

    def take(self, trial: int, outcome: Measured) -> None:
        """Enter a configuration that was measured."""
        if outcome.general and outcome.complete:
            mean = geometric_mean([cell.ratio for cell in outcome.cells], self._weights)
            self._enter(0, mean, trial)
        for shape, cell in enumerate(outcome.cells):
            if isinstance(cell, Full):
                self._enter(1 + shape, cell.ratio, trial)

    @property
    def leader(self) -> int | None:
        """The best over all shapes, of those that were measured in full on each."""
        return self._best[0][0][1] if self._best[0] else None

    @property
    def cutoffs(self) -> Losses:
        """What is above leads nowhere: over all shapes, then on each; infinite at first."""
        return tuple(best[-1][0] if len(best) == self._places else math.inf for best in self._best)

    def _enter(self, objective: int, ratio: float, trial: int) -> None:
        best = self._best[objective]
        insort(best, (ratio, trial))
        del best[self._places :]


def leads_on(shape: int, ratio: float, cutoffs: Losses) -> bool:
    """Whether a cell is worth the full protocol for its own sake; all are without cut-offs."""
    return not cutoffs or ratio <= cutoffs[1 + shape]


def leads_over_all(outcome: Measured, weights: Sequence[float], cutoffs: Losses) -> bool:
    """Whether all cells are, since the configuration serves every shape well."""
    ratios = [cell.ratio for cell in outcome.cells]
    return outcome.general and (not cutoffs or geometric_mean(ratios, weights) <= cutoffs[0])
