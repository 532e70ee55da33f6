"""Which strategy searches a space: the one asked for, or the best that suits the budget."""

from collections.abc import Callable
from functools import partial

from tuner.experiment.model import SearchSettings
from tuner.search.hyperopt_proposer import (
    Algorithm,
    Constrained,
    HyperoptProposer,
    Shuffled,
    import_hyperopt,
)
from tuner.search.hyperopt_space import DiscreteSpace
from tuner.search.port import Proposer
from tuner.search.seeded import nearest
from tuner.space.feasible import FeasibleSet


def make_proposer(search: SearchSettings, space: FeasibleSet) -> Proposer:
    """The proposer for ``search``: its seeds first, then a Hyperopt algorithm.

    ``auto`` is exhaustive where the budget covers the space, else ``gp``. Imports Hyperopt.
    """
    import_hyperopt()  # another thread may be at it, and no part of SciPy is imported beside that
    strategy = search.strategy
    if strategy == "auto":
        strategy = "exhaustive" if search.trials >= space.size else "gp"
    first = dict.fromkeys(nearest(space, seed) for seed in search.seeds)
    points = [point for point in first if point is not None]
    algorithm = _algorithm(strategy, seeded=bool(search.seeds))
    return HyperoptProposer(space, search.seed, algorithm, points)


def _algorithm(strategy: str, *, seeded: bool) -> Callable[[DiscreteSpace], Algorithm]:
    if strategy == "gp":
        from tuner.search.gaussian_process.suggest import (
            DESIGN,
            SEEDED_DESIGN,
            GaussianProcess,
        )

        return partial(GaussianProcess, design=SEEDED_DESIGN if seeded else DESIGN)
    if strategy == "tpe":
        from hyperopt import tpe

        return partial(Constrained, partial(tpe.suggest, verbose=False))
    if strategy == "anneal":
        from hyperopt import anneal

        return partial(Constrained, anneal.suggest)
    return Shuffled
