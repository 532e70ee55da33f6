"""The feasible set in random order: random search, and exhaustive search once it runs to the end.

A random order costs an exhaustive search nothing, and makes what it has seen at any moment a fair
sample.
"""

import numpy as np

from tuner.search.explored import Explored
from tuner.search.port import Losses
from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration


class ShuffledProposer:
    """Proposes every point once, in an order that the seed alone decides."""

    def __init__(self, space: FeasibleSet, seed: int) -> None:
        self._explored = Explored(space)
        self._order = np.random.default_rng(seed).permutation(len(space))
        self._next = 0

    def ask(self, trial: int) -> Configuration | None:
        """The first point of the order that was never proposed."""
        while self._next < len(self._order):
            point = int(self._order[self._next])
            if self._explored.untried[point]:
                return self._explored.take(trial, point)
            self._next += 1
        return None

    def record(self, trial: int, configuration: Configuration) -> None:
        """Leave out what an earlier process proposed."""
        self._explored.record(trial, configuration)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Outcomes change nothing here."""
        self._explored.tell(trial, losses)
