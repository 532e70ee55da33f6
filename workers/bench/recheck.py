"""The timing recheck of one candidate, composed of single launches in its session."""

import itertools
from collections.abc import Callable

import numpy as np

from workers.bench.preparation import Prep
from workers.bench.session import Entrant, Stand
from workers.inputs import can_renew
from workers.integrity.timing_recheck import believed, new_contents


def doubt(
    prep: Prep,
    stand: Stand,
    entrant: Entrant,
    baseline: Entrant,
    shape: int,
    samples: list[float],
    again: Callable[[], list[float]],
    rng: np.random.Generator,
    *,
    kin: bool,
) -> list[float]:
    """The samples to accept for a candidate on a shape: see :func:`believed`.

    ``kin``: draw new inputs for this candidate alone, in case another one that ran in the
    same child has passed on the shape's last question, which all share.
    """
    first, *_, last = prep.questions[shape]
    known_ns = prep.baseline_ns[shape]
    renewable = [a for a in prep.arguments[shape] if a.name in first.contents and can_renew(a)]
    common = () if kin and renewable else (last,)
    with new_contents(renewable, first.contents, rng) as renewed:
        return believed(
            samples,
            again,
            known=lambda: stand.once(entrant, first, known_ns),
            new=itertools.chain(
                (stand.once(entrant, one, known_ns) for one in common),
                (stand.beside(entrant, baseline, last, one, known_ns) for one in renewed),
            ),
            lag=lambda: stand.lag(baseline, first, known_ns),
            drifts=stand.drifts(shape, prep.measure),
        )
