import numpy as np
import pytest

from workers.bench.stopping import least_bursts, precise_enough


def test_fixed_counts_are_always_enough() -> None:
    assert precise_enough([1.0, 9.0], None)


@pytest.mark.parametrize("count", [1, 5])
def test_a_few_samples_have_no_interval(count) -> None:
    assert not precise_enough([1.0] * count, 0.5)


def test_it_takes_more_samples_where_they_scatter_more() -> None:
    rng = np.random.default_rng(3)
    calm, wild = rng.normal(100, 0.5, 400).tolist(), rng.normal(100, 5, 400).tolist()
    assert precise_enough(calm, 0.005)
    assert not precise_enough(wild[:50], 0.005)
    assert precise_enough(wild, 0.03)


@pytest.mark.parametrize(
    ("launches", "least"),
    [([21] * 6, 2), ([1] * 20, 8), ([3, 3, 1, 3], 4), ([0, 21, 0, 21, 21], 4), ([2, 2], 2)],
)
def test_a_candidate_may_be_given_up_after_two_bursts_and_eight_launches(launches, least) -> None:
    assert least_bursts(launches) == least
