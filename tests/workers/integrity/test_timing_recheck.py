"""When a timing is believed, on kernels whose times are made up."""

import itertools

import numpy as np
import pytest

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import FromPython
from tuner.experiment.fields import PythonFunction
from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.integrity.timing_recheck import (
    TIMES,
    TURNS,
    FirstLaunch,
    accept_or_retime,
    new_contents,
)

TIMED = [20e3] * 8
NOW_FAST_NOW_SLOW = [20e3] * 5 + [60e3] * 3


def asked(
    known_ns,
    new_ns,
    samples=TIMED,
    again=TIMED,
    overhead_ns=0.0,
    unreported_ns=(0.0,),
    baseline_ns=(20e3,),
    baseline_known_ns=20e3,
) -> int:
    """How often a kernel is timed again that takes so long at a time, in turn, when it is asked."""
    known, new = itertools.cycle(known_ns), itertools.cycle(new_ns)
    unreported = itertools.cycle(unreported_ns)
    taken = []

    def time_again():
        taken.append(again)
        return again

    other = itertools.cycle(baseline_ns)
    found = accept_or_retime(
        samples,
        time_again,
        known=lambda: next(known),
        new=(FirstLaunch(own_ns, next(other)) for own_ns in new),
        baseline_ns=lambda: 20e3,
        baseline_known=lambda: baseline_known_ns,
        overhead_ns=lambda: overhead_ns,
        unreported_ns=lambda: next(unreported),
    )
    assert found.samples is ([samples, *taken][-1])
    return len(taken)


def test_one_that_takes_its_time_whatever_it_is_asked_is_believed_at_once() -> None:
    assert asked([21e3], [22e3]) == 0
    assert asked([21e3], [21e3]) == 0


def test_where_no_inputs_are_new_the_known_ones_decide() -> None:
    assert asked([21e3], []) == 0
    with pytest.raises(DeviceFailure, match="is not as fast as it was timed"):
        asked([90e3], [])


def test_a_hiccup_costs_another_launch() -> None:
    assert asked([90e3, 21e3], [20e3]) == 0
    assert asked([20e3], [90e3, 21e3]) == 0


def test_launches_on_new_inputs_are_as_slow_as_those_on_known_ones_between_them() -> None:
    lucky_once = [20e3] + [28e3] * 5
    assert asked(lucky_once, [28e3]) == 0


def test_a_machine_that_slowed_down_is_no_reason_to_refuse() -> None:
    assert asked([60e3], [62e3], again=[58e3] * 8) == 1


def test_one_that_is_slower_on_new_inputs_is_refused() -> None:
    with pytest.raises(DeviceFailure, match=f"remembers its inputs.*{TURNS} times in a row"):
        asked([20e3], [60e3])


@pytest.mark.parametrize(("known_ns", "new_ns"), [(20e3, 23e3), (4e3, 4.6e3), (900.0, 1040.0)])
def test_one_that_remembers_an_eighth_is_refused_unless_the_baseline_varies_as_much(
    known_ns, new_ns
) -> None:
    timed = [known_ns] * 8
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([known_ns], [new_ns], samples=timed, again=timed)
    noisy = [20e3, 24e3, 24e3, 25e3, 30e3]
    assert asked([known_ns], [new_ns], samples=timed, baseline_ns=noisy) == 0


def test_what_new_inputs_cost_the_baseline_they_may_cost_a_kernel() -> None:
    with pytest.raises(DeviceFailure, match=r"remembers its inputs: .* 1\.3 times as long"):
        asked([4e3], [5.2e3], samples=[4e3] * 8, again=[4e3] * 8)
    branches = {"baseline_ns": [24e3], "baseline_known_ns": 20e3}
    assert asked([4e3], [5.2e3], samples=[4e3] * 8, **branches) == 0
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([4e3], [5.6e3], samples=[4e3] * 8, again=[4e3] * 8, **branches)


def test_what_is_slower_for_its_branches_alone_is_believed_to_take_that_long() -> None:
    def judged(forgotten_known_ns, baseline_new_ns=20e3, baseline_ns=20e3):
        return accept_or_retime(
            TIMED,
            lambda: TIMED,
            known=lambda: 20e3,
            new=itertools.repeat(FirstLaunch(50e3, baseline_new_ns)),
            baseline_ns=lambda: baseline_ns,
            baseline_known=lambda: 20e3,
            overhead_ns=lambda: 0.0,
            unreported_ns=lambda: 0.0,
            forgotten=lambda: forgotten_known_ns,
        )

    assert judged(51e3).samples == [50e3] * 8
    assert judged(51e3).corrected
    assert judged(36e3).samples == [50e3] * 8, "a part is not forgotten"
    assert judged(51e3, baseline_new_ns=25e3).samples == [40e3] * 8, "the baseline takes longer too"
    assert judged(51e3, baseline_ns=15e3).samples == [45e3] * 8, "single launches take longer"
    assert judged(51e3, baseline_ns=35e3).samples == [65e3] * 8, "or shorter"
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        judged(21e3)


