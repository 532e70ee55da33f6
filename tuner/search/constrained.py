"""Hyperopt's own algorithms, kept inside the feasible set.

They know no constraints: they propose from the full product and are told, at no cost, that an
infeasible point failed and what is known of a repeated one.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from tuner.search.explored import Explored, random_state
from tuner.search.hyperopt_frame import Frame, Observation, Ordinals, Suggest
from tuner.search.port import Losses
from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration

ATTEMPTS = 20
SEEDS = 2**31 - 1


class HyperoptProposer:
    """Asks Hyperopt up to :data:`ATTEMPTS` times, then takes a random point never seen.

    What was told at no cost is part of the state but of no journal. So a recorded proposal is made
    once more, as late as the next :meth:`ask`, and then replaced by what was recorded.
    """

    def __init__(self, space: FeasibleSet, seed: int, algorithm: Literal["tpe", "anneal"]) -> None:
        self._explored = Explored(space)
        self._seed = seed
        self._algorithm = algorithm
        self._frame: Frame | None = None
        self._observations: list[Observation] = []
        self._positions: dict[int, int] = {}
        self._trials: dict[int, int] = {}
        self._backlog: list[Callable[[], object]] = []

    def ask(self, trial: int) -> Configuration | None:
        """The first of Hyperopt's proposals that is feasible and new."""
        for event in self._backlog:
            event()
        self._backlog.clear()
        point = self._propose(trial)
        return None if point is None else self._take(trial, point)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Take note, and remember to repeat the proposal."""
        self._backlog.append(partial(self._repeat, trial, configuration))

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Pass the mean loss on; a failure counts as infinitely slow."""
        if self._backlog:
            self._backlog.append(partial(self._learn, trial, losses))
        else:
            self._learn(trial, losses)

    def _repeat(self, trial: int, configuration: Configuration) -> None:
        self._propose(trial)
        point = self._explored.space.index_of(configuration)
        if point is not None:
            self._take(trial, point)

    def _learn(self, trial: int, losses: Losses | None) -> None:
        self._explored.tell(trial, losses)
        if trial in self._positions:
            position = self._positions[trial]
            self._observations[position] = Observation(
                self._observations[position].ordinals, losses[0] if losses else None
            )

    def _take(self, trial: int, point: int) -> Configuration:
        self._positions[trial] = len(self._observations)
        self._trials[point] = trial
        ordinals = tuple(self._explored.space.rows[point].tolist())
        self._observations.append(Observation(ordinals, None))
        return self._explored.take(trial, point)

    def _propose(self, trial: int) -> int | None:
        if not self._explored.untried.any():
            return None
        rng = random_state(self._seed, trial)
        for _ in range(ATTEMPTS):
            ordinals = self._suggest(int(rng.integers(SEEDS)))
            point = int(self._explored.space.find(np.array([ordinals], np.uint16))[0])
            if point >= 0 and self._explored.untried[point]:
                return point
            known = self._explored.losses.get(self._trials[point]) if point >= 0 else None
            self._observations.append(Observation(ordinals, known[0] if known else None))
        return self._explored.draw(rng)

    def _suggest(self, seed: int) -> Ordinals:
        from hyperopt import anneal, tpe

        if self._frame is None:
            self._frame = Frame(self._explored.space)
        algorithm: Suggest = anneal.suggest
        if self._algorithm == "tpe":
            algorithm = partial(tpe.suggest, verbose=False)
        return self._frame.suggest(algorithm, self._observations, seed)
