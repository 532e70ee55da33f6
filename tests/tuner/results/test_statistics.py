"""Verdicts: what is the same is called so, what differs is seen, and noise is never a win."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.results.statistics import ERROR_RATE, FEWEST, Noise, compare

FINALISTS, SHAPES, PROCESSES = 5, 6, 5


def simulated(random, sigma, speedups):
    """Log speedups of finalists against one baseline, in processes with independent noise."""
    baseline = random.normal(0, sigma, PROCESSES)
    return [list(math.log(s) + baseline - random.normal(0, sigma, PROCESSES)) for s in speedups]


def verdicts(random, sigma, speedups):
    logs = simulated(random, sigma, speedups)
    noise = Noise.pooled(logs)
    return [compare(each, noise, FINALISTS * SHAPES).verdict for each in logs]


@pytest.mark.parametrize("sigma", [0.0005, 0.002, 0.005, 0.01])
def test_the_baseline_against_itself_is_the_same_in_99_of_100_runs(sigma):
    random = np.random.default_rng(1)
    runs = 200
    same = sum(
        all(
            verdict == "same"
            for _ in range(SHAPES)
            for verdict in verdicts(random, sigma, [1.0] * FINALISTS)
        )
        for _ in range(runs)
    )
    assert same >= 0.99 * runs


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.05, 0.2])
def test_noise_alone_is_hardly_ever_faster_or_slower(sigma):
    random = np.random.default_rng(2)
    runs = 300
    wrong = sum(
        any(
            verdict in ("faster", "slower")
            for _ in range(SHAPES)
            for verdict in verdicts(random, sigma, [1.0] * FINALISTS)
        )
        for _ in range(runs)
    )
    assert wrong <= 2 * ERROR_RATE * runs


@pytest.mark.parametrize(("speedup", "verdict"), [(0.98, "slower"), (1.02, "faster")])
def test_two_percent_are_seen_on_a_quiet_device(speedup, verdict):
    random = np.random.default_rng(3)
    speedups = [speedup] + [1.0] * (FINALISTS - 1)
    seen = [verdicts(random, 0.0015, speedups)[0] for _ in range(200)]
    assert seen.count(verdict) >= 198


def test_twice_as_fast_is_seen_on_a_noisy_one():
    random = np.random.default_rng(4)
    seen = [verdicts(random, 0.1, [2.0] * FINALISTS) for _ in range(100)]
    assert sum(one == ["faster"] * FINALISTS for one in seen) >= 98


def test_a_device_that_differs_from_itself_by_a_quarter_settles_nothing():
    random = np.random.default_rng(5)
    seen = {verdict for _ in range(50) for verdict in verdicts(random, 0.25, [1.0] * FINALISTS)}
    assert seen == {"unclear"}


LOOKS = range(FEWEST, PROCESSES + 1)


def looked_at(logs):
    """The comparisons of each finalist on a shape, look by look, the best alone after the first."""
    best = max(range(len(logs)), key=lambda one: sum(logs[one][:FEWEST]))
    for look in LOOKS:
        known = [each[: look if one == best else FEWEST] for one, each in enumerate(logs)]
        noise = Noise.pooled(known)
        yield [compare(each, noise, FINALISTS * SHAPES, at_most=PROCESSES) for each in known], best


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.05])
def test_whichever_look_is_the_last_noise_alone_is_hardly_ever_faster_or_slower(sigma):
    random = np.random.default_rng(6)
    runs = 300
    wrong = sum(
        any(
            comparison.verdict in ("faster", "slower")
            for _ in range(SHAPES)
            for look, _ in looked_at(simulated(random, sigma, [1.0] * FINALISTS))
            for comparison in look
        )
        for _ in range(runs)
    )
    assert wrong <= 2 * ERROR_RATE * runs


def test_all_intervals_of_all_looks_hold_at_once():
    random = np.random.default_rng(7)
    speedups = [1.1, 1.05, 1.0, 0.97, 0.8]
    runs = 300
    held = sum(
        all(
            comparison.low <= speedup <= comparison.high
            for _ in range(SHAPES)
            for look, _ in looked_at(simulated(random, 0.004, speedups))
            for comparison, speedup in zip(look, speedups, strict=True)
        )
        for _ in range(runs)
    )
    assert held >= (1 - 2 * ERROR_RATE) * runs


@pytest.mark.parametrize(("speedup", "sigma", "at_first"), [(1.05, 0.002, 190), (1.02, 0.002, 0)])
def test_a_large_difference_is_decided_at_the_first_look_and_a_small_one_by_the_last(
    speedup, sigma, at_first
):
    random = np.random.default_rng(8)
    ends = Counter()
    for _ in range(200):
        logs = simulated(random, sigma, [speedup] + [0.97] * (FINALISTS - 1))
        found = [look[best] for look, best in looked_at(logs)]
        decided = (one.processes for one in found if one.decided)
        ends[next(decided, 0)] += 1
        assert all(one.verdict == "faster" for one in found if one.decided)
    assert ends[FEWEST] >= at_first
    assert ends[0] <= 4


def test_only_a_sure_verdict_on_a_wide_interval_needs_a_caution():
    logs, wide = [math.log(20)] * 3, {"freedom": 4.0, "sigma": 0.2}
    assert compare(logs, Noise(sigma=0.02, freedom=4.0), 1).caution == ""
    found = compare(logs, Noise(**wide), 1)
    assert (found.verdict, found.half_width > math.log(1.4)) == ("faster", True)
    assert found.caution == f" interval=[{found.low:.2f},{found.high:.2f}]"
    assert compare([0.0] * 3, Noise(**wide), 1).caution == ""


def test_looks_share_the_error_rate_and_a_single_one_has_it_all():
    logs = [0.1, 0.11, 0.09]
    noise = Noise(sigma=0.01, freedom=8.0)
    single = compare(logs, noise, 10)
    assert compare(logs, noise, 10, at_most=3) == single
    first = compare(logs, noise, 10, at_most=5)
    assert first.low < single.low
    last = compare(logs + logs[:2], noise, 10, at_most=5)
    alone = compare(logs + logs[:2], noise, 10)
    assert alone.low - last.low < 0.4 * (single.low - first.low)


def test_what_lies_within_one_percent_is_decided_too():
    noise = Noise(sigma=0.0003, freedom=20.0)
    assert compare([0.001] * 5, noise, 1).decided
    assert not compare([0.0098] * 5, noise, 1).decided
    no_gain = compare([-0.02] * 5, Noise(sigma=0.012, freedom=20.0), 10)
    assert (no_gain.decided, no_gain.gain_decided) == (False, True)


def test_one_process_is_no_evidence():
    one = compare([0.7], Noise.pooled([[0.7]]), 1)
    assert (one.verdict, one.low, one.high, one.processes) == ("unclear", None, None, 1)


@given(
    logs=st.lists(st.floats(-3, 3), min_size=2, max_size=10),
    comparisons=st.integers(1, 200),
)
def test_the_interval_holds_the_estimate_and_the_verdict_agrees_with_it(logs, comparisons):
    found = compare(logs, Noise.pooled([logs]), comparisons)
    if found.low is None:
        assert found.verdict == "unclear"
        return
    assert found.low <= found.speedup * (1 + 1e-12)
    assert found.speedup <= found.high * (1 + 1e-12)
    match found.verdict:
        case "faster":
            assert found.speedup > 1.01
            assert found.low > 1
        case "slower":
            assert found.speedup < 1 / 1.01 * (1 + 1e-12)
            assert found.high < 1
        case "same":
            assert found.low <= 1.01
            assert found.high >= 1 / 1.01 - 1e-12
            assert max(found.high, 1 / found.low) <= 1.1 + 1e-9


@given(
    logs=st.lists(st.floats(-1, 1), min_size=2, max_size=8),
    more=st.integers(2, 50),
)
def test_more_comparisons_make_no_verdict_bolder(logs, more):
    noise = Noise.pooled([logs])
    few, many = compare(logs, noise, 1), compare(logs, noise, more)
    if many.low is None:
        return
    assert many.low <= few.low
    assert many.high >= few.high
