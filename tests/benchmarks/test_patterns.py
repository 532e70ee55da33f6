"""The benchmark of patterns counts right, on runs of two kernels that like the same."""

from dataclasses import replace

import pytest

from tests.agents.briefs import twice
from tests.agents.devices import CPU
from tests.benchmarks import patterns
from tests.tuner.results.runs import finished_run
from tuner.space.feasible import feasible_set


def measured(name):
    """A run that measured its whole space, of which VEC=8 with the larger BLOCK is far the best."""
    experiment = replace(twice(), name=name)
    space = feasible_set(experiment, experiment.template, CPU)
    shapes = len(experiment.shapes.tune) + len(experiment.shapes.held_out)
    trials = []
    for index in range(len(space)):
        values = space.configuration(index).as_dict()
        best = values["VEC"] == 8 and values["BLOCK"] == 16
        trials.append((values, [300.0 if best else 900.0 + index] * shapes))
    history = finished_run(
        experiment,
        CPU,
        [1000.0] * shapes,
        trials,
        noise=0.001,
        confirmed=lambda trial: trials[trial][1][0] < 400,
    )
    return patterns.measured_space(history)


def test_a_pattern_of_the_first_kernel_finds_the_second_ones_optimum_at_once(capsys):
    (row,) = patterns.compare([measured("first"), measured("second")], "random", repeats=20)
    assert row["patterns"] == 1
    assert row["with"] < row["without"]
    assert row["saved"] == pytest.approx(row["without"] - row["with"])
    print(patterns.table([row]))
    assert "second" in capsys.readouterr().out
