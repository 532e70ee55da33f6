"""The strategy: a Gaussian process over the exact feasible set, asked for expected improvement.

The mean over shapes decides who is asked for; later, in every third trial, the shapes one by one
do, so that specialists are found as well. All share one kernel, and so one posterior.

What it proposes is a function of what was recorded and told, in that order, and of the seed; no fit
builds on an earlier one, so that a rebuilt proposer goes on as the old one would have.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from tuner.search.explored import Explored, random_state
from tuner.search.gaussian_process.acquisition import log_expected_improvement, log_ranks
from tuner.search.gaussian_process.covariance import fit
from tuner.search.gaussian_process.encoding import Encoding, Floats, Points
from tuner.search.gaussian_process.posterior import Posterior
from tuner.search.port import Losses
from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration

DESIGN = 10
"""Trials spread over the space before the process is believed."""
SPARED = 3
"""So many of them fewer where the search was told where to begin: what won elsewhere shows the way
at once, and to look everywhere first would only delay it."""
SPREAD = 4096
"""Points among which the design looks for the next one."""
LEAST_TOLD = 3
GROWTH, MOST_GROWTH = 0.15, 100
"""Results, as a share of those before and at most so many, after which the fit is made anew."""
BASE = 200
"""Most results that a fit sees: the best ones for half of it, and a sample of the others."""
POOL = 2048
"""Candidates drawn for each fit, beside the neighbours of the best observations."""
NEIGHBOURHOODS = 5
BELIEVED = 100
"""Trials for which the least value measured is what to improve upon; later, what the process makes
of the measured values: that spares the end of a search the chase after lucky samples."""
SPECIAL, SPECIAL_FROM = 3, 60
"""One trial in so many looks for gains on single shapes, once the mean has told where to look."""


@dataclass(slots=True, eq=False)
class _Fit:
    """What a fit starts from, and the posterior that it ends in once someone asks.

    ``trials`` are the results it sees, with their ``targets``, then whatever was proposed besides:
    pending then, or proposed since.
    """

    trials: list[int]
    targets: Floats
    rng: np.random.Generator
    pool: Points = field(default_factory=lambda: np.empty(0, np.intp))
    posterior: Posterior | None = None
    observed: int = 0


class GaussianProcessProposer:
    """Expected improvement under a process fitted to the ranks of what was measured.

    Args:
        space: what may be proposed.
        seed: of everything random.
        seeded: whether the first proposals come from elsewhere, by :meth:`record`.
    """

    def __init__(self, space: FeasibleSet, seed: int, *, seeded: bool = False) -> None:
        self._design = DESIGN - SPARED * seeded
        self._space = space
        self._explored = Explored(space)
        self._encoding = Encoding.of(space)
        self._seed = seed
        self._told: list[int] = []
        self._sorted: list[Floats] = [np.empty(0)]
        self._fit: _Fit | None = None
        self._fit_at = LEAST_TOLD
        self._neighbours: dict[int, Points] = {}

    def ask(self, trial: int) -> Configuration | None:
        """A point of the design at first, then the one of greatest expected improvement."""
        if not self._explored.untried.any():
            return None
        if self._fit is None or len(self._explored.points) < self._design:
            point = self._spread(trial)
        else:
            point = self._most_promising(self._fit, trial)
        self._note(trial)
        return self._explored.take(trial, point)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Take note of an earlier proposal."""
        self._explored.record(trial, configuration)
        if trial in self._explored.points:
            self._note(trial)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Take note of a result; what it changes is computed when next asked."""
        self._explored.tell(trial, losses)
        if trial not in self._explored.losses:
            return
        self._told.append(trial)
        self._sort_in(losses)
        if len(self._told) >= self._fit_at:
            growth = min(math.ceil(GROWTH * len(self._told)), MOST_GROWTH)
            self._fit_at = len(self._told) + growth
            self._fit = self._begin_fit()

    def _sort_in(self, losses: Losses | None) -> None:
        """Keep each objective's values sorted: the mean's, and with several shapes theirs too."""
        objectives = len(self._sorted)
        if losses is not None and objectives == 1 and len(losses) > 2:
            objectives = len(losses)
            self._sorted = self._sorted * objectives
        values = [math.inf] * objectives if losses is None else losses[:objectives]
        self._sorted = [
            np.insert(known, np.searchsorted(known, value), value)
            for known, value in zip(self._sorted, values, strict=True)
        ]

    def _note(self, trial: int) -> None:
        if self._fit is not None:
            self._fit.trials.append(trial)

    def _spread(self, trial: int) -> int:
        """The point nearest the median of each parameter; then that farthest from all proposed."""
        rng = random_state(self._seed, trial)
        candidates = np.flatnonzero(self._explored.untried)
        if len(candidates) > SPREAD:
            candidates = rng.choice(candidates, SPREAD, replace=False)
        unit = self._encoding.unit(candidates)
        proposed = np.array([*self._explored.points.values()], np.intp)
        if len(proposed):
            others = self._encoding.unit(proposed)
            score = np.min([np.square(unit - other).sum(axis=1) for other in others], axis=0)
        else:
            score = -np.square(unit - np.median(unit, axis=0)).sum(axis=1)
        return int(candidates[np.argmax(score + 1e-6 * rng.random(len(candidates)))])

    def _begin_fit(self) -> _Fit:
        """Choose what the next fit sees, from the results so far."""
        told = np.array(self._told)
        losses = self._losses(self._told)[:, 0]
        rng = random_state(self._seed, len(told))
        if len(told) > BASE:
            order = np.argsort(losses, kind="stable")
            others = rng.choice(order[BASE // 2 :], BASE - BASE // 2, replace=False)
            chosen = np.sort(np.concatenate([order[: BASE // 2], others]))
            told, losses = told[chosen], losses[chosen]
        known = set(self._told)
        pending = [trial for trial in self._explored.points if trial not in known]
        targets = log_ranks(losses, self._sorted[0])
        return _Fit([*told.tolist(), *pending], targets, rng)

    def _most_promising(self, current: _Fit, trial: int) -> int:
        posterior = self._posterior(current)
        losses = self._losses(current.trials)
        pending = np.isnan(losses[:, 0])
        special = trial >= SPECIAL_FROM and trial % SPECIAL == 0 and losses.shape[1] > 1
        objectives = range(1, losses.shape[1]) if special else range(1)
        ranks = [log_ranks(losses[:, one], self._sorted[one]) for one in objectives]
        values = np.where(pending, np.inf, ranks).T
        weights = posterior.weights(values, pending)
        least = values if trial < BELIEVED else posterior.smooth(values, weights)
        best = least.min(axis=0)
        gains = log_expected_improvement(posterior.pool(weights), best)
        points = current.pool
        if len(points) < len(self._space):
            near = self._near(current, values)
            points = np.concatenate([points, near])
            gains = np.concatenate(
                [gains, log_expected_improvement(posterior.at(near, weights), best)], axis=1
            )
        gains = np.logaddexp.reduce(gains, axis=0)
        gains = np.where(self._explored.untried[points], gains, -np.inf)
        if not len(gains) or gains.max() == -np.inf:
            return self._spread(trial)
        return int(points[np.argmax(gains)])

    def _posterior(self, current: _Fit) -> Posterior:
        """The posterior of this fit, with everything proposed so far observed."""
        points = np.array([self._explored.points[trial] for trial in current.trials], np.intp)
        if current.posterior is None:
            base = len(current.targets)
            kernel = fit(self._encoding, points[:base], current.targets)
            current.pool = self._draw_pool(current.rng)
            current.posterior = Posterior(
                self._encoding, kernel, current.pool, base + self._fit_at - len(self._told) + 64
            )
            current.posterior.observe(points[:base])
            current.observed = base
        for index in range(current.observed, len(points)):
            current.posterior.observe(points[index : index + 1])
        current.observed = len(points)
        return current.posterior

    def _draw_pool(self, rng: np.random.Generator) -> Points:
        if len(self._space) <= POOL:
            return np.arange(len(self._space))
        return np.sort(rng.choice(len(self._space), POOL, replace=False))

    def _near(self, current: _Fit, values: Floats) -> Points:
        """Untried points one parameter away from the best observations of each objective."""
        each = -(-NEIGHBOURHOODS // values.shape[1])
        best = np.argsort(values, axis=0, kind="stable")[:each]
        found = []
        for index in np.unique(best):
            point = self._explored.points[current.trials[index]]
            if point not in self._neighbours:
                self._neighbours[point] = self._space.neighbours(point)
            found.append(self._neighbours[point])
        near = np.unique(np.concatenate(found))
        return near[self._explored.untried[near]]

    def _losses(self, trials: list[int]) -> Floats:
        """The losses of each trial, trials × objectives: infinite if failed, NaN if pending."""
        told, count = self._explored.losses, len(self._sorted)
        failed, pending = (math.inf,) * count, (math.nan,) * count
        return np.array(
            [
                (known[:count] if (known := told[trial]) else failed) if trial in told else pending
                for trial in trials
            ],
            np.float64,
        ).reshape(len(trials), count)
