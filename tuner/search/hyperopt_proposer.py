"""The one frame for all strategies: a proposer that runs any Hyperopt algorithm on a feasible set.

An algorithm is a callable ``suggest(new_ids, domain, trials, seed)`` that returns trial documents.
Those made here know the feasible set; :class:`Constrained` keeps Hyperopt's own inside it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from tuner.search.explored import Documents, Explored, losses_of, random_state
from tuner.search.hyperopt_space import DiscreteSpace, hyperopt_space
from tuner.search.port import Losses
from tuner.space.feasible import FeasibleSet, Indices
from tuner.trial import Configuration

Algorithm = Callable[[Sequence[int], Any, Any, int], list[Any]]
"""``suggest(new_ids, domain, trials, seed)``; too few documents mean that no point is left."""

ATTEMPTS = 8
"""How often :class:`Constrained` asks for a feasible new point before it draws one at random."""
VIEW = 1000
"""Trials that Hyperopt's own algorithms see, half the best and half the latest: their time for a
proposal grows with every trial."""
SEEDS = 2**31 - 1


class HyperoptProposer:
    """Proposes the given points first, then what a Hyperopt algorithm suggests.

    Args:
        space: the feasible set.
        seed: passed to the algorithm with every call.
        algorithm: makes the algorithm for a space.
        first: points of the feasible set to begin with.
    """

    def __init__(
        self,
        space: FeasibleSet,
        seed: int,
        algorithm: Callable[[DiscreteSpace], Algorithm],
        first: Sequence[int] = (),
    ) -> None:
        import_hyperopt()
        from hyperopt.base import Domain

        self._space = DiscreteSpace.of(space)
        self._seed = seed
        self._algorithm = algorithm(self._space)
        self._first = first
        self._domain = Domain(_never_called, hyperopt_space(space.parameters) or [0])
        self._trials = Documents()
        self._documents: dict[int, dict[str, Any]] = {}
        self._proposed: set[int] = set()
        self._results = 0

    def ask(self, trial: int) -> Configuration | None:
        """The first point not yet proposed, or the algorithm's suggestion."""
        for first in self._first:
            if first not in self._proposed:
                return self._add(trial, first)
        documents = self._algorithm([trial], self._domain, self._trials, self._seed)
        if not documents:
            return None
        point = self._space.point(documents[0])
        assert point is not None
        return self._insert(trial, point)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Add a trial proposed by an earlier process; ignore one outside the feasible set."""
        point = self._space.feasible.index_of(configuration)
        if point is not None:
            self._add(trial, point)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Complete a trial's document."""
        from hyperopt.base import JOB_STATE_DONE, STATUS_FAIL, STATUS_OK

        document = self._documents.get(trial)
        if document is None:
            return
        # Counted, not clocked: a replayed search must see the results in the same order.
        self._results += 1
        completed = datetime.min + timedelta(seconds=self._results)
        result: dict[str, Any] = {"status": STATUS_FAIL}
        if losses is not None:
            result = {"status": STATUS_OK, "loss": losses[0], "losses": losses}
        self._trials.complete(document, state=JOB_STATE_DONE, refresh_time=completed, result=result)

    def _add(self, trial: int, point: int) -> Configuration:
        """Insert a trial that is not the algorithm's, once that has read the results before it."""
        self._algorithm([], self._domain, self._trials, self._seed)
        return self._insert(trial, point)

    def _insert(self, trial: int, point: int) -> Configuration:
        (document,) = self._space.documents({trial: point}, self._domain, self._trials)
        self._trials.insert(document)
        self._documents[trial] = document
        self._proposed.add(point)
        return self._space.feasible.configuration(point)


class Shuffled:
    """Every feasible point once, in a random order: random and exhaustive search."""

    def __init__(self, space: DiscreteSpace) -> None:
        self._space = space.feasible
        self._explored = Explored(space)
        self._order: Indices | None = None
        self._next = 0

    def __call__(self, new_ids: Sequence[int], domain: Any, trials: Any, seed: int) -> list[Any]:
        """The next points of the order that the first seed decides."""
        for _ in self._explored.read(trials):
            pass
        if self._order is None:
            self._order = np.random.default_rng(seed).permutation(self._space.drawn)
        proposed: dict[int, int] = {}
        for number in new_ids:
            while self._next < len(self._order):
                point = int(self._order[self._next])
                if self._explored.untried[point]:
                    self._explored.take(number, point)
                    proposed[number] = point
                    break
                self._next += 1
        return self._explored.space.documents(proposed, domain, trials)


class Constrained:
    """One of Hyperopt's own algorithms, kept inside a feasible set.

    They know no constraints and repeat themselves: they are asked up to :data:`ATTEMPTS` times,
    told within the call that an infeasible point failed and what is known of a repeated one.
    """

    def __init__(self, suggest: Callable[..., list[Any]], space: DiscreteSpace) -> None:
        self._suggest = suggest
        self._explored = Explored(space)

    def __call__(self, new_ids: Sequence[int], domain: Any, trials: Any, seed: int) -> list[Any]:
        """The first feasible new suggestion for each id, else a random point never tried."""
        for _ in self._explored.read(trials):
            pass
        proposed: dict[int, int] = {}
        for number in new_ids:
            point = self._propose(number, domain, trials, seed)
            if point is not None:
                self._explored.take(number, point)
                proposed[number] = point
        return self._explored.space.documents(proposed, domain, trials)

    def _propose(self, trial: int, domain: Any, trials: Any, seed: int) -> int | None:
        from hyperopt.base import JOB_STATE_DONE, STATUS_FAIL, trials_from_docs

        if self._explored.exhausted:
            return None
        rng = random_state(seed, trial)
        view = bounded(trials.trials)
        number = max([trial, *(document["tid"] for document in view)])
        results = {self._explored.points.get(d["tid"]): d["result"] for d in view}
        for attempt in range(number + 1, number + 1 + ATTEMPTS):
            seen = trials_from_docs(view, validate=False)
            (document,) = self._suggest([attempt], domain, seen, int(rng.integers(SEEDS)))
            point = self._explored.space.point(document)
            if point is not None and self._explored.untried[point]:
                return point
            known = results.get(point, {"status": STATUS_FAIL})
            view.append(document | {"state": JOB_STATE_DONE, "result": known})
        return self._explored.draw(rng)


def bounded(documents: Sequence[Mapping[str, Any]]) -> list[Any]:
    """At most :data:`VIEW` documents in their order: the best half, the rest the latest."""
    if len(documents) <= VIEW:
        return list(documents)
    losses = np.array([(losses_of(document) or (np.inf,))[0] for document in documents])
    best = np.argsort(losses, kind="stable")[: VIEW // 2].tolist()
    others = np.delete(np.arange(len(documents)), best)[-(VIEW - len(best)) :].tolist()
    return [documents[index] for index in sorted([*best, *others])]


def import_hyperopt() -> ModuleType:
    """Import Hyperopt without ``scipy.stats``, which takes most of its import, a second.

    Only its adaptive TPE uses that, as an attribute of SciPy, which imports it then.
    """
    statistics = "scipy.stats"
    if not {"hyperopt", statistics} & sys.modules.keys():
        sys.modules[statistics] = ModuleType(statistics)
        with suppress(ImportError):  # of a release that needs it: imported as usual
            import_module("hyperopt")
        del sys.modules[statistics]
    return import_module("hyperopt")


def _never_called(_: object) -> float:
    raise AssertionError("points are evaluated outside of Hyperopt")
