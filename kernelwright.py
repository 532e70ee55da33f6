"""The library's public entry: its version, and its search algorithm for ``hyperopt.fmin``."""

from collections.abc import Sequence
from typing import Any

__all__ = ["__version__", "suggest"]

__version__ = "0.1.0"


def suggest(
    new_ids: Sequence[int], domain: Any, trials: Any, seed: int, constraints: Sequence[str] = ()
) -> list[Any]:
    """Hyperopt's contract for an algorithm: expected improvement under a Gaussian process.

    For discrete spaces: ``hp.choice``, ``hp.pchoice``, ``hp.randint``, ``hp.uniformint`` and
    whole-numbered ``hp.quniform``. No point is proposed twice; ``fmin`` ends once none is left.

        fmin(time_of, space, algo=partial(suggest, constraints=["BLOCK * VEC <= 1024"]))

    Args:
        new_ids: ids of the trials to propose, several at a time if evaluations run in parallel.
        domain: Hyperopt's view of the search space.
        trials: the trials so far. A result may hold ``losses``: its loss, then one for each of
            several objectives, whose specialists are searched for too.
        seed: of everything random.
        constraints: expressions over the parameters that every proposed point meets.

    Returns:
        A trial document for each id, fewer at the end.

    Raises:
        tuner.errors.SpecError: the space is not discrete, a constraint is malformed, or no point
            meets all constraints.
    """
    from tuner.search.gaussian_process.suggest import suggest as algorithm

    return algorithm(new_ids, domain, trials, seed, constraints)
