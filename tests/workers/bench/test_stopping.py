import numpy as np
import pytest

from workers.bench.stopping import settled


def test_fixed_counts_are_always_enough() -> None:
    assert settled([1.0, 9.0], None)


@pytest.mark.parametrize("count", [1, 5])
def test_a_few_samples_have_no_interval(count) -> None:
    assert not settled([1.0] * count, 0.5)


def test_it_takes_more_samples_where_they_scatter_more() -> None:
    rng = np.random.default_rng(3)
    calm, wild = rng.normal(100, 0.5, 400).tolist(), rng.normal(100, 5, 400).tolist()
    assert settled(calm, 0.005)
    assert not settled(wild[:50], 0.005)
    assert settled(wild, 0.03)
