"""Everything of one trial: what the record holds, and that its text fits 80 columns."""

import json
from dataclasses import replace

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_facts, with_energy
from tuner.journal.facts import Entry, WorkLost
from tuner.journal.history import History
from tuner.plan import Binary, Usage
from tuner.report.trial import record_json, record_text, trial_record
from tuner.trial import Code, Rejected, Stage

BASE = [1000.0, 2000.0, 4000.0]
WRONG = Rejected(
    stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="7 of 256 elements differ " * 8, shape=1
)


def record(trials, number, **options):
    spec = experiment()
    facts = finished_facts(spec, GPU, BASE, trials, **options)
    lost = WorkLost(work=3, task="measure", trials=(1,), worker="bench 2", reason="was killed")
    entries = [Entry(fact, at=1000.0 + t, t=float(t)) for t, fact in enumerate([*facts, lost])]
    return trial_record(History.of(spec, entries), entries, number)


def test_a_measured_trial_has_parameters_launches_usage_times_and_workers():
    found = record([({"x": 3}, [500.0, 1000.0, 1000.0]), ({"x": 4}, WRONG)], 0)
    usage = (("family", Usage(registers=32, spill_bytes=0)),)
    binary = Binary(build="b", code=b"", usage=usage, symbols=(), compile_seconds=0.1)
    text = record_text(found, 80, [binary])
    for words in (
        "0, measured",
        "x=3",
        "family.cu -Dx=3",
        "family: 32 registers, 0 bytes spilled",
        "n=256: 500 ns ± 5 ns, baseline 1 µs, 2.000× (100 timings)",
        "family, grid 256×1×1, block 64×1×1",
        "n=4096, cold: 1 µs, baseline 4 µs, 4.000× (5 processes)",
        "measure on b: 0.10 s",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80
    data = json.loads(json.dumps(record_json(found, [binary])))
    assert data["plan"]["builds"][0]["usage"]["family"]["registers"] == 32
    assert [cell["median_ns"] for cell in data["cells"]] == [500.0, 1000.0]
    assert "source" not in data["plan"]["builds"][0]


def test_a_rejected_trial_says_where_and_why_and_which_worker_was_lost():
    text = record_text(record([({"x": 3}, BASE), ({"x": 4}, WRONG)], 1), 80)
    assert "verify, wrong_result on n=1024: 7 of 256" in text
    assert "measure on bench 2 lost (attempt 1): was killed" in text
    assert "not timed" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_failed_only_when_it_was_confirmed_is_told_with_its_times():
    text = record_text(record([({"x": 3}, BASE)], 0, failed={0: WRONG}), 80)
    assert "0, measured" in text
    assert "wrong_result on n=1024 after it was measured" in text


def test_where_energy_counts_it_stands_beside_the_time():
    spec = replace(experiment(), objective="energy")
    facts = map(with_energy, finished_facts(spec, GPU, BASE, [({"x": 3}, [500, 1000, 2000])]))
    entries = [Entry(fact, at=1000.0 + t, t=float(t)) for t, fact in enumerate(facts)]
    text = record_text(trial_record(History.of(spec, entries), entries, 0), 100)
    assert "n=256: 500 ns, 2 mJ ± 5 ns, baseline 1 µs, 8 mJ, 4.000× (100 timings)" in text
    assert "n=4096, cold: 2 µs, baseline 4 µs, 4.000× (5 processes)" in text
