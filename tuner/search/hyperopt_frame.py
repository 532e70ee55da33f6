"""Hyperopt as a frame: one space of ordinals, and a bounded view of the history.

Owns all dealings with Hyperopt's documents. Its own bookkeeping grows with every trial, so each
call gets a fresh view of at most :data:`VIEW` observations: the best, and the latest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.search.port import Proposer
from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration

VIEW = 1000

Ordinals = tuple[int, ...]
Suggest = Callable[..., list[dict[str, Any]]]
"""A Hyperopt algorithm: ``suggest(new_ids, domain, trials, seed)`` returns trial documents."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A point of the full product, and its loss: ``None`` if it failed, or is not known yet."""

    ordinals: Ordinals
    loss: float | None


def hyperopt_space(space: FeasibleSet) -> dict[str, Any]:
    """The parameters as a Hyperopt space: the value of each is an ordinal of its list."""
    from hyperopt import hp

    return {
        name: hp.choice(name, list(range(len(values)))) for name, values in space.parameters.items()
    }


class Frame:
    """Runs Hyperopt's algorithms on a feasible set's parameters."""

    def __init__(self, space: FeasibleSet) -> None:
        from hyperopt.base import Domain

        self._names = tuple(space.parameters)
        self._domain = Domain(_never_called, hyperopt_space(space))

    def suggest(
        self, algorithm: Suggest, observations: Sequence[Observation], seed: int
    ) -> Ordinals:
        """The point that ``algorithm`` proposes after ``observations``; it may be infeasible."""
        from hyperopt.base import trials_from_docs

        documents = [self._document(i, seen) for i, seen in enumerate(bounded(observations))]
        trials = trials_from_docs(documents, validate=False)
        (proposed,) = algorithm([len(documents)], self._domain, trials, seed)
        values = proposed["misc"]["vals"]
        return tuple(int(values[name][0]) for name in self._names)

    def _document(self, number: int, seen: Observation) -> dict[str, Any]:
        from hyperopt.base import JOB_STATE_DONE, STATUS_FAIL, STATUS_OK

        failed = seen.loss is None
        chosen = zip(self._names, seen.ordinals, strict=True)
        return {
            "tid": number,
            "state": JOB_STATE_DONE,
            "spec": None,
            "result": {"status": STATUS_FAIL}
            if failed
            else {"status": STATUS_OK, "loss": seen.loss},
            "misc": {
                "tid": number,
                "cmd": self._domain.cmd,
                "workdir": None,
                "idxs": {name: [number] for name in self._names},
                "vals": {name: [ordinal] for name, ordinal in chosen},
            },
            "exp_key": None,
            "owner": None,
            "version": 0,
            "book_time": None,
            "refresh_time": None,
        }


class SuggestAlgorithm:
    """A proposer as one of Hyperopt's algorithms, for ``hyperopt.fmin(algo=…)``.

    To be used with :func:`hyperopt_space` of the same feasible set; ends the search once every
    point was proposed. One instance serves one search, with the trials that it began with.
    """

    def __init__(self, proposer: Proposer, space: FeasibleSet) -> None:
        self._proposer = proposer
        self._space = space
        self._asked: set[int] = set()
        self._told: set[int] = set()

    def __call__(
        self, new_ids: Sequence[int], domain: Any, trials: Any, seed: int
    ) -> list[dict[str, Any]]:
        """Hyperopt's ``suggest``; ``seed`` is unused, since the proposer has its own."""
        del seed
        for document in trials.trials:
            self._learn(document)
        proposed = []
        for number in new_ids:
            configuration = self._proposer.ask(number)
            if configuration is None:
                break
            self._asked.add(number)
            proposed.append(self._miscellany(number, configuration, domain))
        ids = [misc["tid"] for misc in proposed]
        results = [domain.new_result() for _ in ids]
        documents = trials.new_trial_docs(ids, [None] * len(ids), results, proposed)
        return list(documents)

    def _learn(self, document: Any) -> None:
        from hyperopt.base import JOB_STATE_DONE, JOB_STATE_ERROR

        number, values = document["tid"], document["misc"]["vals"]
        if number not in self._asked:
            self._asked.add(number)
            ordinals = {name: int(values[name][0]) for name in self._space.parameters}
            chosen = {name: self._space.parameters[name][ordinals[name]] for name in ordinals}
            self._proposer.record(number, Configuration.of(chosen))
        if number not in self._told and document["state"] in (JOB_STATE_DONE, JOB_STATE_ERROR):
            self._told.add(number)
            loss = document["result"].get("loss")
            self._proposer.tell(number, None if loss is None else (float(loss),))

    def _miscellany(self, number: int, configuration: Configuration, domain: Any) -> dict[str, Any]:
        ordinals = {
            name: self._space.parameters[name].index(value) for name, value in configuration.values
        }
        return {
            "tid": number,
            "cmd": domain.cmd,
            "workdir": domain.workdir,
            "idxs": {name: [number] for name in ordinals},
            "vals": {name: [ordinal] for name, ordinal in ordinals.items()},
        }


def bounded(observations: Sequence[Observation]) -> list[Observation]:
    """At most :data:`VIEW` observations in their order: the best half, the rest the latest."""
    if len(observations) <= VIEW:
        return list(observations)
    losses = np.array([np.inf if seen.loss is None else seen.loss for seen in observations])
    kept = set(np.argsort(losses, kind="stable")[: VIEW // 2].tolist())
    for index in range(len(observations) - 1, -1, -1):
        if len(kept) == VIEW:
            break
        kept.add(index)
    return [observations[index] for index in sorted(kept)]


def _never_called(_: object) -> float:
    raise AssertionError("points are evaluated outside of Hyperopt")