def test_how_much_longer_the_first_launch_on_new_inputs_takes_is_told() -> None:
    def launches(own_ns: float):
        return itertools.repeat(FirstLaunch(own_ns, 20e3))

    def accepted(new):
        return accept_or_retime(
            TIMED,
            lambda: TIMED,
            known=lambda: 25e3,
            new=new,
            baseline_ns=lambda: 20e3,
            baseline_known=lambda: 20e3,
            overhead_ns=lambda: 0.0,
            unreported_ns=lambda: 0.0,
        ).unseen

    assert accepted(launches(26e3)) == pytest.approx(1.04)
    assert accepted(iter(())) is None


@pytest.mark.parametrize("known_ns", [[20e3, 20e3, 60e3], [60e3, 60e3, 20e3]])
def test_one_that_remembers_most_of_the_time_is_refused(known_ns) -> None:
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked(known_ns, [60e3], samples=NOW_FAST_NOW_SLOW, again=NOW_FAST_NOW_SLOW)


def test_one_that_is_never_again_as_fast_as_it_was_timed_is_refused() -> None:
    with pytest.raises(DeviceFailure, match="not as fast as it was timed: 3 times") as refused:
        asked([60e3], [60e3])
    assert refused.value.code is Code.SLOWER_AGAIN


def test_one_that_is_as_fast_as_it_was_timed_only_while_no_inputs_are_new_is_refused() -> None:
    lucky_once = [20e3] + [60e3] * 5
    with pytest.raises(DeviceFailure, match="not as fast as it was timed: 3 times"):
        asked(lucky_once, [60e3])
    assert asked(lucky_once, [60e3], overhead_ns=35e3) == 0


def test_what_the_baseline_lags_behind_too_is_allowed() -> None:
    assert asked([60e3], [60e3], overhead_ns=35e3) == 0


def test_one_that_is_now_fast_now_slow_is_believed_if_single_launches_are_so_too() -> None:
    assert asked([60e3] * (TIMES - 1) + [20e3], [20e3], samples=NOW_FAST_NOW_SLOW) == 0


def test_one_that_leaves_its_work_to_every_third_launch_is_refused() -> None:
    timed = [1e3, 1e3, 60e3] * 3
    with pytest.raises(DeviceFailure, match="not as fast as it was timed"):
        asked([20e3], [20e3], samples=timed, again=timed)


def test_one_that_takes_longer_than_the_device_reports_is_refused_unless_it_was_a_pause() -> None:
    assert asked([21e3], [21e3], unreported_ns=[4e3]) == 0
    assert asked([21e3], [21e3], unreported_ns=[9e3, 9e3, 1e3]) == 2
    with pytest.raises(DeviceFailure, match="not as fast as the device reports: it takes 9000 ns"):
        asked([21e3], [21e3], unreported_ns=[9e3])


@pytest.mark.parametrize("seeded", [True, False])
def test_what_a_function_makes_is_drawn_by_another_seed_or_moved_a_little(tmp_path, seeded) -> None:
    def made(seed: int):
        return np.linspace(1, 2, 64, dtype=np.float32) + (seed if seeded else 0)

    function = PythonFunction(file="inputs.py", text="", function="make")
    argument = ResolvedArgument(
        name="w",
        kind="in",
        dtype="float32",
        shape=(64,),
        strides=(1,),
        fill=FromPython(python=function),
    )
    known = tmp_path / "w.raw"
    made(7).tofile(known)
    rng = np.random.default_rng(1)
    with new_contents(
        [argument], {"w": str(known)}, rng, lambda function, name, seed: made(seed)
    ) as renewed:
        first, second = (np.fromfile(next(renewed)["w"], np.float32) for _ in range(2))
    assert (first != made(7)).all()
    assert (first != second).any()
    assert np.allclose(first, made(7), rtol=1e-6) is not seeded


def test_a_slow_baseline_that_varies_excuses_no_fast_kernel() -> None:
    slow = {"baseline_ns": [2e6, 3e6, 4e6, 2.5e6, 5e6], "baseline_known_ns": 2e6}
    with pytest.raises(DeviceFailure, match="remembers its inputs"):
        asked([20e3], [900e3], **slow)
    assert asked([20e3], [39e3], **slow) == 0
    assert asked([8e6], [12e6], samples=[8e6] * 8, **slow) == 0
