import itertools
import random

import pytest

from tuner.results.landscape import landscape
from tuner.results.parameters import Observation
from tuner.trial import Configuration, Value

PARAMETERS: dict[str, tuple[Value, ...]] = {
    "BLOCK": (32, 64, 128, 256),
    "VEC": (1, 2, 4),
    "HINT": (False, True),
    "WALK": ("rows", "columns"),
}


def ratio_of(point: dict[str, Value], noise: float) -> float:
    base = {1: 2.0, 2: 1.2, 4: 0.8}[point["VEC"]]  # type: ignore[index]
    crossed = (point["BLOCK"] in (32, 64)) == (point["WALK"] == "rows")
    return base * (1.3 if crossed else 1.0) * noise


def observed(sigma: float = 0.02, seed: int = 0) -> list[Observation]:
    dice = random.Random(seed)
    points = [
        dict(zip(PARAMETERS, values, strict=True))
        for values in itertools.product(*PARAMETERS.values())
    ]
    return [
        Observation(
            configuration=Configuration.of(point),
            ratio=ratio_of(point, dice.lognormvariate(0, sigma)),
        )
        for point in points
    ]


def test_the_parameter_that_matters_comes_first_and_is_sure() -> None:
    found = landscape(PARAMETERS, observed())
    first = found.sensitivities[0]
    assert (first.parameter, first.confidence) == ("VEC", "high")
    assert 0.8 < first.share < 1.0
    assert [value for value, _ in first.medians] == [1, 2, 4]
    assert first.medians[2][1] == pytest.approx(0.9, rel=0.15)
    hint = next(one for one in found.sensitivities if one.parameter == "HINT")
    assert hint.share < 0.02
    assert hint.confidence != "high"


def test_noise_alone_is_not_sure() -> None:
    sure = 0
    for seed in range(20):
        dice = random.Random(seed)
        trials = [
            Observation(configuration=one.configuration, ratio=dice.lognormvariate(0, 1))
            for one in observed()
        ]
        found = landscape(PARAMETERS, trials)
        sure += sum(one.confidence == "high" for one in found.sensitivities)
        assert all(one.share < 0.3 for one in found.sensitivities)
    assert sure <= 4


def test_crossed_parameters_are_named_together() -> None:
    (pair,) = landscape(PARAMETERS, observed()).interactions
    assert {pair.first, pair.second} == {"BLOCK", "WALK"}


def test_best_and_worst_and_the_end_of_the_range() -> None:
    found = landscape(PARAMETERS, observed())
    assert found.measured == 48
    ratios = [ratio for _, ratio in found.best]
    assert ratios == sorted(ratios)
    assert found.best[0][0].as_dict()["VEC"] == 4
    assert found.worst[0][1] > found.worst[-1][1] > ratios[-1]
    ends = {one.parameter: (one.value, one.end) for one in found.boundaries}
    assert ends["VEC"] == (4, "highest")
    assert "HINT" not in ends
    assert "WALK" not in ends


def test_rejections_are_counted_by_code() -> None:
    trials = observed()
    trials = [
        Observation(configuration=one.configuration, rejected="hang" if i < 3 else "trap")
        if i < 10
        else one
        for i, one in enumerate(trials)
    ]
    found = landscape(PARAMETERS, trials)
    assert found.rejected == (("trap", 7), ("hang", 3))
    assert found.trials == 48


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_few_trials_claim_nothing(count: int) -> None:
    found = landscape(PARAMETERS, observed()[:count])
    assert found.measured == count
    assert all(one.confidence == "none" for one in found.sensitivities)
    assert found.boundaries == ()
    assert found.interactions == ()


def test_equal_times_are_no_error() -> None:
    trials = [Observation(configuration=one.configuration, ratio=1.0) for one in observed()]
    found = landscape(PARAMETERS, trials)
    assert all(one.share == 0.0 for one in found.sensitivities)
    assert found.interactions == ()


def test_it_is_a_pure_function() -> None:
    assert landscape(PARAMETERS, observed()) == landscape(PARAMETERS, observed()[::-1])


def test_a_parameter_that_nothing_reads_is_told_as_one_that_changes_nothing() -> None:
    trials = [
        Observation(
            configuration=one.configuration,
            ratio=one.ratio,
            code=str(sorted((one.configuration.as_dict() | {"HINT": None}).items())),
        )
        for one in observed()
    ]
    (inactive,) = landscape(PARAMETERS, trials).inactive
    assert (inactive.parameter, inactive.why) == ("HINT", "code")
