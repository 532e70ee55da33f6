"""The timing recheck of one candidate, composed of single launches in its session."""

import itertools
from collections.abc import Callable

import numpy as np

from workers.bench.input_specs import is_large, total_elements
from workers.bench.launcher import LoadedCandidate
from workers.bench.preparation import Preparation
from workers.bench.session import BenchSession
from workers.inputs import can_renew
from workers.integrity.timing_recheck import (
    Accepted,
    FirstLaunch,
    accept_or_retime,
    new_contents,
)

_REDRAWN_ELEMENTS = 1 << 20
"""Elements that may be drawn anew for a finalist on a shape, on average, on a GPU."""


def draws_inputs(prep: Preparation, shape: int, rng: np.random.Generator) -> bool:
    """Whether a finalist's recheck draws its own inputs; many elements are drawn seldom.

    They are drawn, and the outputs compared, outside the device.
    """
    if prep.device.is_cpu:
        return True
    arguments = prep.arguments[shape]
    share = min(0.5, _REDRAWN_ELEMENTS / max(total_elements(arguments), 1))
    return not is_large(arguments) and bool(rng.random() < share)


def recheck_timing(
    prep: Preparation,
    session: BenchSession,
    loaded: LoadedCandidate,
    baseline: LoadedCandidate,
    shape: int,
    samples: list[float],
    again: Callable[[], list[float]],
    rng: np.random.Generator,
    *,
    unique_inputs: bool,
) -> Accepted:
    """What to accept of a candidate's timing on a shape: see :func:`accept_or_retime`.

    With ``unique_inputs`` the new inputs are drawn for this candidate alone. Otherwise they are the
    shape's last case, which a candidate that ran in the same child before may have passed on.
    """
    first, *_, last = prep.cases[shape]
    renewable = [a for a in prep.arguments[shape] if a.name in first.contents and can_renew(a)]

    def retime() -> list[float]:
        """Time the baseline beside it, for the time that no device reports."""
        session.time(baseline, first, prep.measure.cache, prep.measure)
        return again()

    def on_common_inputs() -> FirstLaunch:
        own, other = (session.time_single_launch(one, last) for one in (loaded, baseline))
        return FirstLaunch(own, other)

    common = () if unique_inputs and renewable else (on_common_inputs,)

    def forgotten() -> float:
        return session.time_single_launch(loaded, first, forgets=True)

    with new_contents(renewable, first.contents, rng, prep.python_fill(shape)) as renewed:
        return accept_or_retime(
            samples,
            retime,
            known=lambda: session.time_single_launch(loaded, first),
            new=itertools.chain(
                (launch() for launch in common),
                (session.time_on_new_inputs(loaded, baseline, last, one) for one in renewed),
            ),
            baseline_ns=lambda: baseline.usual_ns(shape),
            baseline_known=lambda: session.time_single_launch(baseline, first),
            overhead_ns=lambda: session.single_launch_overhead_ns(baseline, first),
            unreported_ns=lambda: loaded.unreported_more(baseline, shape),
            forgotten=forgotten if prep.device.is_cpu else None,
        )
