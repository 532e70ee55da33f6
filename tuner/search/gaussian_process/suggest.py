"""Expected improvement under a Gaussian process, as a Hyperopt algorithm: the strategy ``gp``.

Trials minimise the mean over shapes; later, every third trial seeks gains on single shapes, to find
specialists too. All objectives share one posterior.

A proposal is a function of the trials so far, their order of completion, and the seed. No fit
builds on an earlier one, so a search that is resumed goes on as if undisturbed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tuner.search.explored import Explored, random_state
from tuner.search.gaussian_process.acquisition import log_expected_improvement, log_ranks
from tuner.search.gaussian_process.covariance import fit
from tuner.search.gaussian_process.encoding import Encoding, Floats, Points
from tuner.search.gaussian_process.posterior import Posterior
from tuner.search.hyperopt_space import DiscreteSpace, read_space
from tuner.search.port import Losses

DESIGN = 5
"""Trials spread over the space before the process is trusted."""
SEEDED_DESIGN = 7
"""The same with seeds, which are among them and often lie close together."""
SPREAD = 4096
"""Most points among which the design chooses the next one."""
FIRST_FIT = 3
"""Results before the first fit."""
GROWTH, MOST_GROWTH = 0.15, 100
"""New results, as a share of those before and at most so many, that trigger the next fit."""
FITTED = 128
"""Most results that a fit sees: the best for half of it, and a sample of the others."""
PENDING = 64
"""Most trials pending at a fit that it takes into account: the latest ones. With more pending, fits
come at longer intervals."""
TOGETHER = 16
"""One evaluation proposes a trial for each so many pending, if as many are due before a result
comes: where the search holds up the devices. On recorded spaces this costs 0.01 of the score at
most."""
SCREENED, POOL = 16384, 2048
"""Points drawn for each fit, and how many of them remain candidates: half of these are the most
promising at the fit, half are random. The neighbours of the best observations are candidates too.
"""
NEIGHBOURHOODS = 5
"""Best observations whose neighbours are candidates."""
SMOOTHED_FROM = 100
"""From this trial on, improvement is measured from the posterior mean at observed points instead of
the least value observed, so that a lucky measurement does not mislead the end of a search."""
SPECIAL, SPECIAL_FROM = 3, 60
"""From the second trial number on, one trial in so many seeks gains on single shapes."""


@dataclass(slots=True, eq=False)
class _Fit:
    """The data of a fit, and the posterior that is computed once a proposal needs it.

    ``trials`` are the results that it sees, with their ``targets``, then the latest trials pending
    then, ``begun`` in all, then those proposed since; ``read`` counts the trials considered.
    """

    trials: list[int]
    targets: Floats
    rng: np.random.Generator
    begun: int
    read: int
    pool: Points = field(default_factory=lambda: np.empty(0, np.intp))
    posterior: Posterior | None = None
    observed: int = 0
    ahead: dict[bool, list[int]] = field(default_factory=dict)
    """Points still to be proposed of the last evaluations, for single shapes or for their mean."""


class GaussianProcess:
    """A Hyperopt algorithm for one search: call it as ``suggest(new_ids, domain, trials, seed)``.

    The process is fitted to the ranks of the losses. Constraints hold because only points of the
    feasible set are proposed; none is proposed twice, and pending trials count as observed.

    Args:
        space: the feasible set, as the documents of the search's trials write it.
        design: how many trials to spread over the space before the process is trusted.
    """

    def __init__(self, space: DiscreteSpace, design: int = DESIGN) -> None:
        self._design = design
        self._space = space.feasible
        self._explored = Explored(space)
        self._encoding = Encoding.of(space.feasible)
        self._told: list[int] = []
        self._sorted: list[Floats] = [np.empty(0)]
        self._fit: _Fit | None = None
        self._fit_at = FIRST_FIT
        self._neighbours: dict[int, Points] = {}

    def __call__(self, new_ids: Sequence[int], domain: Any, trials: Any, seed: int) -> list[Any]:
        """One trial document for each id; fewer once every feasible point has been proposed."""
        for number in self._explored.read(trials):
            self._tell(number, seed)
            if self._fit is not None:
                self._fit.ahead.clear()
        proposed: dict[int, int] = {}
        for number in new_ids:
            if self._explored.exhausted:
                break
            proposed[number] = self._propose(number, seed)
            self._explored.take(number, proposed[number])
        return self._explored.space.documents(proposed, domain, trials)

    def _propose(self, trial: int, seed: int) -> int:
        """A point of the design at first, then the one with the greatest expected improvement."""
        if self._fit is None or len(self._explored.points) < self._design:
            return self._spread(trial, seed)
        return self._most_promising(self._fit, trial, seed)

    def _tell(self, trial: int, seed: int) -> None:
        self._told.append(trial)
        self._sort_in(self._explored.losses[trial])
        if len(self._told) >= self._fit_at:
            growth = min(math.ceil(GROWTH * len(self._told)), MOST_GROWTH)
            growth = max(growth, (self._explored.pending - PENDING) // 4)
            self._fit_at = len(self._told) + growth
            self._fit = self._begin_fit(seed)

    def _sort_in(self, losses: Losses | None) -> None:
        """Keep the losses of each objective sorted: the mean, and each of several shapes."""
        objectives = len(self._sorted)
        if losses is not None and objectives == 1 and len(losses) > 2:
            objectives = len(losses)
            self._sorted = self._sorted * objectives
        values = [math.inf] * objectives if losses is None else losses[:objectives]
        self._sorted = [
            np.insert(known, np.searchsorted(known, value), value)
            for known, value in zip(self._sorted, values, strict=True)
        ]

    def _spread(self, trial: int, seed: int) -> int:
        """The point nearest to the parameters' medians, then the one farthest from all taken."""
        rng = random_state(seed, trial)
        candidates = self._explored.left()
        if len(candidates) > SPREAD:
            candidates = rng.choice(candidates, SPREAD, replace=False)
        unit = self._encoding.unit(candidates)
        proposed = np.array([*self._explored.points.values()][-PENDING:], np.intp)
        if len(proposed):
            others = self._encoding.unit(proposed)
            score = np.min([np.square(unit - other).sum(axis=1) for other in others], axis=0)
        else:
            score = -np.square(unit - np.median(unit, axis=0)).sum(axis=1)
        return int(candidates[np.argmax(score + 1e-6 * rng.random(len(candidates)))])

    def _begin_fit(self, seed: int) -> _Fit:
        """Choose the results for the next fit."""
        told = np.array(self._told)
        losses = self._losses(self._told)[:, 0]
        rng = random_state(seed, len(told))
        if len(told) > FITTED:
            order = np.argsort(losses, kind="stable")
            others = rng.choice(order[FITTED // 2 :], FITTED - FITTED // 2, replace=False)
            chosen = np.sort(np.concatenate([order[: FITTED // 2], others]))
            told, losses = told[chosen], losses[chosen]
        known = set(self._told)
        pending = [trial for trial in self._explored.points if trial not in known][-PENDING:]
        targets = log_ranks(losses, self._sorted[0])
        trials = [*told.tolist(), *pending]
        return _Fit(trials, targets, rng, begun=len(trials), read=len(self._explored.points))

    def _most_promising(self, current: _Fit, trial: int, seed: int) -> int:
        """The next point of the last evaluation without results since, else of a new one."""
        special = trial >= SPECIAL_FROM and trial % SPECIAL == 0 and len(self._sorted) > 1
        ahead = current.ahead.setdefault(special, [])
        while ahead:
            point = ahead.pop()
            if self._explored.untried[point]:
                return point
        best, *others = self._evaluate(current, trial, seed, special) or [self._spread(trial, seed)]
        ahead += reversed(others)
        return best

    def _evaluate(self, current: _Fit, trial: int, seed: int, special: bool) -> list[int]:
        """The point of the greatest expected gain, and where many trials are pending, further ones.

        Those are drawn at random, by the Gumbel-max trick in proportion to their gains: the next
        best lie close together, and a draw costs nothing beside an evaluation. Empty if no
        candidate is left.
        """
        current.trials.extend(self._explored.order[current.read :])
        current.read = len(self._explored.order)
        posterior = self._posterior(current)
        losses = self._losses(current.trials)
        pending = np.isnan(losses[:, 0])
        objectives = range(1, losses.shape[1]) if special else range(1)
        ranks = [log_ranks(losses[:, one], self._sorted[one]) for one in objectives]
        values = np.where(pending, np.inf, ranks).T
        weights = posterior.weights(values, pending)
        least = values if trial < SMOOTHED_FROM else posterior.smooth(values, weights)
        best = least.min(axis=0)
        gains = log_expected_improvement(posterior.pool(weights), best)
        points = current.pool
        if len(points) < self._space.size:
            near = self._near(current, values)
            points = np.concatenate([points, near])
            gains = np.concatenate(
                [gains, log_expected_improvement(posterior.at(near, weights), best)], axis=1
            )
        gains = np.logaddexp.reduce(gains, axis=0)
        gains = np.where(self._explored.untried[points], gains, -np.inf)
        if not len(gains) or gains.max() == -np.inf:
            return []
        best = int(np.argmax(gains))
        drawn = gains + random_state(seed, trial).gumbel(size=len(gains))
        drawn[best] = np.inf
        count = min(max(1, self._explored.pending // TOGETHER), int(np.isfinite(gains).sum()))
        return [int(point) for point in points[np.argsort(-drawn, kind="stable")[:count]]]

    def _posterior(self, current: _Fit) -> Posterior:
        """The posterior of this fit, given every trial so far."""
        points = np.array([self._explored.points[trial] for trial in current.trials], np.intp)
        if current.posterior is None:
            base = len(current.targets)
            covariance = fit(self._encoding, points[:base], current.targets)
            drawn = self._draw(current.rng, SCREENED)
            current.posterior = Posterior(
                self._encoding, covariance, drawn, base + self._fit_at - len(self._told) + PENDING
            )
            current.posterior.observe(points[:base])
            chosen = self._screen(current)
            current.posterior.narrow(chosen)
            current.pool = drawn[chosen]
            current.posterior.observe(points[base : current.begun])
            current.observed = current.begun
        step = max(1, self._explored.pending // TOGETHER)
        for index in range(current.observed, len(points), step):
            current.posterior.observe(points[index : index + step])
        current.observed = len(points)
        return current.posterior

    def _draw(self, rng: np.random.Generator, most: int) -> Points:
        if self._space.drawn <= most:
            return np.arange(self._space.drawn)
        return np.sort(rng.choice(self._space.drawn, most, replace=False))

    def _screen(self, current: _Fit) -> Points:
        """Which of the points drawn for a fit remain candidates, by position."""
        posterior, targets = current.posterior, current.targets[:, None]
        assert posterior is not None
        weights = posterior.weights(targets, np.zeros(len(targets), np.bool_))
        prediction = posterior.pool(weights)
        size = len(prediction.deviation)
        if size <= POOL:
            return np.arange(size)
        gains = log_expected_improvement(prediction, targets.min(axis=0))[0]
        order = np.argsort(-gains, kind="stable")
        others = current.rng.choice(order[POOL // 2 :], POOL - POOL // 2, replace=False)
        return np.sort(np.concatenate([order[: POOL // 2], others]))

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
        near, first = np.unique(np.concatenate(found), return_index=True)
        near = near[np.argsort(first)]  # not by number: those of a sampled set depend on the calls
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


_searches: WeakKeyDictionary[Any, tuple[object, GaussianProcess]] = WeakKeyDictionary()
"""The search that goes on in each ``Trials``: Hyperopt's contract has no other place for it."""


def suggest(
    new_ids: Sequence[int], domain: Any, trials: Any, seed: int, constraints: Sequence[str] = ()
) -> list[Any]:
    """Hyperopt's contract for an algorithm: new trial documents for ``new_ids``.

    Use as ``hyperopt.fmin(…, algo=suggest)``, with constraints as
    ``algo=functools.partial(suggest, constraints=["BLOCK * VEC <= 1024"])``. A result may hold
    ``losses``, the loss followed by one for each of several objectives.

    Raises:
        SpecError: see :func:`tuner.search.hyperopt_space.read_space`; or the ``losses`` of a result
            are no numbers, or not as many as those before.
    """
    key = (tuple(constraints), tuple(domain.params))
    known, search = _searches.get(trials, (None, None))
    if search is None or known != key:
        search = GaussianProcess(read_space(domain, constraints))
        _searches[trials] = key, search
    return search(new_ids, domain, trials, seed)
