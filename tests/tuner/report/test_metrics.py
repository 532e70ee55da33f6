"""Metrics of a spec, in every table."""

import csv
import io
import json
from dataclasses import replace

import pytest

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.experiment.metrics import RESERVED
from tuner.experiment.model import Cost
from tuner.expressions import Expression
from tuner.expressions.real import RealExpression
from tuner.report.cells import COLUMNS, cells_csv
from tuner.report.shapes import shapes_section
from tuner.report.tables import results_csv, results_jsonl, status_json
from tuner.report.text import render
from tuner.results.summary import summarise

METRICS = {
    "GB/s": RealExpression.parse("bytes / seconds / 1e9"),
    "Melem/s": RealExpression.parse("n / seconds / 1e6"),
}


def run_with(metrics):
    cost = Cost(bytes=Expression.parse("8 * n"))
    one = replace(experiment(), cost=cost, metrics=metrics)
    trials = [({"x": 0}, [500.0, 1000.0, 2000.0]), ({"x": 1}, [400.0, 2000.0, 4000.0])]
    return finished_run(one, GPU, [1000.0, 2000.0, 4000.0], trials)


@pytest.fixture(scope="module")
def history():
    return run_with(METRICS)


def test_the_report_shows_baseline_and_winners(history):
    result = summarise(history)
    lines = render(result).split("metrics: baseline → general configuration\n")[1].splitlines()
    assert [" ".join(line.split()) for line in lines[:5]] == [
        "shape GB/s Melem/s",
        "n=256 2.048 → 4.096 256 → 512",
        "trial 1 → 5.12 → 640",
        "n=1024 4.096 → 8.192 512 → 1024",
        "n=4096 * 8.192 → 16.38 1024 → 2048",
    ]
    table = shapes_section(result).parts[-1]
    assert table.head[:4] == ("shape", "GB/s, baseline", "GB/s, general", "GB/s, specialised")
    assert table.rows[0][:4] == ("n=256", "2.048", "4.096", "5.12")
    assert table.rows[-1][:4] == ("n=4096 (held out)", "8.192", "16.38", "-")


def test_tables_for_programs_have_them(history):
    result = summarise(history)
    general, specialised, *_ = csv.DictReader(io.StringIO(cells_csv(result)))
    assert list(general) == [*COLUMNS, "GB/s", "baseline_GB/s", "Melem/s", "baseline_Melem/s"]
    assert (float(general["GB/s"]), float(general["baseline_GB/s"])) == (4.096, 2.048)
    assert float(specialised["GB/s"]) == 5.12
    first, *_ = csv.DictReader(io.StringIO(results_csv(history)))
    assert float(first["n=256 GB/s"]) == 4.096
    first = json.loads(results_jsonl(history).splitlines()[0])
    assert first["shapes"]["n=1024"]["metrics"] == {"GB/s": 8.192, "Melem/s": 1024.0}
    (found, _) = json.loads(status_json(result, 1))["metrics"]
    assert found["name"] == "GB/s"
    assert found["specialised"] == [5.12, 8.192]


def test_a_figure_without_a_value_is_left_out():
    odd = {"odd": RealExpression.parse("1 / (n - 256) / seconds")}
    result = summarise(run_with(odd))
    assert result.metrics[0].baseline[0] is None
    assert "- → -" in render(result)


def test_no_metric_may_be_called_as_a_column_of_the_tables():
    assert {name for name in COLUMNS if not name.startswith("baseline_")} <= RESERVED
