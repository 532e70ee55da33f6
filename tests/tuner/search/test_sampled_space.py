"""Searches of a space too large to be enumerated."""

import pytest

from tests.tuner.space.devices import opencl_cpu
from tests.tuner.space.experiments import experiment, template
from tuner.experiment.model import SearchSettings
from tuner.search.select import make_proposer
from tuner.space import enumeration
from tuner.space.feasible import feasible_set

PARAMETERS = {name: tuple(range(1, 11)) for name in "ABCDEFG"}
OPTIMUM = {name: 3 + at for at, name in enumerate(PARAMETERS)}


def loss(configuration):
    """A bowl around the optimum, which the constraints allow."""
    return 1.0 + sum((value - OPTIMUM[name]) ** 2 for name, value in configuration.values)


@pytest.fixture
def space(monkeypatch):
    """Makes the set anew, without the points that an earlier search has looked up."""
    monkeypatch.setattr(enumeration, "MAX_POINTS", 1000)
    monkeypatch.setattr(enumeration, "SAMPLE", 300)
    family = template(PARAMETERS, ["A + B <= 9", "(C + D + E) % 3 == 0"])
    return lambda: feasible_set(experiment(), family, opencl_cpu())


def walk(proposer, trials):
    """Ask and tell in turn; the configurations in order."""
    asked = []
    for trial in trials:
        asked.append(proposer.ask(trial))
        proposer.tell(trial, (loss(asked[-1]),))
    return asked


@pytest.mark.parametrize("strategy", ["gp", "tpe", "random"])
def test_what_it_proposes_is_feasible_and_new_and_depends_on_the_seed_alone(space, strategy):
    settings = SearchSettings(strategy=strategy, seed=1)
    undisturbed = make_proposer(settings, space())
    asked = walk(undisturbed, range(14))
    assert len(set(asked)) == 14
    for configuration in asked:
        at = configuration.as_dict()
        assert at["A"] + at["B"] <= 9
        assert (at["C"] + at["D"] + at["E"]) % 3 == 0
    rebuilt = make_proposer(settings, space())
    for trial, configuration in enumerate(asked):
        rebuilt.record(trial, configuration)
        rebuilt.tell(trial, (loss(configuration),))
    assert walk(rebuilt, range(14, 18)) == walk(undisturbed, range(14, 18))


def test_local_moves_find_what_is_not_in_the_sample(space):
    found = space()
    best_drawn = min(loss(found.configuration(point)) for point in range(found.drawn))
    asked = walk(make_proposer(SearchSettings(strategy="gp", seed=0), found), range(90))
    assert min(map(loss, asked)) < best_drawn


def test_auto_searches_a_sampled_space_with_the_process_unless_the_budget_covers_all_of_it(space):
    found = space()
    settings = SearchSettings(strategy="auto", trials=found.drawn + 1, seed=2)
    expected = make_proposer(SearchSettings(strategy="gp", seed=2), space())
    assert make_proposer(settings, found).ask(0) == expected.ask(0)


def test_a_seed_is_tried_as_it_is(space):
    settings = SearchSettings(strategy="gp", seeds=(OPTIMUM, {"A": 10, "B": 10}))
    proposer = make_proposer(settings, space())
    assert proposer.ask(0).as_dict() == OPTIMUM
    nearest = proposer.ask(1).as_dict()
    assert nearest["A"] + nearest["B"] == 9
