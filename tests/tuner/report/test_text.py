"""The report's tables: every sign in them is explained where it occurs, and only there."""

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.report.text import render
from tuner.results.summary import summarise

BASE = [1000.0, 2000.0, 4000.0]


def lines(*trials):
    trials = [({"x": number}, times) for number, times in enumerate(trials)]
    return render(summarise(finished_run(experiment(), GPU, BASE, trials))).splitlines()


def explanation(text):
    (found,) = [line for line in text if line.startswith("(")]
    assert text[text.index(found) - 1].startswith("n=4096 (held out)"), "under the table"
    return found


def test_signs_are_explained_under_the_table():
    text = explanation(lines([500.0, 1000.0, 2000.0]))
    assert text.startswith("(= the general configuration is the best there, too; - not confirmed")


def test_only_those_that_occur_are_explained():
    text = explanation(lines([500.0, 1000.0, 2000.0], [400.0, 2000.0, 4000.0], [900.0, 800.0, 8e3]))
    assert text.startswith("(- not confirmed there")
    assert "=" not in text
