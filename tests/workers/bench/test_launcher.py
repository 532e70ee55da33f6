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
    """Unreported nanoseconds on a busy host, which delays 7 of 16 bursts, some by much."""
    rng = np.random.default_rng(seed)
    delays = [*(100e3 * (1 + rng.pareto(1.0, 7))), *(1e3 * rng.random(9))]
    return list(least_ns + rng.permutation(delays))


@pytest.mark.parametrize("seed", range(10))
def test_time_that_no_device_reports_shows_on_a_busy_host_too(seed) -> None:
    baseline = recorded([105e3] * 16, busy(seed, 20e3))
    honest = recorded([50e3] * 16, busy(seed + 200, 20e3))
    cheat = recorded([25e3] * 16, busy(seed + 100, 45e3))
    assert honest.unreported_more(baseline, 0) < 5e3
    assert cheat.unreported_more(baseline, 0) > 20e3


def test_readings_that_scatter_as_the_baseline_s_do_accuse_no_kernel() -> None:
    """As measured on two processors, where a burst is one launch and wakes a thread first."""
    woken_ns = [31e3, 39e3, 41e3, 66e3, 69e3, 80e3, 85e3, 88e3, 91e3, 92e3, 95e3, 97e3, 99e3, 1e5]
    baseline = recorded([1.5e3] * 14, woken_ns)
    honest = recorded([2e3] * 11, woken_ns[3:])
    cheat = recorded([2e3] * 11, [ns + 40e3 for ns in woken_ns[3:]])
    assert honest.unreported_more(baseline, 0) == 0.0
    assert cheat.unreported_more(baseline, 0) > 15e3


def test_a_faster_kernel_is_not_accused_where_the_host_reads_no_time_at_all() -> None:
    baseline = recorded([105e3] * 16, [-104e3] * 16)
    honest = recorded([50e3] * 16, [-49e3] * 15 + [300e3])
    assert honest.unreported_more(baseline, 0) == 0.0


def test_bursts_that_are_reported_as_slow_do_not_excuse_the_others() -> None:
    baseline = recorded([20e3] * 16, [1e3] * 16)
    cheat = recorded([5e3, 5e3, 5e3, 20e3] * 4, [16e3, 16e3, 16e3, 1e3] * 4)
    assert cheat.unreported_more(baseline, 0) == pytest.approx(15e3)
    assert cheat.unreported_more(recorded([], []), 0) == 0.0


def test_a_burst_in_which_nothing_was_done_does_not_excuse_the_others() -> None:
    baseline = recorded([20e3] * 16, [1e3] * 16)
    cheat = recorded([5e3] * 16, [1e3, *[16e3] * 7] * 2)
    assert cheat.unreported_more(baseline, 0) == pytest.approx(15e3)
