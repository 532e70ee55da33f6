"""Which strategy searches a space: the one asked for, or the best that suits the budget."""

from tuner.search.port import Proposer
from tuner.search.shuffled import ShuffledProposer
from tuner.space.feasible import FeasibleSet
from tuner.spec.experiment import Search


def make_proposer(search: Search, space: FeasibleSet) -> Proposer:
    """The proposer for ``search``; ``auto`` is exhaustive where the budget covers the space.

    SciPy and Hyperopt are imported only by the strategies that need them.
    """
    strategy = search.strategy
    if strategy == "auto":
        strategy = "exhaustive" if search.trials >= len(space) else "gp"
    if strategy == "gp":
        from tuner.search.gaussian_process.proposer import GaussianProcessProposer

        return GaussianProcessProposer(space, search.seed)
    if strategy == "tpe":
        from tuner.search.tpe import TpeProposer

        return TpeProposer(space, search.seed)
    return ShuffledProposer(space, search.seed)
