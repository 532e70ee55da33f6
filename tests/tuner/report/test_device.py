"""The ceilings and telemetry of the device in a report."""

import json
from dataclasses import replace

import pytest

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.ceilings import Ceilings
from tuner.experiment.model import Cost, Measure
from tuner.expressions import Expression
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    TrialFinished,
)
from tuner.journal.file import Journal, read_journal
from tuner.journal.history import History
from tuner.report.tables import results_jsonl, status_json
from tuner.report.text import render
from tuner.results.summary import summarise
from tuner.telemetry import Spread, Telemetry, Vitals

CEILINGS = Ceilings(
    copy_bytes_per_second=4e9, launch_ns=500.0, products=(("float32", 3e13), ("float16", 2e14))
)
MOVES_EIGHT = Cost(bytes=Expression.parse("8 * n"))


def vitals(mhz: int = 1980, celsius: int = 50, **more) -> Vitals:
    return Vitals(sm_mhz=mhz, memory_mhz=2619, watts=400.0, celsius=celsius, **more)


def told(fact: Fact) -> Fact:
    """The fact with what a device that tells everything adds."""
    match fact:
        case BaselinePrepared():
            return replace(fact, ceilings=CEILINGS, vitals=vitals(celsius=30))
        case TrialFinished():
            return replace(fact, vitals=vitals(1755, throttled=("power cap",)))
        case ConfirmationSampled():
            return replace(fact, vitals=(vitals(), vitals(celsius=61, others=2)))
    return fact


def run(cost: Cost | None = MOVES_EIGHT, cache: str = "cold", told=told) -> History:
    problem = replace(experiment(), cost=cost, measure=Measure(cache=cache))
    trials = [({"x": 1}, [800.0, 2560.0, 8192.0])]
    return finished_run(problem, GPU, [1000.0, 4096.0, 8192.0], trials, told=told)


def test_looks_at_a_device_are_summed_up():
    seen = Telemetry.of(
        [None, vitals(1755, 40, throttled=("power cap",)), vitals(others=1), vitals()]
    )
    assert seen is not None
    assert seen.looks == 3
    assert seen.sm_mhz == Spread(low=1755, median=1980, high=1980)
    assert str(seen) == (
        "SM 1755–1980 (median 1980) MHz, memory 2619 MHz, 400 W, 40–50 (median 50) °C; "
        "throttled: power cap in 1 of 3; 1 other process on the device"
    )
    assert str(Telemetry.of([vitals()])).endswith("50 °C; throttled: never")
    assert Telemetry.of([None, None]) is None


def test_a_result_says_how_near_a_copy_it_is_and_how_the_device_was():
    result = summarise(run())
    assert result.ceilings == CEILINGS
    assert [shape.least_ns for shape in result.shapes] == pytest.approx([512, 2048, 8192])
    assert result.telemetry.looks == 12
    assert result.telemetry.throttled == (("power cap", 1),)
    assert result.telemetry.others == 2
    text = render(result)
    flat = " ".join(text.split())
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("n=")}
    assert [row.rsplit("  ", 1)[1].strip() for row in rows.values()] == ["64 %", "80 %", "100 %"]
    assert "of copy speed" in text
    assert "ceilings     copies 4 GB/s, multiplies matrices at 30 Tflop/s (float32)" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "telemetry SM 1755–1980 (median 1980) MHz, memory 2619 MHz" in flat
    assert "30–61 (median 50) °C; throttled: power cap in 1 of 12" in flat


def test_it_is_there_for_programs_too():
    history = run()
    status = json.loads(status_json(summarise(history), 9))
    assert status["ceilings"]["launch_ns"] == 500
    assert status["telemetry"]["celsius"] == {"low": 30, "median": 50, "high": 61}
    (row,) = map(json.loads, results_jsonl(history).splitlines())
    assert row["shapes"]["n=256"]["of_copy"] == pytest.approx(512 / 800)


@pytest.mark.parametrize(
    "untold",
    [run(cost=None), run(cache="hot"), run(told=lambda fact: fact)],
    ids=["no cost", "hot", "no ceilings"],
)
def test_no_copy_is_spoken_of_where_none_can_be_compared(untold):
    result = summarise(untold)
    assert all(shape.least_ns is None for shape in result.shapes)
    assert "of copy speed" not in render(result)
    assert "of_copy" not in results_jsonl(untold)


def test_where_nothing_tells_of_the_device_the_report_says_so_once():
    text = render(summarise(run(told=lambda fact: fact)))
    assert text.count("clocks, power and temperature are not available with cuda") == 1
    assert "ceilings" not in text


def test_what_was_told_survives_the_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    facts: list[Fact] = []

    def kept(fact: Fact) -> Fact:
        facts.append(told(fact))
        return facts[-1]

    run(told=kept)
    with Journal(path) as journal:
        for fact in facts:
            journal.append(Entry(fact))
    assert [entry.fact for entry in read_journal(path)] == facts


def test_another_environment_begins_its_looks_anew():
    first, last = EpochOpened(device=GPU, environment="one"), vitals(celsius=70)
    history = History(experiment())
    cells = ()
    for fact in (
        first,
        BaselinePrepared(result=cells, vitals=vitals()),
        first,
        BaselinePrepared(result=cells, vitals=vitals()),
        EpochOpened(device=GPU, environment="two"),
        BaselinePrepared(result=cells, vitals=last),
    ):
        history.apply(Entry(fact))
    assert history.vitals == [last]
