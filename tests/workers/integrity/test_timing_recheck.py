"""When a timing is believed, on kernels whose times are made up."""

import itertools

import pytest

from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.integrity.timing_recheck import TIMES, TURNS, accept_or_retime

TIMED = [20e3] * 8
NOW_FAST_NOW_SLOW = [20e3] * 5 + [60e3] * 3


def asked(known_ns, new_ns, samples=TIMED, again=TIMED, overhead_ns=0.0, drifts=False) -> int:
    """How often a kernel is timed again that takes so long at a time, in turn, when it is asked."""
    known, new = itertools.cycle(known_ns), itertools.cycle(new_ns)
    taken = []

    def time_again():
        taken.append(again)
        return again

    found = accept_or_retime(
        samples,
        time_again,
        known=lambda: next(known),
        new=new,
        overhead_ns=lambda: overhead_ns,
        drifts=drifts,
    )
    assert found is ([samples, *taken][-1])
    return len(taken)


def test_one_that_takes_its_time_whatever_it_is_asked_is_believed_at_once() -> None:
    assert asked([21e3], [22e3]) == 0


def test_where_no_inputs_are_new_the_known_ones_decide() -> None:
    assert asked([21e3], []) == 0
    with pytest.raises(DeviceFailure, match="is not as fast as it was timed"):
        asked([90e3], [])


def test_a_hiccup_costs_another_launch() -> None:
    assert asked([90e3, 21e3], [20e3]) == 0
    assert asked([20e3], [90e3, 21e3]) == 0


def test_a_machine_that_slowed_down_is_no_reason_to_refuse() -> None:
    assert asked([60e3], [62e3], again=[58e3] * 8) == 1


def test_one_that_is_slower_on_new_inputs_is_refused() -> None:
    with pytest.raises(DeviceFailure, match=f"remembers its inputs.*{TURNS} times in a row"):
        asked([20e3], [60e3])


def test_one_that_remembers_a_third_is_refused_unless_it_may_be_the_clock() -> None:
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([20e3], [27e3])
    assert asked([4e3], [5.5e3], samples=[4e3] * 8) == 0


@pytest.mark.parametrize("known_ns", [[20e3, 20e3, 60e3], [60e3, 60e3, 20e3]])
def test_one_that_remembers_most_of_the_time_is_refused(known_ns) -> None:
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked(known_ns, [60e3], samples=NOW_FAST_NOW_SLOW, again=NOW_FAST_NOW_SLOW)


def test_one_that_is_never_again_as_fast_as_it_was_timed_is_refused() -> None:
    with pytest.raises(DeviceFailure, match="not as fast as it was timed: 3 times") as refused:
        asked([60e3], [60e3])
    assert refused.value.code is Code.SLOWER_AGAIN


def test_what_the_baseline_lags_behind_too_is_allowed() -> None:
    assert asked([60e3], [60e3], overhead_ns=35e3) == 0


def test_what_finds_other_contents_while_it_is_timed_may_be_faster_on_those() -> None:
    assert asked([60e3], [60e3], drifts=True) == 0


def test_one_that_is_now_fast_now_slow_is_believed_if_single_launches_are_so_too() -> None:
    assert asked([60e3] * (TIMES - 1) + [20e3], [20e3], samples=NOW_FAST_NOW_SLOW) == 0


def test_one_that_leaves_its_work_to_every_third_launch_is_refused() -> None:
    timed = [1e3, 1e3, 60e3] * 3
    with pytest.raises(DeviceFailure, match="not as fast as it was timed"):
        asked([20e3], [20e3], samples=timed, again=timed)
