"""Which parameters are called inactive, and which must not be."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.results.parameters import InactiveParameter, Observation, inactive_parameters, same_code
from tuner.trial import Configuration

VALUES = {"BLOCK": (32, 64, 128), "UNUSED": (0, 1), "HINT": (False, True)}


def observed(time, work=None, rejected=lambda point: "", noise=0.0) -> list[Observation]:
    dice = random.Random(3)
    points = [
        dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())
    ]
    first: dict[object, str] = {}
    return [
        Observation(
            configuration=Configuration.of(point),
            ratio=None if rejected(point) else time(point) * (1 + dice.uniform(0, noise)),
            rejected=rejected(point),
            code=first.setdefault(work(point), str(number)) if work else str(number),
        )
        for number, point in enumerate(points)
    ]


def by_block(point):
    return point["BLOCK"] / 100


def test_equal_code_throughout_and_equal_times_are_told_apart():
    found = inactive_parameters(
        observed(by_block, work=lambda p: (p["BLOCK"], p["HINT"]), noise=0.015)
    )
    assert found == (
        InactiveParameter(parameter="UNUSED", why="code", comparisons=6),
        InactiveParameter(parameter="HINT", why="time", comparisons=6),
    )
    assert "the same code in all 6 comparisons" in str(found[0])
    assert "within 2%" in str(found[1])


def test_where_a_parameter_left_the_code_as_it_was_is_counted():
    def work(point):
        return (point["BLOCK"], point["BLOCK"] == 128 and point["HINT"])

    seen = observed(by_block, work=work)
    assert same_code("UNUSED", seen) == (6, 6)
    assert same_code("HINT", seen) == (4, 6)
    assert same_code("BLOCK", seen) == (0, 8)
    assert same_code("HINT", [replace(one, code="") for one in seen]) == (0, 0)


def test_an_effect_in_one_place_is_an_effect():
    def time(point):
        return by_block(point) * (1.05 if point["BLOCK"] == 128 and point["HINT"] else 1)

    found = inactive_parameters(observed(time, work=lambda p: (p["BLOCK"], p["HINT"])))
    assert [dead.parameter for dead in found] == ["UNUSED"]


@pytest.mark.parametrize("failing", [64, 128])
def test_a_value_that_fails_is_an_effect_and_what_fails_anyway_is_none(failing):
    def rejected(point):
        return "crash" if point["HINT"] and point["BLOCK"] == failing else ""

    found = inactive_parameters(observed(by_block, rejected=rejected))
    assert [dead.parameter for dead in found] == ["UNUSED"]


def test_too_few_comparisons_say_nothing():
    few = [one for one in observed(by_block) if one.configuration.as_dict()["BLOCK"] == 32]
    assert inactive_parameters(few) == ()
    assert inactive_parameters([]) == ()


@given(st.sets(st.integers(0, 11)), st.sampled_from(list(VALUES)))
def test_a_parameter_that_matters_is_never_said_to_be_dead(chosen, name):
    every = observed(lambda point: 1.0 + VALUES[name].index(point[name]))
    found = inactive_parameters([every[index] for index in sorted(chosen)])
    assert name not in {dead.parameter for dead in found}
