"""The timing recheck of one candidate, composed of bursts in its session."""

from collections.abc import Callable

from tuner.experiment.model import Cache
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


def recheck_timing(
    prep: Preparation,
    session: BenchSession,
    loaded: LoadedCandidate,
    baseline: LoadedCandidate,
    shape: int,
    cache: Cache,
    samples: list[float],
    again: Callable[[], list[float]],
) -> Accepted:
    """What to accept of a timing on a shape, in a cache state: see :func:`accept_or_retime`."""
    first = prep.cases[shape][0]

    def retime() -> list[float]:
        """Time the baseline beside it, for the time that no device reports."""
        session.time(baseline, first, cache, prep.measure)
        return again()

    def own() -> float:
        return session.time_on_own_inputs(loaded, first, cache, baseline)

    def single(forgets: bool) -> float:
        return session.time_single_launch(loaded, first, cache, forgets=forgets)

    return accept_or_retime(
        samples,
        retime,
        own=own if variations(prep.arguments[shape]) else None,
        baseline_own=lambda: session.time_on_own_inputs(baseline, first, cache),
        baseline_known=lambda: session.time_burst(baseline, first, cache),
        unreported_ns=lambda: loaded.unreported_more(baseline, shape),
        single=single if prep.device.is_cpu else None,
        remembered=REMEMBERED if prep.device.is_cpu else REMEMBERED_ON_GPU,
    )
