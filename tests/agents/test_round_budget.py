from dataclasses import replace

import pytest

from agents.halving import round_experiment
from tests.agents.briefs import twice
from tuner.experiment.model import SearchSettings


@pytest.mark.parametrize(
    ("trials", "seconds", "left", "share"),
    [(0, 0.0, 3, (4, 30.0)), (4, 30.0, 2, (3, 30.0)), (9, 0.0, 1, (1, 90.0))],
)
def test_a_round_gets_its_share_of_what_is_left(
    trials: int, seconds: float, left: int, share: tuple[int, float]
) -> None:
    whole = replace(twice(), search=SearchSettings(trials=10, seconds=90.0))
    found = round_experiment(
        whole, used_trials=trials, used_seconds=seconds, used_device_seconds=0.0, rounds_left=left
    )
    assert not isinstance(found, str)
    assert (found.search.trials, found.search.seconds) == share


@pytest.mark.parametrize(
    ("trials", "seconds", "confirming", "why"),
    [
        (10, 0.0, 0.0, "all 10 trials are done; begin a run with more --trials"),
        (12, 0.0, 0.0, "all 10 trials are done; begin a run with more --trials"),
        (1, 90.0, 0.0, "all 90 s are over; begin a run with more --seconds"),
        (
            1,
            60.0,
            20.0,
            "30 of 90 s are left for a round, which takes about 41 s; begin a run with",
        ),
    ],
)
def test_a_spent_budget_gives_no_round_and_says_which_to_raise(
    trials: int, seconds: float, confirming: float, why: str
) -> None:
    whole = replace(twice(), search=SearchSettings(trials=10, seconds=90.0))
    found = round_experiment(
        whole,
        used_trials=trials,
        used_seconds=seconds,
        used_device_seconds=0.0,
        rounds_left=2,
        confirming=confirming,
    )
    assert isinstance(found, str)
    assert found.startswith(why)


def test_something_is_searched_even_where_other_work_needs_the_whole_budget() -> None:
    whole = replace(twice(), search=SearchSettings(trials=10, seconds=90.0))
    found = round_experiment(
        whole, used_trials=0, used_seconds=99.0, used_device_seconds=0.0, rounds_left=2
    )
    assert not isinstance(found, str)
    assert found.search.seconds > 0


@pytest.mark.parametrize(
    ("seconds", "trials", "share"),
    [(0.0, 0, 41.0), (40.0, 1, 41.0), (60.0, 1, None), (60.0, 0, 30.0)],
)
def test_a_round_searches_as_long_as_it_confirms_though_fewer_rounds_fit(
    seconds: float, trials: int, share: float | None
) -> None:
    whole = replace(twice(), search=SearchSettings(trials=10, seconds=90.0))
    found = round_experiment(
        whole,
        used_trials=trials,
        used_seconds=seconds,
        used_device_seconds=0.0,
        rounds_left=5,
        confirming=20.0,
    )
    assert (None if isinstance(found, str) else found.search.seconds) == share


@pytest.mark.parametrize(("used", "left", "share"), [(0.0, 3, 4.0), (8.0, 2, 2.0), (12.0, 1, None)])
def test_device_seconds_are_shared_by_rounds_too(used: float, left: int, share: float) -> None:
    whole = replace(twice(), search=SearchSettings(trials=10, seconds=90.0, device_seconds=12.0))
    found = round_experiment(
        whole, used_trials=0, used_seconds=0.0, used_device_seconds=used, rounds_left=left
    )
    assert (None if isinstance(found, str) else found.search.device_seconds) == share
