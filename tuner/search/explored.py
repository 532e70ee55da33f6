"""Which points of a feasible set Hyperopt's trials have taken, and how they did."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import SpecError
from tuner.search.hyperopt_space import DiscreteSpace
from tuner.search.port import Losses
from tuner.space.feasible import Indices


class Documents:
    """The trial documents of one search, which alone adds and completes them.

    Stands in for Hyperopt's ``Trials``, of which each reader looks at every document every time:
    here a reader learns which are new, so a trial costs the same however many there are.
    """

    def __init__(self) -> None:
        from hyperopt import Trials

        self.trials: list[dict[str, Any]] = []
        """Every document, in order of insertion."""
        self.new_trial_docs: Callable[..., list[dict[str, Any]]] = Trials().new_trial_docs
        self._news: dict[int, dict[str, Any]] = {}

    def insert(self, document: dict[str, Any]) -> None:
        """Add a document."""
        self.trials.append(document)
        self._news[document["tid"]] = document

    def complete(self, document: dict[str, Any], **fields: Any) -> None:
        """Set the fields that a result changes."""
        document.update(fields)
        self._news[document["tid"]] = document

    def news(self) -> dict[int, dict[str, Any]]:
        """The documents inserted or completed since the last call, by trial id."""
        news, self._news = self._news, {}
        return news


@dataclass(slots=True, eq=False)
class Explored:
    """The trials of :class:`Documents` or of one Hyperopt ``Trials``, read incrementally.

    ``points`` maps each trial id to its point, ``order`` lists the ids in the order of proposal;
    ``losses`` holds the results so far, ``None`` for a failure. Trials outside the feasible set are
    ignored.
    """

    space: DiscreteSpace
    points: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    losses: dict[int, Losses | None] = field(default_factory=dict)
    _open: int = field(init=False)
    _untried: npt.NDArray[np.bool_] = field(init=False)
    _settled: set[int] = field(default_factory=set)
    _pending: set[int] = field(default_factory=set)
    _objectives: int = 0

    def __post_init__(self) -> None:
        self._untried = np.ones(len(self.space.feasible), np.bool_)
        self._open = self.space.feasible.drawn

    @property
    def pending(self) -> int:
        """How many trials have no result yet."""
        return len(self._pending)

    @property
    def exhausted(self) -> bool:
        """Whether every point has been tried; of a sampled set every one of the sample."""
        return self._open == 0

    @property
    def untried(self) -> npt.NDArray[np.bool_]:
        """For each point of the feasible set whether no trial has taken it; it may grow."""
        added = len(self.space.feasible) - len(self._untried)
        if added:
            self._untried = np.concatenate([self._untried, np.ones(added, np.bool_)])
        return self._untried

    def left(self) -> Indices:
        """The untried points, ascending; of a sampled set those of the sample."""
        return np.flatnonzero(self.untried[: self.space.feasible.drawn])

    def read(self, trials: Any) -> Iterator[int]:
        """Take in new trials, then yield each one with a new result, in order of completion.

        Raises:
            SpecError: the losses of a trial are malformed, or not as many as those before.
        """
        unsure: Iterable[int]
        if isinstance(trials, Documents):
            documents = unsure = trials.news()
        else:
            documents = {
                document["tid"]: document
                for document in trials.trials
                if document["tid"] not in self._settled
            }
            unsure = self._pending
        for number, document in documents.items():
            if number not in self.points:
                point = self.space.point(document)
                if point is None:
                    self._settled.add(number)
                else:
                    self.take(number, point)
        done = [n for n in unsure if n in self._pending and _is_over(documents.get(n))]
        for number in sorted(done, key=lambda number: _completed(documents.get(number), number)):
            losses = losses_of(documents.get(number))
            if losses is not None:
                self._objectives = self._objectives or len(losses)
                if len(losses) != self._objectives:
                    raise SpecError(
                        f"trial {number} has {len(losses)} losses, earlier ones {self._objectives};"
                        " return the same number from every evaluation"
                    )
            self._pending.remove(number)
            self._settled.add(number)
            self.losses[number] = losses
            yield number

    def take(self, number: int, point: int) -> None:
        """Note that trial ``number`` runs ``point``."""
        self.points[number] = point
        self.order.append(number)
        self._pending.add(number)
        self._open -= bool(self.untried[point] and point < self.space.feasible.drawn)
        self.untried[point] = False

    def draw(self, rng: np.random.Generator) -> int | None:
        """A random untried point; ``None`` once there is none."""
        left = self.left()
        return int(rng.choice(left)) if len(left) else None


def random_state(seed: int, trial: int) -> np.random.Generator:
    """The random state of one trial: a function of these two numbers alone."""
    return np.random.default_rng([seed, trial])


def losses_of(document: Any) -> Losses | None:
    """The losses of a finished trial: ``result["losses"]`` if given, else its loss alone.

    ``None`` for a trial that failed, or that raised: Hyperopt then drops its document.

    Raises:
        SpecError: ``losses`` is empty or holds something else than numbers.
    """
    result = document["result"] if document else {}
    loss = result.get("loss")
    if result.get("status") != "ok" or loss is None or math.isnan(loss):
        return None
    given = result.get("losses", (loss,))
    try:
        losses = () if isinstance(given, str) else tuple(map(float, given))
    except (TypeError, ValueError):
        losses = ()
    if not losses or any(map(math.isnan, losses)):
        raise SpecError(
            f"trial {document['tid']}: losses is {given!r}; return a list of numbers, the loss "
            "followed by one for each objective"
        )
    return losses


def _is_over(document: Any) -> bool:
    from hyperopt.base import JOB_STATE_DONE

    return document is None or document["state"] == JOB_STATE_DONE


def _completed(document: Any, number: int) -> tuple[datetime, int]:
    return (document and document["refresh_time"]) or datetime.min, number
