"""Seeds: tried first, moved to the nearest feasible point, and never in the way of a rebuild."""

import pytest

from tests.conformance.proposer import ProposerConformance, small_space
from tuner.experiment.model import SearchSettings
from tuner.search.seeded import nearest
from tuner.search.select import make_proposer
from tuner.space.feasible import recorded_set

SEED = {"A": 8, "FAST": False, "MODE": "plain", "B": 2, "FIXED": 7}
WIDE = {**SEED, "A": 16}


class TestSeeded(ProposerConformance):
    def make(self, space, seed):
        search = SearchSettings(strategy="random", seed=seed, seeds=(SEED, WIDE, SEED))
        return make_proposer(search, space)


class TestSeededProcess(ProposerConformance):
    def make(self, space, seed):
        return make_proposer(SearchSettings(strategy="gp", seed=seed, seeds=(WIDE, SEED)), space)


def test_seeds_come_first_in_their_order():
    space = small_space()
    seeds = ({"Z": 1}, WIDE, SEED, {**SEED, "A": 9})
    proposer = make_proposer(SearchSettings(strategy="random", seeds=seeds), space)
    asked = [proposer.ask(trial) for trial in range(3)]
    assert [point.as_dict() for point in asked[:2]] == [WIDE, SEED]
    assert asked[2] not in asked[:2]


@pytest.mark.parametrize(
    ("seed", "found"),
    [
        ({**SEED, "A": 9}, SEED),
        ({**SEED, "A": 1 << 70, "Z": 3}, WIDE),
        ({**SEED, "FIXED": 8}, SEED),
        ({**SEED, "MODE": "unknown"}, SEED),
        ({**SEED, "A": True, "FAST": 0}, {**SEED, "A": 1}),
    ],
)
def test_a_seed_from_elsewhere_goes_to_the_nearest_point(seed, found):
    space = small_space()
    assert space.configuration(nearest(space, seed)).as_dict() == found


def test_what_a_seed_does_not_mention_is_taken_from_the_middle():
    space = recorded_set(
        {"A": (1, 2), "B": (1, 2, 3, 4, 5)}, [(a, b) for a in (0, 1) for b in range(5)]
    )
    assert space.configuration(nearest(space, {"A": 2})).as_dict() == {"A": 2, "B": 3}
