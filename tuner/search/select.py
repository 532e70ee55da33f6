"""Which strategy searches a space: the one asked for, or the best that suits the budget."""

from tuner.experiment.model import SearchSettings
from tuner.search.port import Proposer
from tuner.search.seeded import SeededProposer
from tuner.search.shuffled import ShuffledProposer
from tuner.space.feasible import FeasibleSet


def make_proposer(search: SearchSettings, space: FeasibleSet) -> Proposer:
    """The proposer for ``search``: its seeds first, then what its strategy says.

    ``auto`` is exhaustive where the budget covers the space, else ``gp``. SciPy and Hyperopt are
    imported only by the strategies that need them.
    """
    proposer = _strategy(search, space)
    return SeededProposer(proposer, space, search.seeds) if search.seeds else proposer


def _strategy(search: SearchSettings, space: FeasibleSet) -> Proposer:
    strategy = search.strategy
    if strategy == "auto":
        strategy = "exhaustive" if search.trials >= len(space) else "gp"
    if strategy == "gp":
        from tuner.search.gaussian_process.suggest import GaussianProcessProposer

        return GaussianProcessProposer(space, search.seed, seeded=bool(search.seeds))
    if strategy in ("tpe", "anneal"):
        from tuner.search.constrained import HyperoptProposer

        return HyperoptProposer(space, search.seed, strategy)
    return ShuffledProposer(space, search.seed)
