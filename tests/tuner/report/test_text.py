"""The report's tables: rows, and the signs that are explained where they occur."""

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.report.text import render
from tuner.results.summary import summarise

BASE = [1000.0, 2000.0, 4000.0]


def table(*trials):
    """The lines from the table's head to its legend."""
    trials = [({"x": number}, times) for number, times in enumerate(trials)]
    lines = render(summarise(finished_run(experiment(), GPU, BASE, trials))).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("shape "))
    return lines[start : lines.index("", start)]


def test_a_shape_has_one_row_where_the_general_configuration_is_best():
    rows = table([500.0, 1000.0, 2000.0])
    assert [row.split()[0] for row in rows[1:-1]] == ["n=256", "n=1024", "n=4096"]
    assert rows[-1] == "(* held out: confirmed, never searched)"


def test_a_better_configuration_for_one_shape_has_a_row_below_it():
    rows = table([500.0, 1000.0, 2000.0], [400.0, 2000.0, 4000.0], [900.0, 800.0, 8e3])
    assert [row.split("  ")[0].strip() or row.split("  ")[1] for row in rows[1:-1]] == [
        "n=256",
        "trial 1",
        "n=1024",
        "trial 2",
        "n=4096 *",
    ]
    assert "400 ns" in rows[2]
    assert "-" not in rows[-1]


def test_a_shape_that_nothing_serves_is_explained():
    rows = table([500.0, None, None])
    assert "- infeasible or not measured there" in rows[-1]
