from dataclasses import replace

import pytest

from agents.tuning import Seeded, round_experiment
from tests.agents.briefs import twice
from tests.conformance.proposer import ProposerConformance, small_space
from tuner.search.select import make_proposer
from tuner.spec.experiment import Search

SEED = {"A": 8, "FAST": False, "MODE": "plain", "B": 2, "FIXED": 7}
WIDE = {**SEED, "A": 16}


class TestSeeded(ProposerConformance):
    def make(self, space, seed):
        search = Search(strategy="random", seed=seed)
        return Seeded(make_proposer(search, space), space, [SEED, WIDE, SEED])


def test_seeds_come_first_in_their_order() -> None:
    space = small_space()
    outside = [{**SEED, "A": 3}, {"A": 8}, {**SEED, "MODE": "cached", "A": 1}]
    inner = make_proposer(Search(strategy="random"), space)
    proposer = Seeded(inner, space, [*outside, WIDE, SEED])
    asked = [proposer.ask(trial) for trial in range(3)]
    assert [point.as_dict() for point in asked[:2] if point] == [WIDE, SEED]
    assert asked[2] not in asked[:2]


@pytest.mark.parametrize(
    ("trials", "seconds", "left", "share"),
    [(0, 0.0, 3, (4, 30.0)), (4, 30.0, 2, (3, 30.0)), (9, 0.0, 1, (1, 90.0))],
)
def test_a_round_gets_its_share_of_what_is_left(
    trials: int, seconds: float, left: int, share: tuple[int, float]
) -> None:
    whole = replace(twice(), search=Search(trials=10, seconds=90.0))
    assert whole.template is not None
    found = round_experiment(
        whole, whole.template, used_trials=trials, used_seconds=seconds, rounds_left=left
    )
    assert found is not None
    assert (found.search.trials, found.search.seconds) == share


@pytest.mark.parametrize(("trials", "seconds"), [(10, 0.0), (12, 0.0), (0, 90.0)])
def test_a_spent_budget_gives_no_round(trials: int, seconds: float) -> None:
    whole = replace(twice(), search=Search(trials=10, seconds=90.0))
    assert whole.template is not None
    assert (
        round_experiment(
            whole, whole.template, used_trials=trials, used_seconds=seconds, rounds_left=2
        )
        is None
    )
