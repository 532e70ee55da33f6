"""Which finalists go on after the first process of a confirmation."""

from collections.abc import Sequence

import pytest

from tests.tuner.engine.driving import BASELINE_NS, GPU, experiment
from tests.tuner.results.runs import Times, finished_run
from tuner.results.screening import leading, leading_at_most


def led(times: Sequence[Times], top: int) -> tuple[int, ...]:
    trials = [({"x": number}, one) for number, one in enumerate(times)]
    history = finished_run(experiment(top=top), GPU, BASELINE_NS, trials, processes=1)
    return leading(history, range(len(times)))


@pytest.mark.parametrize(("top", "most"), [(1, 2), (2, 2), (3, 2), (5, 3), (8, 4)])
def test_half_of_the_confirmed_lead_but_two_at_least(top, most):
    assert leading_at_most(top) == most


def test_the_best_over_all_shapes_go_on():
    assert led([(600, 1200, 2400), (500, 1000, 2000), (800, 1600, 3200), (550, 1100, 2200)], 3) == (
        1,
        3,
    )


def test_what_is_best_on_a_shape_goes_on_if_it_is_clearly_so():
    best, second = (500, 1000, 2000), (501, 1002, 2004)
    assert led([best, second, (400, 1900, 3900)], 2) == (0, 1, 2)
    assert led([best, second, (499, 1900, 3900)], 2) == (0, 1)


def test_what_serves_some_shapes_only_goes_on_for_those():
    assert led([(500, 1000, 2000), (501, 1002, 2004), (400, None, 2000)], 2) == (0, 1, 2)
