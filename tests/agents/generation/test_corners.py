import itertools

import pytest

from agents.generation.corners import corners
from tests.conformance.proposer import small_space
from tuner.space.feasible import FeasibleSet, recorded_set


def product_space(*sizes: int) -> FeasibleSet:
    parameters = {f"P{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    return recorded_set(parameters, list(itertools.product(*map(range, sizes))))


def test_every_value_is_met() -> None:
    space = small_space()
    chosen = corners(space)
    for name in space.parameters:
        everywhere = {space.configuration(i).as_dict()[name] for i in range(len(space))}
        assert {point.as_dict()[name] for point in chosen} == everywhere


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (7, 1, 3), (2,) * 10, (30, 30)])
def test_few_distinct_and_feasible(sizes: tuple[int, ...]) -> None:
    space = product_space(*sizes)
    chosen = corners(space)
    assert 0 < len(chosen) <= 24
    assert len(set(chosen)) == len(chosen)
    assert all(space.index_of(point) is not None for point in chosen)
    assert space.configuration(0) in chosen
    assert space.configuration(len(space) - 1) in chosen


def test_it_is_a_pure_function() -> None:
    assert corners(small_space()) == corners(small_space())
