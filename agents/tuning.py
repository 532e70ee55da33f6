"""Tuning: a round's share of the search budget, and the values that are tried first.

Owns how the budget is split over rounds and how seeds enter a search. The space, the strategies and
the trials themselves are the domain's.
"""

from collections.abc import Sequence
from dataclasses import replace

from tuner.search.port import Losses, Proposer
from tuner.space.feasible import FeasibleSet
from tuner.spec.experiment import Experiment, Search, Template
from tuner.trial import Configuration, Value


def round_experiment(
    experiment: Experiment,
    template: Template,
    *,
    used_trials: int,
    used_seconds: float,
    rounds_left: int,
) -> Experiment | None:
    """The experiment that searches ``template`` with this round's share of what is left.

    ``rounds_left`` counts this one. ``None`` once trials or seconds are spent.
    """
    whole = experiment.search
    trials = -(-(whole.trials - used_trials) // rounds_left)
    seconds = (whole.seconds - used_seconds) / rounds_left
    if trials < 1 or seconds <= 0:
        return None
    share: Search = replace(whole, trials=trials, seconds=seconds)
    return replace(experiment, template=template, search=share)


class Seeded:
    """A proposer that proposes given configurations first, then asks another.

    Obeys :class:`tuner.search.port.Proposer`. Seeds that are not in the space are passed over.
    """

    def __init__(
        self, proposer: Proposer, space: FeasibleSet, seeds: Sequence[dict[str, Value]]
    ) -> None:
        self._proposer = proposer
        known = (_in_space(space, seed) for seed in seeds)
        self._seeds = list(dict.fromkeys(seed for seed in known if seed is not None))
        self._seen: set[Configuration] = set()

    def ask(self, trial: int) -> Configuration | None:
        """The first seed that was not proposed yet, else what the other proposer says."""
        for seed in self._seeds:
            if seed not in self._seen:
                self.record(trial, seed)
                return seed
        configuration = self._proposer.ask(trial)
        if configuration is not None:
            self._seen.add(configuration)
        return configuration

    def record(self, trial: int, configuration: Configuration) -> None:
        """Take note of an earlier proposal."""
        self._seen.add(configuration)
        self._proposer.record(trial, configuration)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Pass it on."""
        self._proposer.tell(trial, losses)


def _in_space(space: FeasibleSet, seed: dict[str, Value]) -> Configuration | None:
    if seed.keys() != space.parameters.keys():
        return None
    ordered = Configuration.of({name: seed[name] for name in space.parameters})
    index = space.index_of(ordered)
    return None if index is None else space.configuration(index)
