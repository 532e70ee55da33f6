"""Racing: who gets the full protocol, against brute force; and that nothing sure is given up."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tuner.journal.facts import Fact, TrialFinished
from tuner.racing import CutoffTracker, within_cutoff, within_mean_cutoff
from tuner.trial import CutShort, Energy, Full, Infeasible, Measured, geometric_mean, loss

WEIGHTS = (1.0, 2.0, 1.0)


def full(ratio: float) -> Full:
    return Full(median_ns=ratio * 100, mad_ns=1.0, samples=5, baseline_ns=100.0)


def short(ratio: float) -> CutShort:
    return CutShort(median_ns=ratio * 100, samples=2, baseline_ns=100.0)


def cells() -> st.SearchStrategy:
    ratios = st.floats(0.1, 10.0)
    return st.one_of(
        ratios.map(full), ratios.map(full), ratios.map(short), st.just(Infeasible(reason="no"))
    )


def outcomes() -> st.SearchStrategy[list[Measured]]:
    return st.lists(st.tuples(cells(), cells(), cells()).map(lambda c: Measured(cells=c)))


@given(measured=outcomes(), places=st.integers(1, 4))
def test_cutoffs_are_the_best_but_k_of_what_was_measured_in_full(measured, places):
    race = CutoffTracker(places, WEIGHTS)
    for trial, outcome in enumerate(measured):
        race.take(trial, outcome)
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
    means = {
        trial: geometric_mean([cell.ratio for cell in outcome.cells], WEIGHTS)
        for trial, outcome in enumerate(measured)
        if all(isinstance(cell, Full) for cell in outcome.cells)
    }
    assert race.leader == min(means, key=lambda trial: (means[trial], trial), default=None)


def test_energy_chooses_the_leader_and_time_with_a_slack_what_is_cut_short():
    race = CutoffTracker(1, (1.0,), slack=1.5)
    fast = Energy(millijoules=3.0, baseline_mj=2.0, share=1.0)
    thrifty = Energy(millijoules=1.0, baseline_mj=2.0, share=1.0)
    race.take(0, Measured(cells=(replace(full(0.5), energy=fast),)))
    race.take(1, Measured(cells=(replace(full(0.7), energy=thrifty),)))
    assert race.leader == 1
    assert race.cutoffs == (0.75, 0.75)
    assert within_mean_cutoff(Measured(cells=(full(0.7),)), (1.0,), race.cutoffs)
    assert not within_cutoff(0, 0.8, race.cutoffs)


@given(
    time=st.floats(0.1, 10),
    energy=st.floats(0.1, 10),
    share=st.floats(0.01, 1),
)
def test_an_objective_lies_between_the_ratios_of_time_and_energy(time, energy, share):
    cell = replace(full(time), energy=Energy(millijoules=energy, baseline_mj=1.0, share=share))
    least, most = sorted((time, energy))
    assert least * 0.999 <= cell.ratio <= most * 1.001


@given(measured=outcomes(), more=outcomes())
def test_cutoffs_only_fall(measured, more):
    race = CutoffTracker(2, WEIGHTS)
    for trial, outcome in enumerate(measured):
        race.take(trial, outcome)
    before = race.cutoffs
    for trial, outcome in enumerate(more, len(measured)):
        race.take(trial, outcome)
    assert all(now <= then for now, then in zip(race.cutoffs, before, strict=True))


@given(three=st.tuples(cells(), cells(), cells()), ratio=st.floats(0.1, 10.0))
def test_without_cutoffs_everything_gets_the_full_protocol(three, ratio):
    outcome = Measured(cells=three)
    for cutoffs in ((), (math.inf,) * 4):
        assert within_cutoff(1, ratio, cutoffs)
        assert within_mean_cutoff(outcome, WEIGHTS, cutoffs) == outcome.general


@given(three=st.tuples(cells(), cells(), cells()), cutoffs=st.tuples(*[st.floats(0.1, 10.0)] * 4))
def test_a_specialist_keeps_its_shape_and_a_general_one_all(three, cutoffs):
    outcome = Measured(cells=three)
    mean = loss(outcome, WEIGHTS)
    assert within_mean_cutoff(outcome, WEIGHTS, cutoffs) == (outcome.general and mean <= cutoffs[0])
    for shape, cell in enumerate(three):
        assert within_cutoff(shape, cell.ratio, cutoffs) == (cell.ratio <= cutoffs[1 + shape])


@given(st.tuples(cells(), cells(), cells()))
def test_a_cell_that_was_given_up_counts_as_it_was_timed(three):
    timed = tuple(full(c.ratio) if isinstance(c, CutShort) else c for c in three)
    assert loss(Measured(cells=three), WEIGHTS) == pytest.approx(
        loss(Measured(cells=timed), WEIGHTS)
    )
    assert Measured(cells=three).general == Measured(cells=timed).general
    assert Measured(cells=timed).complete


@given(three=st.tuples(cells(), cells(), cells()))
def test_a_journal_gives_back_what_was_given_up(three):
    fact = TrialFinished(trial=3, outcome=Measured(cells=three), device_seconds=0.5)
    facts = TypeAdapter(Fact)
    assert facts.validate_json(facts.dump_json(fact)) == fact
