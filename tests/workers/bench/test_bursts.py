"""What a timing consists of: which kernels that idle now and then it catches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.bench.bursts import CHECKED, Burst, another_burst, plan_bursts, random_order
from workers.devices.port import LateWrite, Rotation

ONE_BY_ONE = Rotation(sets=1, warmup=20, bursts=100)
ON_A_PROCESSOR = Rotation(sets=16, warmup=1, bursts=7)
ON_A_GPU = Rotation(sets=100, warmup=1, bursts=5)
ROTATIONS = [ONE_BY_ONE, ON_A_PROCESSOR, ON_A_GPU]


def planned(rotation: Rotation, seed: int) -> list[Burst]:
    rng = np.random.default_rng(seed)
    return plan_bursts(rotation, random_order(rotation, rng), rng)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
@given(seed=st.integers(0, 2**32))
def test_each_late_write_has_an_inspected_burst_that_ends_with_its_set(rotation, seed):
    late = [LateWrite(step=0, stale="zeros"), LateWrite(step=0, stale="rotated")]
    rng = np.random.default_rng(seed)
    order = random_order(rotation, rng)
    bursts = [burst for burst in plan_bursts(rotation, order, rng, late=late) if burst.late]
    assert sorted(burst.late.stale for burst in bursts) == ["rotated", "zeros"]
    for burst in bursts:
        assert not burst.timed
        assert not burst.raced
        assert burst.inspect == burst.order[-1]
        assert burst.order.count(burst.inspect) == 1


def caught(found: list[Burst], works) -> bool:
    """Whether a look finds a set that was launched on and yet holds no answer.

    ``works`` says of a launch, by its number in all and in its burst, whether it does its work.
    """
    number = 0
    for burst in found:
        written = set()
        for place, index in enumerate(burst.order):
            if works(number, place):
                written.add(index)
            number += 1
        if burst.inspect in burst.order and burst.inspect not in written:
            return True
    return False


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
@given(seed=st.integers(0, 2**32))
def test_everything_asked_for_is_timed_and_one_burst_is_checked_early(rotation, seed):
    found = planned(rotation, seed)
    timed = [burst for burst in found if burst.timed]
    assert len(timed) == rotation.bursts
    assert all(len(burst.order) == rotation.sets for burst in timed)
    whole = [burst for burst in found if len(burst.order) == rotation.sets or not burst.raced]
    assert any(burst.inspect is not None for burst in whole[:3])


@pytest.mark.parametrize("rotation", [ONE_BY_ONE, ON_A_PROCESSOR], ids=str)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_a_kernel_that_idles_through_half_of_a_timing_is_always_caught(rotation, seed, share):
    found = planned(rotation, seed)
    launches = sum(len(burst.order) for burst in found)
    idle = launches // 2
    first = round(share * (launches - idle))
    assert caught(found, lambda number, _: not first <= number < first + idle)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
def test_a_kernel_that_idles_through_bursts_at_random_is_seldom_missed(rotation):
    missed = 0
    for seed in range(300):
        idle = np.random.default_rng([seed, 1]).random(1000) < 0.5
        found = planned(rotation, seed)
        missed += not any(
            idle[number] and burst.inspect in burst.order for number, burst in enumerate(found)
        )
    assert missed <= 300 * 0.5 ** min(CHECKED, rotation.bursts) * 3


@pytest.mark.parametrize("rotation", [ON_A_PROCESSOR, ON_A_GPU], ids=str)
@given(seed=st.integers(0, 2**32))
def test_one_burst_ends_early_and_all_sets_that_it_leaves_idle_are_inspected(rotation, seed):
    (early,) = [burst for burst in planned(rotation, seed) if burst.idle]
    assert early.inspect == early.order[-1]
    assert sorted(early.order + early.idle) == list(range(rotation.sets))
    assert not early.timed


@pytest.mark.parametrize("rotation", [ON_A_PROCESSOR, ON_A_GPU], ids=str)
@given(seed=st.integers(0, 2**32))
def test_one_burst_inspects_other_inputs_behind_its_first_launch(rotation, seed):
    rng = np.random.default_rng(seed)
    order = random_order(rotation, rng)
    (mixed,) = [burst for burst in plan_bursts(rotation, order, rng, mixes=True) if burst.mixed]
    assert mixed.order == order
    assert mixed.inspect in order[1:]
    assert not mixed.timed
    assert not mixed.raced


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
def test_no_burst_launches_on_a_set_twice(rotation):
    for burst in planned(rotation, 0):
        assert len(set(burst.order)) == len(burst.order)


def test_a_timing_that_goes_on_is_checked_as_well():
    rng = np.random.default_rng(0)
    order = random_order(ON_A_GPU, rng)
    more = [another_burst(order, rng) for _ in range(800)]
    assert all(burst.timed and burst.order == order for burst in more)
    assert 50 <= sum(burst.inspect is not None for burst in more) <= 150
