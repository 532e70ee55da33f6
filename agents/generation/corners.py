"""The corners of a template's space: a template is admitted if these few configurations compile.

Each value of each parameter occurs at least once, as far as the limit allows. Points at the ends of
all parameters come first.
"""

import numpy as np

from tuner.space.feasible import FeasibleSet
from tuner.trial import Configuration

MOST = 12


def corners(space: FeasibleSet, most: int = MOST) -> tuple[Configuration, ...]:
    """At most ``most`` configurations of a space that is not empty, the outermost first."""
    rows = np.asarray(space.rows)
    last = rows.max(axis=0, initial=0)
    outermost = np.flatnonzero(np.all((rows == 0) | (rows == last), axis=1))
    spread = np.linspace(0, max(0, len(outermost) - 1), num=min(most // 2, len(outermost)))
    chosen = [0, len(rows) - 1, *outermost[spread.astype(int)].tolist()]
    for column in range(rows.shape[1]):
        for ordinal in np.unique(rows[:, column]):
            if not np.any(rows[chosen, column] == ordinal):
                chosen.append(int(np.argmax(rows[:, column] == ordinal)))
    return tuple(space.configuration(index) for index in list(dict.fromkeys(chosen))[:most])
