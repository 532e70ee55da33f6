"""Seeds: configurations from a spec, a pattern or another run, to be tried first.

A seed may belong to another template: parameters that the space has too are matched as nearly as
possible, others are ignored.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.space.feasible import FeasibleSet
from tuner.trial import Value

Seed = Mapping[str, Value]


def nearest(space: FeasibleSet, seed: Seed) -> int | None:
    """The feasible point nearest to a seed; ``None`` if they have no parameter in common.

    Each common parameter adds a distance: for integers the difference of their positions in the
    list, scaled to below 1; for names and bools 1 if they differ. Ties go to the point whose other
    parameters are nearest to the middle of their lists.
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
    best = int(np.lexsort((middle, distance))[0])
    return best if space.estimate is None else _beyond(space, seed, best)


def _beyond(space: FeasibleSet, seed: Seed, best: int) -> int:
    """Of a sampled set, the point ``best`` with the seed's own values, if that is feasible."""
    row = space.rows[best].copy()
    for position, (name, values) in enumerate(space.parameters.items()):
        if name in seed:
            row[position] = np.argmin(_distances(values, seed[name]))
    found = int(space.find(row[None])[0])
    return best if found < 0 else found


def _distances(
    values: Sequence[Value], wanted: Value
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The distance of each value of a parameter from the one wanted."""
    kind = type(wanted)
    if kind is int and all(type(value) is int for value in values):
        gaps = np.array([abs(int(value) - int(wanted)) for value in values])
        ordinals = np.arange(len(values)) - int(np.argmin(gaps))
        return np.abs(ordinals) / len(values)
    return np.array([float(type(value) is not kind or value != wanted) for value in values])
