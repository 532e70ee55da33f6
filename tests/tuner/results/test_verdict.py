"""The verdict in words: sure of what is sure, and of nothing else."""

from dataclasses import replace

import pytest

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.report.text import render
from tuner.results.summary import summarise
from tuner.results.verdict import verdict_text

BASE = [1000.0, 2000.0, 4000.0]


def result(*trials, **options):
    given = [({"x": number}, times) for number, times in enumerate(trials)]
    return summarise(finished_run(experiment(), GPU, BASE, given, **options))


@pytest.mark.parametrize(
    ("trials", "options", "words"),
    [
        ([[500.0, 1000.0, 2000.0]], {}, "faster than the baseline with one configuration"),
        ([[250.0, None, None]], {}, "Faster than the baseline with certainty on n=256."),
        ([BASE], {}, "The best: 1.000× [1.000, 1.000], the same as the baseline"),
        ([[25.0, 50.0, 100.0]], {"noise": 5.0}, "unclear: the times scatter too much"),
        ([[800.0, 1600.0, 4000.0]], {"noise": 0.2}, "unclear: the interval does not exclude 1×"),
        ([[993.0, 1986.0, 3972.0]], {"noise": 0.002}, "unclear: the difference is below 1%"),
    ],
)
def test_a_verdict_says_how_sure_it_is(trials, options, words):
    assert words in verdict_text(result(*trials, **options))


def test_a_speedup_without_gain_is_called_unclear_wherever_it_is_printed():
    found = result([25.0, 50.0, 100.0], noise=5.0)
    assert found.outcome == "no_gain"
    assert found.to_json()["verdict"] == "unclear"
    said = render(found)
    verdict = said.index("No configuration is faster than the baseline with certainty.")
    assert verdict < said.index("general  ")


def test_a_held_out_shape_alone_is_no_gain_and_is_explained():
    found = result([1000.0, 2000.0, 1000.0])
    assert found.outcome == "no_gain"
    assert "Faster on n=4096 is no gain: a held-out shape only judges" in verdict_text(found)
    assert "held-out shape only judges" in " ".join(render(found).split())


def test_a_run_that_goes_on_is_not_judged():
    found = replace(result([500.0, 1000.0, 2000.0]), outcome="unfinished")
    assert verdict_text(found).startswith(
        "The run has not ended, so verdicts may change. So far: 2.0"
    )
    begun = replace(result([500.0, 1000.0, 2000.0], processes=0), outcome="unfinished")
    words = "The run has not ended, and nothing is confirmed. Best of the search so far: 2.00×."
    assert verdict_text(begun) == words
    assert words in " ".join(render(begun).split())


def test_shapes_that_are_not_confirmed_yet_are_named():
    found = result([500.0, 1000.0, 2000.0])
    *tune, held_out = found.general.cells
    cells = (*tune, replace(held_out, comparison=None))
    found = replace(found, outcome="unfinished", general=replace(found.general, cells=cells))
    assert verdict_text(found).endswith("faster. Not confirmed: n=4096.")
