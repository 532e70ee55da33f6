"""What two clocks tell of a kernel, on times that are made up."""

import numpy as np
import pytest

from tests.workers.bench.test_bursts import ON_A_PROCESSOR, planned
from tuner.candidate import BASELINE, Candidate
from tuner.plan import Plan
from tuner.trial import Configuration
from workers.bench.launcher import LoadedCandidate

TIMED = next(burst for burst in planned(ON_A_PROCESSOR, 0) if burst.timed)


def recorded(reported_ns, unreported_ns) -> LoadedCandidate:
    """A kernel whose launches took so long, burst by burst, by the device's clock and beyond it."""
    plan = Plan(builds=(), cells=())
    candidate = Candidate(trial=BASELINE, configuration=Configuration(()), plan=plan, binaries=())
    loaded = LoadedCandidate(candidate, module=0)
    for reported, unreported in zip(reported_ns, unreported_ns, strict=True):
        wall_ns = (reported + unreported) * len(TIMED.order)
        loaded.record(0, TIMED, [reported], wall_ns)
    return loaded


def busy(seed: int, least_ns: float) -> list[float]:
    """Unreported nanoseconds on a busy host, which reads either mark late now and then."""
    rng = np.random.default_rng(seed)
    late = rng.pareto(1.0, 16) - rng.pareto(1.0, 16)
    return list(least_ns + 10e3 * late)


@pytest.mark.parametrize("seed", range(10))
def test_time_that_no_device_reports_shows_on_a_busy_host_too(seed) -> None:
    baseline = recorded([5e3] * 16, busy(seed, 20e3))
    cheat = recorded([5e3] * 16, busy(seed + 100, 500e3))
    honest = recorded([5e3] * 16, busy(seed + 200, 20e3))
    assert cheat.unreported_more(baseline, 0) > 100e3
    assert honest.unreported_more(baseline, 0) < 5e3


def test_bursts_that_are_reported_as_slow_do_not_excuse_the_others() -> None:
    baseline = recorded([20e3] * 16, [1e3] * 16)
    cheat = recorded([5e3, 5e3, 5e3, 20e3] * 4, [16e3, 16e3, 16e3, 1e3] * 4)
    assert cheat.unreported_more(baseline, 0) == pytest.approx(15e3)
    assert cheat.unreported_more(recorded([], []), 0) == 0.0


def test_launches_that_take_longer_than_the_baselines_may_scatter_more() -> None:
    baseline = recorded([5e3] * 16, [-2e3, 0.0] * 8)
    honest = recorded([3e6] * 16, [300e3] * 16)
    cheat = recorded([5e3] * 16, [300e3] * 16)
    assert honest.unreported_more(baseline, 0) == 0.0
    assert cheat.unreported_more(baseline, 0) > 250e3
