"""When a timing is believed, on kernels whose times are made up."""

import itertools

import pytest

from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.integrity.timing_recheck import TIMES, TURNS, accept_or_retime

TIMED = [20e3] * 8
NOW_FAST_NOW_SLOW = [20e3] * 5 + [60e3] * 3


def asked(
    own_ns,
    samples=TIMED,
    again=TIMED,
    unreported_ns=(0.0,),
    baseline_own_ns=(20e3,),
    baseline_known_ns=20e3,
) -> int:
    """How often a kernel is timed again that takes so long at a time, in turn, when it is asked."""
    own, baseline = itertools.cycle(own_ns), itertools.cycle(baseline_own_ns)
    unreported = itertools.cycle(unreported_ns)
    taken = []

    def time_again():
        taken.append(again)
        return again

    found = accept_or_retime(
        samples,
        time_again,
        own=lambda: next(own),
        baseline_own=lambda: next(baseline),
        baseline_known=lambda: baseline_known_ns,
        unreported_ns=lambda: next(unreported),
    )
    assert found.samples is ([samples, *taken][-1])
    return len(taken)


def test_one_that_takes_its_time_whatever_it_is_asked_is_believed_at_once() -> None:
    assert asked([22e3]) == 0
    assert asked([18e3]) == 0


def test_a_hiccup_costs_another_burst() -> None:
    assert asked([90e3, 21e3]) == 0


def test_a_machine_that_slowed_down_is_no_reason_to_refuse() -> None:
    assert asked([62e3], again=[58e3] * 8) == 1


def test_one_that_is_slower_on_new_inputs_is_refused() -> None:
    refusal = f"remembers its inputs: launches on new ones took 3 times.*{TURNS} times in a row"
    with pytest.raises(DeviceFailure, match=refusal) as refused:
        asked([60e3])
    assert refused.value.code is Code.SLOWER_AGAIN


@pytest.mark.parametrize(("known_ns", "own_ns"), [(20e3, 23e3), (4e3, 4.6e3), (900.0, 1040.0)])
def test_one_that_remembers_an_eighth_is_refused_unless_the_baseline_varies_as_much(
    known_ns, own_ns
) -> None:
    timed = [known_ns] * 8
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([own_ns], samples=timed, again=timed)
    noisy = [20e3, 24e3, 24e3, 25e3, 30e3]
    assert asked([own_ns], samples=timed, baseline_own_ns=noisy) == 0


def test_what_new_inputs_cost_the_baseline_they_may_cost_a_kernel() -> None:
    timed = {"samples": [4e3] * 8, "again": [4e3] * 8}
    with pytest.raises(DeviceFailure, match=r"remembers its inputs: .* 1\.3 times as long"):
        asked([5.2e3], **timed)
    branches = {"baseline_own_ns": [24e3], "baseline_known_ns": 20e3}
    assert asked([5.2e3], **timed, **branches) == 0
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([5.6e3], **timed, **branches)


def test_what_is_slower_for_its_branches_alone_is_believed_to_take_that_long() -> None:
    def judged(forgotten_ns, *baseline_own_ns):
        others = itertools.cycle(baseline_own_ns or [20e3])
        return accept_or_retime(
            TIMED,
            lambda: TIMED,
            own=lambda: 50e3,
            baseline_own=lambda: next(others),
            baseline_known=lambda: 20e3,
            unreported_ns=lambda: 0.0,
            single=lambda forgets: 300e3 + (forgotten_ns if forgets else 20e3),
        )

    assert judged(50e3).samples == [50e3] * 8
    assert judged(50e3).corrected
    assert judged(36e3).samples == [50e3] * 8, "a part is not forgotten"
    assert judged(50e3, 25e3).samples == [40e3] * 8, "the baseline is slower, too"
    assert judged(50e3, 25e3, 20e3, 25e3, 25e3).samples == [40e3] * 8, "a lucky launch of it"
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        judged(34e3)


def test_how_much_longer_launches_on_new_inputs_take_is_told() -> None:
    def accepted(own):
        return accept_or_retime(
            TIMED,
            lambda: TIMED,
            own=own,
            baseline_own=lambda: 20e3,
            baseline_known=lambda: 20e3,
            unreported_ns=lambda: 0.0,
        ).unseen

    assert accepted(lambda: 21e3) == pytest.approx(1.05)
    hiccup = iter([90e3, 21e3])
    assert accepted(lambda: next(hiccup)) == pytest.approx(1.05)
    assert accepted(None) is None, "no inputs can vary"


def test_one_that_remembers_most_of_the_time_is_refused() -> None:
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([60e3], samples=NOW_FAST_NOW_SLOW, again=NOW_FAST_NOW_SLOW)


def test_one_that_is_now_fast_now_slow_is_believed_if_it_is_so_on_new_inputs_too() -> None:
    assert asked([60e3] * (TIMES - 1) + [20e3], samples=NOW_FAST_NOW_SLOW) == 0


def test_one_that_takes_longer_than_the_device_reports_is_refused_unless_it_was_a_pause() -> None:
    assert asked([21e3], unreported_ns=[4e3]) == 0
    assert asked([21e3], unreported_ns=[9e3, 9e3, 1e3]) == 2
    with pytest.raises(DeviceFailure, match="not as fast as the device reports: it takes 9000 ns"):
        asked([21e3], unreported_ns=[9e3])


def test_a_slow_baseline_that_varies_excuses_no_fast_kernel() -> None:
    slow = {"baseline_own_ns": [2e6, 3e6, 4e6, 2.5e6, 5e6], "baseline_known_ns": 2e6}
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([900e3], **slow)
    assert asked([39e3], **slow) == 0
    assert asked([12e6], samples=[8e6] * 8, **slow) == 0
