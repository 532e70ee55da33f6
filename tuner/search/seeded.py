"""Seeds: configurations that are tried first, because they won elsewhere.

They come from a spec, a pattern, or a run on another device or shape, and may be of another
template: what they say of parameters that this space knows is taken, as nearly as it allows.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.space.feasible import FeasibleSet
from tuner.trial import Value

Seed = Mapping[str, Value]


def nearest(space: FeasibleSet, seed: Seed) -> int | None:
    """The feasible point nearest to a seed; ``None`` if they have no parameter in common.

    Each parameter that both know adds its distance: 0 for the same value, up to 1 for integers that
    are far apart on the list, 1 for names and bools that differ. Parameters that the seed does not
    mention decide only between points equally near: the one in the middle of their lists wins.
    """
    known = [name for name in space.parameters if name in seed]
    if not known:
        return None
    distance = np.zeros(len(space))
    middle = np.zeros(len(space))
    for position, (name, values) in enumerate(space.parameters.items()):
        if name in seed:
            distance += _distances(values, seed[name])[space.rows[:, position]]
        else:
            ordinals = np.arange(len(values))
            middle += np.abs(ordinals / len(values) - 0.5)[space.rows[:, position]]
    return int(np.lexsort((middle, distance))[0])


def _distances(
    values: Sequence[Value], wanted: Value
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How far each value of a parameter is from the one wanted."""
    kind = type(wanted)
    if kind is int and all(type(value) is int for value in values):
        gaps = np.array([abs(int(value) - int(wanted)) for value in values])
        ordinals = np.arange(len(values)) - int(np.argmin(gaps))
        return np.abs(ordinals) / len(values)
    return np.array([float(type(value) is not kind or value != wanted) for value in values])
