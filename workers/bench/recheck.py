"""The timing recheck of one candidate, composed of bursts in its session."""

from collections.abc import Callable

import numpy as np

from workers.bench.input_specs import is_large, total_elements
from workers.bench.launcher import LoadedCandidate
from workers.bench.preparation import Preparation
from workers.bench.session import BenchSession
from workers.integrity.timing_recheck import (
    REMEMBERED,
    REMEMBERED_ON_GPU,
    Accepted,
    accept_or_retime,
)
from workers.variations import variations

_COMPARED_ELEMENTS = 1 << 20
"""Elements whose outputs may be compared outside the device for a finalist on a shape, on average,
on a GPU."""


def compares_outside(prep: Preparation, shape: int, rng: np.random.Generator) -> bool:
    """Whether a recheck compares an output; many elements seldom, as it is outside the device."""
    if prep.device.is_cpu:
        return True
    arguments = prep.arguments[shape]
    share = min(0.5, _COMPARED_ELEMENTS / max(total_elements(arguments), 1))
    return not is_large(arguments) and bool(rng.random() < share)


def recheck_timing(
    prep: Preparation,
    session: BenchSession,
    loaded: LoadedCandidate,
    baseline: LoadedCandidate,
    shape: int,
    samples: list[float],
    again: Callable[[], list[float]],
    *,
    compared: bool,
) -> Accepted:
    """What to accept of a candidate's timing on a shape: see :func:`accept_or_retime`.

    Where it is ``compared``, one of its launches on inputs of their own is checked for its answer.
    """
    first, measure = prep.cases[shape][0], prep.measure
    checked_by = baseline if compared else None

    def retime() -> list[float]:
        """Time the baseline beside it, for the time that no device reports."""
        session.time(baseline, first, measure.cache, measure)
        return again()

    def own() -> float:
        return session.time_on_own_inputs(loaded, first, checked_by)

    def single(forgets: bool) -> float:
        return session.time_single_launch(loaded, first, forgets=forgets)

    return accept_or_retime(
        samples,
        retime,
        own=own if variations(prep.arguments[shape]) else None,
        baseline_own=lambda: session.time_on_own_inputs(baseline, first),
        baseline_known=lambda: session.time_burst(baseline, first),
        unreported_ns=lambda: loaded.unreported_more(baseline, shape),
        single=single if prep.device.is_cpu else None,
        remembered=REMEMBERED if prep.device.is_cpu else REMEMBERED_ON_GPU,
    )
