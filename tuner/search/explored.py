"""What has been proposed from a feasible set, by trial number, and what became of it.

The memory that every strategy shares. Rebuilt from the journal by the same two calls that built it.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tuner.search.port import Losses
from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration


@dataclass(slots=True, eq=False)
class Explored:
    """Points of ``space`` by trial; ``losses`` holds those told, ``None`` for a failure.

    ``untried`` marks the points never proposed. A configuration outside the space (from an earlier
    epoch, say) is no point of it and is not kept.
    """

    space: FeasibleSet
    points: dict[int, int] = field(default_factory=dict)
    losses: dict[int, Losses | None] = field(default_factory=dict)
    untried: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.untried = np.ones(len(self.space), np.bool_)

    def take(self, trial: int, point: int) -> Configuration:
        """Note that ``trial`` runs ``point``, and return its configuration."""
        self.points[trial] = point
        self.untried[point] = False
        return self.space.configuration(point)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Note that an earlier process proposed this configuration."""
        point = self.space.index_of(configuration)
        if point is not None:
            self.take(trial, point)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Note a trial's losses, or its failure."""
        if trial in self.points:
            self.losses[trial] = losses

    def draw(self, rng: np.random.Generator) -> int | None:
        """A random point never proposed; ``None`` once there is none."""
        left = np.flatnonzero(self.untried)
        return int(rng.choice(left)) if len(left) else None


def random_state(seed: int, trial: int) -> np.random.Generator:
    """The random state of one trial: a function of these two numbers alone."""
    return np.random.default_rng([seed, trial])
