"""When a timing is believed, on kernels whose times are made up."""

import itertools

import numpy as np
import pytest

from tuner.spec.resolve import ResolvedArgument
from workers.bench.judge import Question
from workers.bench.memory import TURNS, refuse_memory
from workers.devices.port import DeviceFailure

NEW, KNOWN = {"x": "new"}, {"x": "known"}
TIMED = [20e3] * 8


def asked(known_ns, new_ns, samples=TIMED, again=TIMED, lag=0.0, kind="in") -> int:
    """How often a kernel is timed again that takes so long at a time, in turn, when it is asked."""
    argument = ResolvedArgument(
        name="x", kind=kind, dtype="float32", shape=(4,), strides=(1,), fill="normal"
    )
    question = Question(shape=0, label="first", contents=KNOWN, expected={}, wants={})
    known, new = itertools.cycle(known_ns), itertools.cycle(new_ns)
    taken = []

    def time_again():
        taken.append(again)
        return again

    refuse_memory(
        [argument],
        question,
        NEW,
        samples,
        lambda contents: next(known if contents is KNOWN else new),
        time_again,
        lambda: lag,
        np.random.default_rng(1),
    )
    return len(taken)


def test_one_that_takes_its_time_whatever_it_is_asked_is_believed_at_once() -> None:
    assert asked([21e3], [22e3]) == 0


def test_a_hiccup_costs_another_timing() -> None:
    assert asked([90e3, 21e3], [20e3]) == 1
    assert asked([20e3], [90e3, 21e3]) == 1


def test_a_machine_that_slowed_down_is_no_reason_to_refuse() -> None:
    assert asked([60e3], [62e3], again=[58e3] * 8) == 1


def test_one_that_is_slower_on_new_inputs_is_refused() -> None:
    with pytest.raises(DeviceFailure, match=f"remembers its inputs.*{TURNS} times in a row"):
        asked([20e3], [60e3])


def test_one_that_remembers_most_of_the_time_is_refused() -> None:
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([20e3, 20e3, 60e3], [60e3], samples=[20e3] * 6 + [60e3] * 2)


def test_one_that_is_never_again_as_fast_as_it_was_timed_is_refused() -> None:
    with pytest.raises(DeviceFailure, match="not as fast as it was timed: 3 times"):
        asked([60e3], [60e3])


def test_what_the_baseline_lags_behind_too_is_allowed() -> None:
    assert asked([60e3], [60e3], lag=35e3) == 0


def test_what_works_in_place_may_be_faster_on_what_it_left() -> None:
    assert asked([60e3], [60e3], kind="inout") == 0


def test_one_that_is_now_fast_now_slow_is_measured_by_its_slower_launches() -> None:
    assert asked([60e3], [60e3], samples=[20e3] * 5 + [60e3] * 3) == 0
