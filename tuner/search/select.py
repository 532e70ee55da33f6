"""Which strategy searches a space: the one asked for, or the best that suits the budget."""

from tuner.search.port import Proposer
from tuner.search.shuffled import ShuffledProposer
from tuner.search.tpe import TpeProposer
from tuner.space.feasible import FeasibleSet
from tuner.spec.experiment import Search


def make_proposer(search: Search, space: FeasibleSet) -> Proposer:
    """The proposer for ``search``; ``auto`` is exhaustive where the budget covers the space."""
    strategy = search.strategy
    if strategy == "auto":
        strategy = "exhaustive" if search.trials >= len(space) else "tpe"
    if strategy == "tpe":
        return TpeProposer(space, search.seed)
    return ShuffledProposer(space, search.seed)
