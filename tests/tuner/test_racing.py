"""Racing: who gets the full protocol, against brute force; and that nothing sure is given up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.racing import Race, leading
from tuner.trial import Full, Infeasible, Measured, Short, geometric_mean, loss

WEIGHTS = (1.0, 2.0, 1.0)


def full(ratio: float) -> Full:
    return Full(median_ns=ratio * 100, mad_ns=1.0, samples=5, baseline_ns=100.0)


def short(ratio: float) -> Short:
    return Short(median_ns=ratio * 100, samples=2, baseline_ns=100.0)


def cells() -> st.SearchStrategy:
    ratios = st.floats(0.1, 10.0)
    return st.one_of(
        ratios.map(full), ratios.map(full), ratios.map(short), st.just(Infeasible(reason="no"))
    )


def outcomes() -> st.SearchStrategy[list[Measured]]:
    return st.lists(st.tuples(cells(), cells(), cells()).map(lambda c: Measured(cells=c)))


@given(measured=outcomes(), places=st.integers(1, 4))
def test_cutoffs_are_the_best_but_k_of_what_was_measured_in_full(measured, places):
    race = Race(places, WEIGHTS)
    for outcome in measured:
        race.take(outcome)
    objectives = [
        [
            geometric_mean([cell.ratio for cell in outcome.cells], WEIGHTS)
            for outcome in measured
            if all(isinstance(cell, Full) for cell in outcome.cells)
        ],
        *(
            [o.cells[shape].ratio for o in measured if isinstance(o.cells[shape], Full)]
            for shape in range(3)
        ),
    ]
    wanted = [sorted(one)[places - 1] if len(one) >= places else math.inf for one in objectives]
    assert race.cutoffs == tuple(wanted)


@given(measured=outcomes(), more=outcomes())
def test_cutoffs_only_fall(measured, more):
    race = Race(2, WEIGHTS)
    for outcome in measured:
        race.take(outcome)
    before = race.cutoffs
    for outcome in more:
        race.take(outcome)
    assert all(now <= then for now, then in zip(race.cutoffs, before, strict=True))


ratios = st.dictionaries(st.integers(0, 2), st.floats(0.1, 10.0))


@given(found=ratios)
def test_without_cutoffs_everything_gets_the_full_protocol(found):
    assert leading(found, WEIGHTS, ()) == found.keys()
    assert leading(found, WEIGHTS, (math.inf,) * 4) == found.keys()


@given(found=ratios, cutoffs=st.tuples(*[st.floats(0.1, 10.0)] * 4))
def test_a_specialist_keeps_its_shape_and_a_general_one_all(found, cutoffs):
    leads = leading(found, WEIGHTS, cutoffs)
    assert leads >= {shape for shape, ratio in found.items() if ratio <= cutoffs[1 + shape]}
    if len(found) == 3:
        mean = loss(Measured(cells=tuple(full(found[s]) for s in range(3))), WEIGHTS)
        assert (leads == found.keys()) or mean > cutoffs[0]


@given(st.tuples(cells(), cells(), cells()))
def test_a_cell_that_was_given_up_counts_as_it_was_timed(three):
    timed = tuple(full(c.ratio) if isinstance(c, Short) else c for c in three)
    assert loss(Measured(cells=three), WEIGHTS) == pytest.approx(
        loss(Measured(cells=timed), WEIGHTS)
    )
    assert Measured(cells=three).general == Measured(cells=timed).general
    assert Measured(cells=timed).complete
